//! The attempts this process follows: their shims as descriptors, and what has been found out.
//!
//! All of it is there to be faster; an attempt that is not in it is found by its folder.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::shim::record::State;
use crate::{AttemptId, Observed, process};

/// How often one that is only starting is looked at: many of them at once would be many files.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Followed {
    /// Ready as soon as one of the shims is gone.
    ends: OwnedFd,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    alive: HashMap<AttemptId, Alive>,
    ended: HashMap<AttemptId, Observed>,
    /// Attempts whose shim is gone and of which processes are left that the kernel does not let go of.
    stuck: HashSet<AttemptId>,
}

#[derive(Debug)]
struct Alive {
    shim: OwnedFd,
    state: Option<State>,
    /// When the state was last looked for, as long as it says nothing.
    looked: Option<Instant>,
}

impl Followed {
    pub(super) fn new() -> io::Result<Self> {
        let ends = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { ends, known: Mutex::default() })
    }

    /// What is kept here is whole after every line, whichever thread broke.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a shim that another process started.
    pub(super) fn adopt(&self, attempt: &AttemptId, state: &State) {
        if state.boot != process::boot() {
            return;
        }
        let Some(pid) = Pid::from_raw(state.shim) else { return };
        let Ok(shim) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // Asked once the descriptor is held: from then on the id belongs to nobody else.
        if process::start_time(pid) == Some(state.shim_start) {
            self.add(attempt, shim, Some(state.clone()));
        }
    }

    /// Follows a shim by its descriptor.
    pub(super) fn add(&self, attempt: &AttemptId, shim: OwnedFd, state: Option<State>) {
        let mut known = self.known();
        // Whoever looked in the meantime has found its end, and nobody looks whether it lives any more.
        if known.ended.contains_key(attempt) {
            return;
        }
        let added =
            epoll::add(&self.ends, &shim, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        if let Err(error) = added {
            tracing::warn!(%attempt, %error, "an end will be noticed late");
        }
        known.alive.insert(attempt.clone(), Alive { shim, state, looked: None });
    }

    /// Whether a shim is known to live. One that has just gone is no longer followed.
    pub(super) fn is_alive(&self, attempt: &AttemptId) -> bool {
        let mut known = self.known();
        let Some(alive) = known.alive.get(attempt) else { return false };
        let gone = is_ready(&alive.shim);
        if gone {
            self.leave(&mut known, attempt);
        }
        !gone
    }

    /// The state of an attempt; read until it says that ranks were started.
    pub(super) fn state(
        &self,
        attempt: &AttemptId,
        read: impl FnOnce() -> io::Result<Option<State>>,
    ) -> io::Result<Option<State>> {
        if let Some(alive) = self.known().alive.get_mut(attempt) {
            let is_known = alive.state.as_ref().is_some_and(|state| state.started.is_some());
            let is_fresh = alive.looked.is_some_and(|looked| looked.elapsed() < LOOK);
            if is_known || is_fresh {
                return Ok(alive.state.clone());
            }
            alive.looked = Some(Instant::now());
        }
        let state = read()?;
        if let Some(alive) = self.known().alive.get_mut(attempt) {
            alive.state.clone_from(&state);
        }
        Ok(state)
    }

    pub(super) fn ended(&self, attempt: &AttemptId) -> Option<Observed> {
        self.known().ended.get(attempt).cloned()
    }

    pub(super) fn end(&self, observed: &Observed) {
        let mut known = self.known();
        known.ended.insert(observed.attempt.clone(), observed.clone());
        known.stuck.remove(&observed.attempt);
        self.leave(&mut known, &observed.attempt);
    }

    pub(super) fn forget(&self, attempt: &AttemptId) {
        let mut known = self.known();
        known.ended.remove(attempt);
        known.stuck.remove(attempt);
        self.leave(&mut known, attempt);
    }

    /// Follows a shim no longer: one that is gone would wake every wait from now on.
    fn leave(&self, known: &mut Known, attempt: &AttemptId) {
        if let Some(alive) = known.alive.remove(attempt) {
            let _ = epoll::delete(&self.ends, &alive.shim);
        }
    }

    /// Notes that an attempt cannot be buried yet.
    pub(super) fn is_stuck_now(&self, attempt: &AttemptId) {
        self.known().stuck.insert(attempt.clone());
    }

    pub(super) fn was_stuck(&self, attempt: &AttemptId) -> bool {
        self.known().stuck.contains(attempt)
    }

    pub(super) fn wait(&self, at_most: Duration) {
        let mut events = Vec::with_capacity(1);
        // Waits are short; what cannot be told to the kernel is an hour.
        let longest = Timespec { tv_sec: 3600, tv_nsec: 0 };
        let timeout = Timespec::try_from(at_most).unwrap_or(longest);
        let spare = rustix::buffer::spare_capacity(&mut events);
        if let Err(error) = epoll::wait(&self.ends, spare, Some(&timeout))
            && error != rustix::io::Errno::INTR
        {
            tracing::warn!(%error, "cannot wait for ends");
            std::thread::sleep(at_most.min(Duration::from_millis(100)));
        }
    }
}

fn is_ready(shim: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(shim, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{End, Phase};
    use std::process::Command;

    fn ended(attempt: &AttemptId) -> Observed {
        Observed {
            attempt: attempt.clone(),
            phase: Phase::Ended(End::Succeeded),
            started: None,
            ended: Some(1),
            isolation: String::new(),
        }
    }

    /// A process that has ended.
    fn short() -> OwnedFd {
        let mut child = Command::new("true").spawn().unwrap();
        let shim = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        shim
    }

    /// Whether a wait is a wait: nothing that is known to have ended wakes it.
    fn waits(followed: &Followed) -> bool {
        let begun = Instant::now();
        followed.wait(Duration::from_millis(200));
        begun.elapsed() >= Duration::from_millis(150)
    }

    #[test]
    fn an_end_that_is_found_before_its_shim_is_followed_wakes_nobody() {
        let followed = Followed::new().unwrap();
        let attempt = AttemptId::new("job-1").unwrap();
        followed.end(&ended(&attempt));
        followed.add(&attempt, short(), None);
        assert!(waits(&followed));
        assert!(followed.known().alive.is_empty());
    }

    #[test]
    fn an_end_that_is_found_after_wakes_nobody_either() {
        let attempt = AttemptId::new("job-1").unwrap();
        for forgotten in [false, true] {
            let followed = Followed::new().unwrap();
            followed.add(&attempt, short(), None);
            followed.wait(Duration::from_secs(10));
            assert!(!waits(&followed), "its end is not noticed");
            if forgotten {
                followed.forget(&attempt);
            } else {
                followed.end(&ended(&attempt));
            }
            assert!(waits(&followed));
            assert!(followed.known().alive.is_empty());
        }
    }
}
