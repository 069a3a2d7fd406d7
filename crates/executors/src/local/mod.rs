//! Processes of this machine, each attempt under a [shim](crate::shim) of its own, all shims from one
//! [nursery](crate::nursery).
//!
//! Must hold:
//! - The lock of an attempt is taken before its shim is started and handed to it: there is no moment at
//!   which a shim lives and its lock is free. Whoever takes the lock may bury the attempt.
//! - Nothing that this process keeps in memory is needed to find an attempt again.
//!
//! The folder must lie in a file system of this machine: locks of others are not to be relied on.

mod bury;
mod follow;
mod nursery;
mod stacks;
mod start;

use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{SeekFrom, seek};

use crate::cgroup::Plan;
use crate::folder::{self, Folder, away};
use crate::plain;
use crate::seam::{
    AttemptId, Executor, ExecutorError, Launch, Notice, Observed, Part, Phase, Usage,
};
use crate::shim::record::{
    CONTROL, EXIT, Exit, KILL, Kept, LAUNCH, STATE, STOP, State, TOLD_CHECKPOINT, TOLD_KILL,
    TOLD_STOP,
};
use crate::{check, process, shim};
use follow::Followed;
use nursery::Nursery;
use start::Lock;

/// Bytes of output that are kept for each rank, unless [`LocalExecutor::keep_output`] says otherwise.
const LOG_LIMIT: u64 = 256 << 20;
/// The least that may be kept.
const SMALLEST_LOG_LIMIT: u64 = 64 << 10;
/// How long a launch waits for another one of the same attempt that is under way.
const UNDER_WAY: Duration = Duration::from_secs(5);
/// How long what a dead shim has left is waited for, the first time. After that it is only looked at.
const CLEAR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct LocalExecutor {
    folder: Folder,
    nursery: Nursery,
    plan: Plan,
    log_limit: u64,
    followed: Followed,
}

/// What is found of an attempt.
enum Found {
    Nothing,
    Alive(Option<State>),
    Ended(Exit),
}

impl LocalExecutor {
    /// Keeps attempts in `folder`, and has their shims forked by `program nursery`, which is started when the
    /// first one is launched.
    pub fn new(folder: impl AsRef<Path>, program: PathBuf) -> Result<Self, ExecutorError> {
        let folder = Folder::open(folder.as_ref())?;
        let followed = Followed::new().map_err(|error| ExecutorError::Away(error.to_string()))?;
        let plan = Plan::find();
        let nursery = Nursery::new(program);
        Ok(Self { folder, nursery, plan, log_limit: LOG_LIMIT, followed })
    }

    /// Keeps this many bytes of each rank's output: its beginning and its latest part.
    #[must_use]
    pub fn keep_output(mut self, bytes: u64) -> Self {
        self.log_limit = bytes.max(SMALLEST_LOG_LIMIT);
        self
    }

    /// Leaves control groups alone. Limits of memory are then kept roughly, those of the CPU not at all.
    #[must_use]
    pub fn without_groups(mut self) -> Self {
        self.plan = Plan::None;
        self
    }

