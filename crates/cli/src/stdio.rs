//! Standard input and output as asynchronous files. The runtime's own handles would need another
//! of its features, and with it a second build of everything that uses it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Standard input, for reading in pieces.
pub(crate) fn stdin() -> io::Result<tokio::fs::File> {
    open(io::stdin().as_fd())
}

/// Standard output, for bytes that are not text.
pub(crate) fn stdout() -> io::Result<tokio::fs::File> {
    open(io::stdout().as_fd())
}

fn open(fd: impl AsFd) -> io::Result<tokio::fs::File> {
    let own = fd.as_fd().try_clone_to_owned()?;
    Ok(tokio::fs::File::from_std(File::from(own)))
}
