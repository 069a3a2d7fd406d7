//! The executor's side of its [nursery](crate::nursery): started when it is first needed, asked for shims, and
//! replaced when it is gone.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

use crate::nursery::message::{self, Answer};

/// What a job sees of the server's environment. The rest may hold the server's own secrets.
const HANDED_ON: [&str; 10] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
];

/// How long an answer is waited for: a machine that is short of memory may take its time to load a program.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Nursery {
    program: PathBuf,
    /// Who has it asks, and waits for the answer: there is one request at a time.
    running: Mutex<Option<Running>>,
}

impl Nursery {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, running: Mutex::default() }
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Starts the shim of an attempt: its descriptor, if there is one. An error says that nothing was started.
    ///
    /// Without a descriptor the shim may be there or not: the nursery has gone after it was asked, and what it
    /// did last is seen by the attempt's lock.
    pub(super) fn shim(
        &self,
        folder: &Path,
        secrets: BorrowedFd<'_>,
        lock: BorrowedFd<'_>,
    ) -> io::Result<Option<OwnedFd>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = match &*running {
            Some(nursery) => message::ask(&nursery.socket, folder, secrets, lock)
                .inspect_err(|error| tracing::debug!(%error, "the nursery is gone"))
                .is_ok(),
            None => false,
        };
        if !asked {
            *running = None;
            *running = Some(Running::start(&self.program, folder, secrets, lock)?);
        }
        let answer = running.as_ref().map(|nursery| message::answered(&nursery.socket));
        match answer {
            Some(Ok(Some(Answer::Started(shim)))) => Ok(shim),
            Some(Ok(Some(Answer::Failed(error)))) => Err(error),
            other => {
                let folder = folder.display();
                tracing::warn!(%folder, answer = ?other, "the nursery has gone while it was asked");
                // Whatever it would say later was an answer to this one.
                *running = None;
                Ok(None)
            }
        }
    }
}

#[derive(Debug)]
struct Running {
    socket: OwnedFd,
    process: Child,
}

impl Running {
    /// Starts a nursery with its first request: that was asked before there was anybody to die of it, so that
    /// an error always says that nothing was started.
    fn start(
        program: &Path,
        folder: &Path,
        secrets: BorrowedFd<'_>,
        lock: BorrowedFd<'_>,
    ) -> io::Result<Self> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        message::ask(&socket, folder, secrets, lock)?;
        let handed_on = HANDED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let process = Command::new(program)
            .arg("nursery")
            .env_clear()
            .envs(handed_on)
            .current_dir("/")
            // Who interrupts the server at a terminal means the server, which may have launches to finish.
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { socket, process })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has nothing to finish: shims are processes of their own.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
