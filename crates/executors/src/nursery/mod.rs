//! The nursery: a process that has been loaded once and forks the [shims](crate::shim) of an executor.
//!
//! A shim that is started as a program of its own spends more time on being loaded than on all its work: this
//! is one large program. So the executor starts it once, as `falaj nursery`, and asks it for a shim for each
//! attempt, through the socket that is its standard input. What it has forked is a shim like any other: a
//! session of its own, the attempt's lock as its standard output, nothing else open, and it goes on whatever
//! becomes of the nursery and of the server.
//!
//! Must hold:
//! - It has one thread, and nothing is in its memory that a shim should not have: it reads no secrets, which
//!   come as a descriptor and go to the shim unread.
//! - What came with a request is closed here as soon as the shim is there: a lock that the nursery held would
//!   keep an attempt alive whose shim is gone.
//! - It ends when nobody can ask it any more, and leaves no process behind that nobody has waited for.
//!
//! Not here: which attempts there are; that is the executor's (`local/nursery.rs` starts and asks this one).

mod fork;
pub(crate) mod message;

use std::io;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, WaitOptions, pidfd_open, wait};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};
use rustix::thread::set_name;

use crate::{process, shim};
use fork::{Alone, Who};
use message::{Answer, Request};

/// How often ended shims are looked for while nothing is asked.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Forks shims until the server has gone. Returns in each of them as well, when it has done its work.
#[must_use]
pub fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        let text = format!("nursery: {error}\n");
        let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
        ExitCode::FAILURE
    })
}

fn run() -> io::Result<ExitCode> {
    let alone = Alone::here().inspect_err(|_| refuse())?;
    fork::close_others(&alone);
    // All that `ps` can tell of them: their command line is the same.
    let _ = set_name(c"falaj-nursery");
    // Read once, for all of them.
    process::boot();
    let mut shims = Shims::default();
    loop {
        shims.reap();
        if !is_asked(shims.running > 0)? {
            continue;
        }
        let answer = match message::next(stdin())? {
            None => return Ok(ExitCode::SUCCESS),
            Some(Err(why)) => Answer::Failed(why.into()),
            Some(Ok(request)) => match fork::fork(&alone) {
                Ok(Who::Child) => return Ok(become_shim(request)),
                Ok(Who::Parent(pid)) => {
                    drop(request);
                    shims.running += 1;
                    // Nobody has waited for it yet, so that the id is still its own.
                    Answer::Started(pidfd_open(pid, PidfdFlags::empty()).ok())
                }
                Err(error) => Answer::Failed(error),
            },
        };
        if message::answer(stdin(), &answer).is_err() {
            // Nobody is there to be answered.
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Says that nothing was started: the first request was there before this process was, and whoever asked
/// would have to take the attempt for lost.
fn refuse() {
    if let Ok(Some(_)) = message::next(stdin()) {
        let _ = message::answer(stdin(), &Answer::Failed(Errno::NOTSUP.into()));
    }
}

/// Waits for a request, and no longer than until shims are to be looked for.
fn is_asked(has_shims: bool) -> io::Result<bool> {
    let input = stdin();
    let mut fds = [PollFd::new(&input, PollFlags::IN)];
    match poll(&mut fds, has_shims.then_some(&LOOK)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What the new process does: it puts on what came with the request, and is the shim.
fn become_shim(request: Request) -> ExitCode {
    let Request { folder, secrets, lock } = request;
    // The socket is the standard input: it is closed by what takes its place.
    let worn =
        dup2_stdin(&secrets).and_then(|()| dup2_stdout(&lock)).and_then(|()| dup2_stderr(&lock));
    drop((secrets, lock));
    if worn.is_err() {
        return ExitCode::FAILURE;
    }
    let _ = set_name(c"falaj-shim");
    shim::main(&folder)
}

/// The shims that were started here and that nobody has waited for.
#[derive(Debug, Default)]
struct Shims {
    running: usize,
}

impl Shims {
    fn reap(&mut self) {
        while self.running > 0 {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => self.running -= 1,
                Ok(None) => return,
                Err(Errno::INTR) => {}
                // There are none, whoever has waited for them.
                Err(_) => self.running = 0,
            }
        }
    }
}
