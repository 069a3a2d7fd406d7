//! `falaj shim FOLDER`: the process that watches one attempt of a training job on this machine.
//!
//! Nobody types it: the server starts one for each attempt. It is found before the command line is
//! read, because reading that, with all its commands, takes longer than a short job does.

use std::path::Path;
use std::process::ExitCode;

/// Runs the shim if that is what this process was started for.
pub(crate) fn asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != "shim" {
        return None;
    }
    let folder = arguments.next().filter(|_| arguments.len() == 0)?;
    Some(falaj_executors::shim::main(Path::new(&folder)))
}
