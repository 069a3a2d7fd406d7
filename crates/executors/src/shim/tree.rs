//! The processes below the shim. It is their reaper, so that none can leave the tree: whoever's parent
//! dies becomes the shim's own child.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, wait};

use crate::process;

/// A process that ended, and how.
pub(super) type Ended = (Pid, WaitStatus);

/// Takes the next one that has ended. `Err` says that there are no children at all.
pub(super) fn next_ended() -> Result<Option<Ended>, NoChildren> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(found) => return Ok(found),
            Err(Errno::INTR) => {}
            Err(_) => return Err(NoChildren),
        }
    }
}

#[derive(Debug)]
pub(super) struct NoChildren;

/// Kills every process below this one.
pub(super) fn kill_all() {
    let own = getpid();
    for pid in process::below(own) {
        process::kill(pid, |pid| process::is_below(pid, own));
    }
}

/// Kills what is left and waits until nothing is, or the time is up; whether nothing is.
pub(super) fn clear(at_most: Duration) -> bool {
    let until = Instant::now() + at_most;
    loop {
        loop {
            match next_ended() {
                Err(NoChildren) => return true,
                Ok(Some(_)) => {}
                Ok(None) => break,
            }
        }
        if Instant::now() >= until {
            return false;
        }
        kill_all();
        std::thread::sleep(Duration::from_millis(2));
    }
}
