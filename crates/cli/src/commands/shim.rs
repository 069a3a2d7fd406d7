//! `falaj nursery` and `falaj shim FOLDER`: the processes that start and watch attempts of training jobs on
//! this machine.
//!
//! Nobody types them: the server starts a nursery, which forks a shim for each attempt. They are found before
//! the command line is read, because reading that, with all its commands, takes longer than a short job does,
//! and makes threads and memory that shims would have to carry.

use std::path::Path;
use std::process::ExitCode;

/// Runs the nursery or a shim if that is what this process was started for.
pub(crate) fn asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let word = arguments.next()?;
    match (word.to_str()?, arguments.next(), arguments.next()) {
        ("nursery", None, None) => Some(falaj_executors::nursery::main()),
        // So started by a server of an earlier release, whose file has been replaced while it runs.
        ("shim", Some(folder), None) => Some(falaj_executors::shim::main(Path::new(&folder))),
        _ => None,
    }
}
