//! Paths that a server names, on this machine.

use std::path::{Component, Path, PathBuf};

use crate::exit::{Exit, Failure, Result};

/// A path that a server names must not lead out of the folder.
pub(crate) fn inside(dir: &Path, path: &str) -> Result<PathBuf> {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if path.is_empty() || !Path::new(path).components().all(plain) {
        return Err(unwritable(path));
    }
    Ok(dir.join(path))
}

pub(crate) fn unwritable(path: &str) -> Failure {
    let text = format!("the server names a file that cannot be written: {path:?}");
    Failure::new(Exit::Verification, text)
}
