//! Watching ranks until the last of them has ended.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitStatus, kill_process, kill_process_group, pidfd_open,
};

use super::gang::{Gang, Order};
use super::record::{TOLD_CHECKPOINT, TOLD_KILL, TOLD_STOP};
use super::{logs, millis, tree};
use crate::{Notice, RankEnd};

/// How often long outputs and orphans are looked at.
const TICK_MS: u64 = 1_000;
/// How often what was killed is looked at, until it is gone.
const KILL_TICK_MS: u64 = 50;
/// Files that are left free when ranks are followed: to look for processes, and to write the end.
const SPARE_FILES: usize = 16;

pub(super) struct Watch {
    gang: Gang,
    control: File,
    logs: Vec<File>,
    log_limit: u64,
    begun: Instant,
    /// The ranks that still run.
    running: Vec<Running>,
    killing: bool,
}

struct Running {
    rank: usize,
    pid: Pid,
    /// Ready when it has ended. Where there are not enough files it is looked at often instead.
    fd: Option<OwnedFd>,
}

impl Watch {
    pub(super) fn new(
        gang: Gang,
        control: File,
        logs: Vec<File>,
        log_limit: u64,
        begun: Instant,
    ) -> Self {
        Self { gang, control, logs, log_limit, begun, running: Vec::new(), killing: false }
    }

    fn now(&self) -> u64 {
        millis(self.begun.elapsed())
    }

    /// Takes what was started in, and what was said before anybody listened.
    pub(super) fn begin(&mut self, started: &[Result<Pid, String>], stop: bool, kill: bool) {
        let spare: Vec<File> =
            (0..SPARE_FILES).map_while(|_| self.control.try_clone().ok()).collect();
        for (rank, result) in started.iter().enumerate() {
            if let Ok(pid) = result {
                let fd = pidfd_open(*pid, PidfdFlags::empty()).ok();
                self.running.push(Running { rank, pid: *pid, fd });
            }
        }
        drop(spare);
        for (rank, _) in started.iter().enumerate().filter(|(_, result)| result.is_err()) {
            let order = self.gang.rank_ended(rank, RankEnd::NotStarted, self.now());
            self.obey(order);
        }
        if stop {
            self.told(Notice::Stop);
        }
        if kill {
            self.told(Notice::Kill);
        }
    }

    /// Returns when no rank runs any more.
    ///
    /// What has ended is taken in before what was said: ranks that were done before they could be told are
    /// done.
    pub(super) fn until_over(mut self, out_of_memory: impl Fn(usize) -> bool) -> Gang {
        let mut looked = 0;
        while !self.gang.is_over() {
            self.sleep();
            self.reap(&out_of_memory);
            if self.gang.is_over() {
                break;
            }
            self.listen();
            let order = self.gang.tick(self.now());
            self.obey(order);
            if self.now() >= looked + TICK_MS {
                looked = self.now();
                self.logs.iter().for_each(|log| logs::bound(log, self.log_limit));
            }
        }
        self.logs.iter().for_each(|log| logs::bound(log, self.log_limit));
        self.gang
    }

    /// Until a rank ends, something is said, or the time asks for something.
    fn sleep(&self) {
        let blind = self.running.iter().any(|one| one.fd.is_none());
        let longest = if self.killing || blind { KILL_TICK_MS } else { TICK_MS };
        let due = self.gang.next().filter(|_| !self.killing);
        let left = due.map_or(longest, |at| at.saturating_sub(self.now()).min(longest));
        let mut fds = vec![PollFd::new(&self.control, PollFlags::IN)];
        let followed = self.running.iter().filter_map(|one| one.fd.as_ref());
        fds.extend(followed.map(|fd| PollFd::new(fd, PollFlags::IN)));
        let longest = Timespec { tv_sec: 1, tv_nsec: 0 };
        let timeout = Timespec::try_from(Duration::from_millis(left)).unwrap_or(longest);
        if let Err(error) = poll(&mut fds, Some(&timeout))
            && error != Errno::INTR
        {
            // Ranks go on whatever the kernel cannot do just now.
            std::thread::sleep(Duration::from_millis(left.min(KILL_TICK_MS)));
        }
    }

    fn listen(&mut self) {
        let mut words = [0; 64];
        let Ok(count) = (&self.control).read(&mut words) else { return };
        for word in &words[..count] {
            match *word {
                TOLD_CHECKPOINT => self.told(Notice::Checkpoint),
                TOLD_STOP => self.told(Notice::Stop),
                TOLD_KILL => self.told(Notice::Kill),
                _ => {}
            }
        }
    }

    fn told(&mut self, notice: Notice) {
        let order = self.gang.told(notice, self.now());
        self.obey(order);
    }

    /// Takes every process that has ended: ranks, and orphans of theirs.
    fn reap(&mut self, out_of_memory: &impl Fn(usize) -> bool) {
        while let Ok(Some((pid, status))) = tree::next_ended() {
            let Some(at) = self.running.iter().position(|one| one.pid == pid) else { continue };
            let rank = self.running.swap_remove(at).rank;
            let how = how(status);
            // A rank that answers for a child of it that was killed for memory is such a rank too.
            let how = if how != RankEnd::Exit(0) && out_of_memory(rank) {
                RankEnd::OutOfMemory
            } else {
                how
            };
            let order = self.gang.rank_ended(rank, how, self.now());
            self.obey(order);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Nothing => {}
            // The rank alone: a helper of it that knows nothing of the signal would die of it.
            Order::Checkpoint => {
                for one in &self.running {
                    let _ = kill_process(one.pid, Signal::USR1);
                }
            }
            Order::Terminate => {
                for one in &self.running {
                    let _ = kill_process_group(one.pid, Signal::TERM);
                }
            }
            Order::Kill => {
                self.killing = true;
                tree::kill_all();
            }
        }
    }
}

fn how(status: WaitStatus) -> RankEnd {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => RankEnd::Exit(code),
        (None, Some(signal)) => RankEnd::Signal(signal),
        (None, None) => RankEnd::Exit(-1),
    }
}
