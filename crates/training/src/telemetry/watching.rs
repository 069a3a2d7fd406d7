//! What the one who schedules has in mind of what starts use. Summaries are found again in the
//! database; samples that were not written yet are lost with it.

use std::collections::HashMap;

use falaj_base::Timestamp;
use tokio::task::JoinHandle;

use super::reading::{Reading, Sample};
use super::summary::Summary;
use crate::name::StartId;

/// Samples of one start that wait to be written at most; of more, the oldest are dropped.
pub(crate) const MOST_WAITING: usize = 240;

/// One start that is looked at.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) summary: Summary,
    pub(crate) before: Option<Reading>,
    /// Samples that are not metrics yet.
    pub(crate) waiting: Vec<Sample>,
    /// Whether its summary changed since it was written.
    pub(crate) changed: bool,
    /// Whether it was told to be idle.
    pub(crate) idle: bool,
    /// When it was last asked about.
    pub(crate) asked: Option<Timestamp>,
}

impl Watched {
    pub(crate) fn new(summary: Summary, idle: bool) -> Self {
        Self { summary, before: None, waiting: Vec::new(), changed: false, idle, asked: None }
    }

    pub(crate) fn hear(&mut self, sample: Sample) {
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.remove(0);
        }
        self.waiting.push(sample);
        self.changed = true;
    }
}

/// What executors of a pool told, when they were asked.
pub(crate) type Asking = JoinHandle<Vec<(StartId, Reading)>>;

#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Whether what was left by whoever was here before has been read.
    pub(crate) loaded: bool,
    pub(crate) asked: Option<Timestamp>,
    pub(crate) written: Option<Timestamp>,
    /// Pools that have not answered yet.
    pub(crate) asking: HashMap<usize, Asking>,
    pub(crate) starts: HashMap<StartId, Watched>,
}
