//! What the shim and the server leave for each other in an attempt's folder.
//!
//! These outlive processes and releases: fields are added with a default, and never change meaning.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::millis;
use crate::cgroup::Plan;
use crate::{AttemptId, End, Launch, Limits, RankEnd, Usage};

/// By the server before the shim is started: what to start, without the secrets.
pub(crate) const LAUNCH: &str = "launch.json";
/// By the shim before it starts anything.
pub(crate) const STATE: &str = "state.json";
/// By the shim at the end; by the server if there is no shim that could.
pub(crate) const EXIT: &str = "exit.json";
/// Locked by the shim, from before it is started until it is gone. The first line is the server's, written
/// once the shim is started: from then on the attempt is one that was launched. Others say what went
/// wrong in the shim itself.
pub(crate) const SHIM: &str = "shim.log";
/// A pipe through which the shim is told things, one byte each.
pub(crate) const CONTROL: &str = "control";
/// Made before the shim is told, so that one that is only starting finds out.
pub(crate) const STOP: &str = "stop";
pub(crate) const KILL: &str = "kill";
/// Where ranks start unless the launch names a folder.
pub(crate) const WORK: &str = "work";

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) attempt: String,
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) ranks: Vec<KeptRank>,
    pub(crate) limits: Limits,
    pub(crate) grace_ms: u64,
    pub(crate) gang_grace_ms: u64,
    /// Bytes of output kept for each rank.
    pub(crate) log_limit: u64,
    pub(crate) plan: Plan,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptRank {
    /// Those that it sees.
    pub(crate) gpus: Vec<u8>,
    pub(crate) env: BTreeMap<String, String>,
}

impl Kept {
    pub(crate) fn of(launch: &Launch, log_limit: u64, plan: Plan) -> Self {
        let rank = |rank: &crate::RankPlace| KeptRank {
            gpus: launch.seen_by(rank),
            env: rank.env.clone(),
        };
        Self {
            attempt: launch.attempt.as_str().to_owned(),
            name: launch.name.clone(),
            command: launch.command.clone(),
            folder: launch.folder.clone(),
            env: launch.env.clone(),
            ranks: launch.ranks.iter().map(rank).collect(),
            limits: launch.limits.clone(),
            grace_ms: millis(launch.grace),
            gang_grace_ms: millis(launch.gang_grace),
            log_limit,
            plan,
        }
    }

    pub(crate) fn attempt(&self) -> Option<AttemptId> {
        AttemptId::new(self.attempt.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) shim: i32,
    /// When the shim started, in the kernel's ticks: with the boot it tells it from one that got its id.
    pub(crate) shim_start: u64,
    pub(crate) boot: String,
    /// Milliseconds since 1970; absent while nothing was started.
    pub(crate) started: Option<u64>,
    /// One for each rank, 0 for one that could not be started.
    pub(crate) ranks: Vec<i32>,
    pub(crate) isolation: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exit {
    pub(crate) end: End,
    /// Absent for ranks whose end nobody saw.
    pub(crate) ranks: Vec<Option<RankEnd>>,
    pub(crate) started: Option<u64>,
    pub(crate) ended: u64,
    pub(crate) isolation: String,
    #[serde(default)]
    pub(crate) usage: Option<Usage>,
}

/// What the shim is told.
pub(crate) const TOLD_CHECKPOINT: u8 = b'c';
pub(crate) const TOLD_STOP: u8 = b's';
pub(crate) const TOLD_KILL: u8 = b'k';

#[cfg(test)]
mod tests {
    use super::*;

    /// A shim of an older release goes on beside a newer server.
    #[test]
    fn the_end_is_read_as_it_was_written_before() {
        let text = r#"{"end":{"failed":{"rank":2,"how":{"exit":7}}},"ranks":[{"signal":15},null,
            {"exit":7}],"started":1,"ended":2,"isolation":"cgroup-v1"}"#;
        let exit: Exit = serde_json::from_str(text).unwrap();
        assert_eq!(exit.end, End::Failed { rank: 2, how: RankEnd::Exit(7) });
        assert_eq!(exit.ranks, [Some(RankEnd::Signal(15)), None, Some(RankEnd::Exit(7))]);
        for (text, end) in [
            ("\"succeeded\"", End::Succeeded),
            ("\"timed-out\"", End::TimedOut),
            ("\"lost\"", End::Lost),
            (
                r#"{"failed":{"rank":0,"how":"out-of-memory"}}"#,
                End::Failed { rank: 0, how: RankEnd::OutOfMemory },
            ),
        ] {
            assert_eq!(serde_json::from_str::<End>(text).unwrap(), end);
        }
    }
}
