//! What Slurm calls the states of a job, and what they mean here.

use crate::{End, Phase, RankEnd};

/// A job as `squeue` shows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) state: String,
    pub(super) reason: String,
}

/// What `squeue` is asked for.
pub(super) const FORMAT: &str = "--format=%i|%j|%T|%r";

impl Job {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.trim().splitn(4, '|').map(str::to_owned);
        let (id, name, state) = (words.next()?, words.next()?, words.next()?);
        Some(Self { id, name, state, reason: words.next().unwrap_or_default() })
    }

    /// What it means, where no script of ours has left an end. `None`: ask again.
    pub(super) fn phase(&self, told_to_stop: bool) -> Option<Phase> {
        let ended = |end| Some(Phase::Ended(if told_to_stop { End::Stopped } else { end }));
        match self.state.as_str() {
            "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD"
            | "SPECIAL_EXIT" | "REQUEUE_FED" => {
                let told = !self.reason.is_empty() && self.reason != "None";
                Some(Phase::Pending(told.then(|| self.reason.clone())))
            }
            "RUNNING" | "SUSPENDED" | "STOPPED" | "RESIZING" | "SIGNALING" | "STAGE_OUT" => {
                Some(Phase::Running)
            }
            "COMPLETING" => None,
            "TIMEOUT" | "DEADLINE" => ended(End::TimedOut),
            "PREEMPTED" => Some(Phase::Ended(End::Preempted)),
            "OUT_OF_MEMORY" => ended(End::Failed { rank: 0, how: RankEnd::OutOfMemory }),
            "FAILED" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => {
                ended(End::Failed { rank: 0, how: RankEnd::NotStarted })
            }
            // Ended by nobody of ours, or with an end that never arrived.
            _ => ended(End::Lost),
        }
    }

    /// Why it ended other than well, where its ranks cannot know: Slurm ends jobs for reasons of its own.
    pub(super) fn reason(&self, end: &End) -> Option<End> {
        let killed = matches!(end, End::Lost | End::Failed { how: RankEnd::Signal(9 | 15), .. });
        match self.state.as_str() {
            "PREEMPTED" => Some(End::Preempted),
            "TIMEOUT" | "DEADLINE" => Some(End::TimedOut),
            "CANCELLED" | "NODE_FAIL" | "BOOT_FAIL" | "REVOKED" if killed => Some(End::Lost),
            "OUT_OF_MEMORY" => Some(End::Failed { rank: 0, how: RankEnd::OutOfMemory }),
            _ => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase(false), Some(Phase::Ended(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let job = Job::parse("17|job-1|PENDING|Resources\n").unwrap();
        assert_eq!((job.id.as_str(), job.name.as_str()), ("17", "job-1"));
        assert_eq!(job.phase(false), Some(Phase::Pending(Some("Resources".to_owned()))));
        assert_eq!(Job::parse("nonsense"), None);
    }

    #[test]
    fn slurm_knows_reasons_that_ranks_do_not() {
        let reason =
            |state: &str, end: &End| Job::parse(&format!("1|a|{state}|None")).unwrap().reason(end);
        let failed = End::Failed { rank: 1, how: RankEnd::Exit(1) };
        let killed = End::Failed { rank: 1, how: RankEnd::Signal(15) };
        assert_eq!(reason("PREEMPTED", &failed), Some(End::Preempted));
        assert_eq!(reason("PREEMPTED", &End::Lost), Some(End::Preempted));
        assert_eq!(reason("CANCELLED", &killed), Some(End::Lost));
        assert_eq!(reason("CANCELLED", &failed), None);
        assert_eq!(reason("COMPLETED", &killed), None);
    }

    #[test]
    fn states_mean_something() {
        let phase =
            |state: &str, stop| Job::parse(&format!("1|a|{state}|None")).unwrap().phase(stop);
        let ended = |end| Some(Phase::Ended(end));
        assert_eq!(phase("PENDING", false), Some(Phase::Pending(None)));
        assert_eq!(phase("RUNNING", true), Some(Phase::Running));
        assert_eq!(phase("COMPLETING", false), None);
        // Never a success without an end of its own.
        assert_eq!(phase("COMPLETED", false), ended(End::Lost));
        assert_eq!(phase("CANCELLED", true), ended(End::Stopped));
        assert_eq!(phase("CANCELLED", false), ended(End::Lost));
        assert_eq!(phase("NODE_FAIL", false), ended(End::Lost));
        assert_eq!(phase("PREEMPTED", false), ended(End::Preempted));
        assert_eq!(phase("TIMEOUT", false), ended(End::TimedOut));
    }
}