    /// How limits are kept on this machine: `cgroup-v2`, `cgroup-v1` or `none`.
    #[must_use]
    pub fn isolation(&self) -> &'static str {
        self.plan.name()
    }

    /// The lock of an attempt that has a folder, if it is to be started by the caller.
    fn take_over(&self, attempt: &AttemptId) -> Result<TakeOver, ExecutorError> {
        let folder = self.folder.of(attempt);
        let until = Instant::now() + UNDER_WAY;
        loop {
            let lock = Lock::take(&folder).map_err(|error| away(&folder, &error))?;
            if plain::is_there(&folder.join(EXIT)) || plain::is_there(&folder.join(STATE)) {
                return Ok(TakeOver::Started);
            }
            match lock {
                Some(lock) => return Ok(TakeOver::Mine(lock)),
                None if !folder.exists() => return Ok(TakeOver::Gone),
                // Held, and nothing started: whoever holds it is about to start it, or to remove it.
                None if Instant::now() >= until => return Ok(TakeOver::Started),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn start(&self, launch: &Launch, lock: Lock) -> Result<(), ExecutorError> {
        let folder = self.folder.of(&launch.attempt);
        match start::shim(&self.nursery, &folder, &launch.secrets, lock) {
            Ok(shim) => {
                if let Some(shim) = shim {
                    self.followed.add(&launch.attempt, shim, None);
                }
                Ok(())
            }
            Err((error, lock)) => {
                // Nothing was started, and the lock is still held: as if it had never been claimed.
                let _ = self.folder.remove(&launch.attempt);
                drop(lock);
                Err(ExecutorError::Away(format!("{}: {error}", self.nursery.program().display())))
            }
        }
    }

    /// What there is of an attempt now. One whose shim is gone is buried.
    fn look(&self, attempt: &AttemptId) -> Result<Found, ExecutorError> {
        let folder = self.folder.of(attempt);
        let failed = |error: io::Error| away(&folder, &error);
        if self.followed.is_alive(attempt) {
            let state =
                self.followed.state(attempt, || plain::get(&folder.join(STATE), plain::RECORD));
            return Ok(Found::Alive(state.map_err(failed)?));
        }
        if let Some(exit) = plain::get(&folder.join(EXIT), plain::RECORD).map_err(failed)? {
            return Ok(Found::Ended(exit));
        }
        let Some(lock) = Lock::take(&folder).map_err(failed)? else {
            if !folder.exists() {
                return Ok(Found::Nothing);
            }
            let state: Option<State> =
                plain::get(&folder.join(STATE), plain::RECORD).map_err(failed)?;
            if let Some(state) = &state {
                self.followed.adopt(attempt, state);
            }
            return Ok(Found::Alive(state));
        };
        // There is no shim, and there will be none while the lock is held.
        if let Some(exit) = plain::get(&folder.join(EXIT), plain::RECORD).map_err(failed)? {
            return Ok(Found::Ended(exit));
        }
        let state: Option<State> =
            plain::get(&folder.join(STATE), plain::RECORD).map_err(failed)?;
        if state.is_none() && !plain::is_there(&folder.join(STATE)) && !start::was_launched(&folder)
        {
            // Claimed by a process that died before its launch was done; nothing was started.
            self.folder.remove(attempt)?;
            return Ok(Found::Nothing);
        }
        let kept = plain::get::<Kept>(&folder.join(LAUNCH), plain::LAUNCH).map_err(failed)?;
        let patience = if self.followed.was_stuck(attempt) { Duration::ZERO } else { CLEAR };
        let exit = bury::lost(&folder, attempt, kept.as_ref(), state.as_ref(), patience)
            .map_err(failed)?;
        drop(lock);
        Ok(exit.map_or_else(
            || {
                self.followed.is_stuck_now(attempt);
                Found::Alive(state)
            },
            Found::Ended,
        ))
    }

    fn observed(&self, attempt: &AttemptId) -> Result<Option<Observed>, ExecutorError> {
        if let Some(ended) = self.followed.ended(attempt) {
            return Ok(Some(ended));
        }
        let attempt = attempt.clone();
        Ok(match self.look(&attempt)? {
            Found::Nothing => None,
            Found::Alive(None) => Some(Observed {
                attempt,
                phase: Phase::Pending(None),
                started: None,
                ended: None,
                isolation: self.plan.name().to_owned(),
            }),
            Found::Alive(Some(state)) => Some(Observed {
                attempt,
                phase: match state.started {
                    Some(_) => Phase::Running,
                    None => Phase::Pending(None),
                },
                started: state.started,
                ended: None,
                isolation: state.isolation,
            }),
            Found::Ended(exit) => {
                let observed = Observed {
                    attempt,
                    phase: Phase::Ended(exit.end),
                    started: exit.started,
                    ended: Some(exit.ended),
                    isolation: exit.isolation,
                };
                self.followed.end(&observed);
                Some(observed)
            }
        })
    }
}

enum TakeOver {
    Mine(Lock),
    Started,
    Gone,
}

impl Executor for LocalExecutor {
    fn refuses(&self, launch: &Launch) -> Option<String> {
        check::refuses(launch)
    }

    fn launch(&self, launch: &Launch) -> Result<(), ExecutorError> {
        if let Some(why) = self.refuses(launch) {
            return Err(ExecutorError::Refused(why));
        }
        let kept = Kept::of(launch, self.log_limit, self.plan.clone());
        loop {
            let claimed =
                self.folder.claim(&launch.attempt, |folder| start::fill(folder, &kept))?;
            match claimed {
                Some(lock) => return self.start(launch, lock),
                None => match self.take_over(&launch.attempt)? {
                    TakeOver::Mine(lock) => return self.start(launch, lock),
                    TakeOver::Started => return Ok(()),
                    TakeOver::Gone => {}
                },
            }
        }
    }

    fn observe(&self) -> Result<Vec<Observed>, ExecutorError> {
        let mut found = Vec::new();
        for attempt in self.folder.attempts()? {
            match self.observed(&attempt) {
                Ok(observed) => found.extend(observed),
                Err(error) => {
                    found.push(folder::unreadable(attempt, &error, self.plan.name()));
                }
            }
        }
        Ok(found)
    }

    fn tell(&self, attempt: &AttemptId, notice: Notice) -> Result<(), ExecutorError> {
        let folder = self.folder.known(attempt)?;
        let (flag, word) = match notice {
            Notice::Checkpoint => (None, TOLD_CHECKPOINT),
            Notice::Stop => (Some(STOP), TOLD_STOP),
            Notice::Kill => (Some(KILL), TOLD_KILL),
        };
        if let Some(flag) = flag {
            plain::mark(&folder.join(flag)).map_err(|error| away(&folder, &error))?;
        }
        // Nobody listens before the shim runs, which then looks for the flag, and after it has ended.
        if let Some(mut control) = plain::open_pipe(&folder.join(CONTROL)) {
            let _ = control.write_all(&[word]);
        }
        Ok(())
    }

    fn output(
        &self,
        attempt: &AttemptId,
        rank: u32,
        from: u64,
        most: usize,
    ) -> Result<Vec<u8>, ExecutorError> {
        self.folder.output(attempt, rank, from, most)
    }

    fn output_part(
        &self,
        attempt: &AttemptId,
        rank: u32,
        from: u64,
        most: usize,
    ) -> Result<Part, ExecutorError> {
        let path = self.folder.known(attempt)?.join(folder::log_name(rank));
        let part = || -> io::Result<Part> {
            let Some(mut file) = plain::open(&path)? else {
                return Ok(Part { at: from, bytes: Vec::new() });
            };
            // Past its end, and in a file system without holes, all that is asked for is there.
            let at = seek(&file, SeekFrom::Data(from)).unwrap_or(from);
            // There is always one at the very end; a file system without holes tells of no other.
            let hole = seek(&file, SeekFrom::Hole(at)).unwrap_or(u64::MAX);
            file.seek(io::SeekFrom::Start(at))?;
            let mut bytes = Vec::new();
            file.take((most as u64).min(hole.saturating_sub(at))).read_to_end(&mut bytes)?;
            Ok(Part { at, bytes })
        };
        part().map_err(|error| away(&path, &error))
    }

    fn usage(&self, attempt: &AttemptId) -> Result<Option<Usage>, ExecutorError> {
        let folder = self.folder.known(attempt)?;
        let failed = |error: io::Error| away(&folder, &error);
        match self.look(attempt)? {
            Found::Nothing => Err(ExecutorError::Unknown(attempt.clone())),
            Found::Ended(exit) => Ok(exit.usage),
            Found::Alive(None) => Ok(None),
            Found::Alive(Some(state)) => {
                let processes = process::usage(&stacks::processes(&state));
                if state.isolation == Plan::None.name() {
                    return Ok(Some(processes));
                }
                let kept: Option<Kept> =
                    plain::get(&folder.join(LAUNCH), plain::LAUNCH).map_err(failed)?;
                let groups: Vec<_> = kept
                    .iter()
                    .flat_map(|kept| {
                        (0..kept.ranks.len()).filter_map(|rank| kept.plan.group(attempt, rank))
                    })
                    .collect();
                let usage = shim::total(&groups);
                Ok(Some(Usage {
                    // What groups do not count, their processes do.
                    read_bytes: usage.read_bytes.max(processes.read_bytes),
                    written_bytes: usage.written_bytes.max(processes.written_bytes),
                    ..usage
                }))
            }
        }
    }

    fn processes(&self, attempt: &AttemptId) -> Result<Vec<u32>, ExecutorError> {
        self.folder.known(attempt)?;
        Ok(match self.look(attempt)? {
            Found::Alive(Some(state)) => {
                let ids = stacks::processes(&state).into_iter();
                ids.filter_map(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok()).collect()
            }
            _ => Vec::new(),
        })
    }

    fn stacks(&self, attempt: &AttemptId) -> Result<Option<String>, ExecutorError> {
        self.folder.known(attempt)?;
        Ok(match self.look(attempt)? {
            Found::Alive(Some(state)) => Some(stacks::text(&state)),
            _ => None,
        })
    }

    fn forget(&self, attempt: &AttemptId) -> Result<(), ExecutorError> {
        if let Some(Observed { phase: Phase::Pending(_) | Phase::Running, .. }) =
            self.observed(attempt)?
        {
            return Err(folder::not_ended(attempt));
        }
        self.folder.remove(attempt)?;
        self.followed.forget(attempt);
        Ok(())
    }

    fn wait(&self, at_most: Duration) {
        self.followed.wait(at_most);
    }
}
