//! The newest samples, where requests and `/metrics` find them without waiting for a pass.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use falaj_base::Timestamp;
use falaj_executors::gpu::{self, Gpu, Gpus};

use super::reading::Sample;
use super::summary::Summary;
use crate::name::StartId;

/// A start as the board shows it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) tenant: String,
    pub(crate) project: String,
    pub(crate) summary: Arc<Summary>,
    pub(crate) idle_since: Option<Timestamp>,
}

impl Entry {
    pub(crate) fn last(&self) -> Option<&Sample> {
        self.summary.last.as_ref()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Board {
    starts: Mutex<BTreeMap<StartId, Entry>>,
    /// GPUs of this machine as they were read last.
    devices: Mutex<Arc<Vec<Gpu>>>,
    /// Where readings of GPUs come from; nothing if there are none.
    gpus: OnceLock<Option<Arc<dyn Gpus>>>,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<StartId, Entry>> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn show(&self, id: StartId, entry: Entry) {
        self.lock().insert(id, entry);
    }

    /// Leaves only starts that are still there.
    pub(crate) fn keep(&self, mut there: impl FnMut(&StartId) -> bool) {
        self.lock().retain(|id, _| there(id));
    }

    /// Leaves out what was read before a time: its start ended unseen, or another server looks after
    /// it by now.
    pub(crate) fn forget_before(&self, before: Timestamp) {
        self.lock().retain(|_, entry| entry.last().is_some_and(|last| last.at >= before));
    }

    pub(crate) fn of_job(&self, job: crate::name::JobId) -> Vec<(StartId, Entry)> {
        let all = self.lock();
        let own = all.iter().filter(|(id, _)| id.task.job == job);
        own.map(|(id, entry)| (*id, entry.clone())).collect()
    }

    /// Some starts, in the order of their ids, which is that of their jobs' submission.
    pub(crate) fn some(&self, most: usize) -> Vec<(StartId, Entry)> {
        self.lock().iter().take(most).map(|(id, entry)| (*id, entry.clone())).collect()
    }

    pub(crate) fn idle(&self) -> (usize, usize) {
        let all = self.lock();
        (all.len(), all.values().filter(|entry| entry.idle_since.is_some()).count())
    }

    /// Says where readings of GPUs come from; the first that is said stays.
    pub(crate) fn read_from(&self, gpus: Option<Arc<dyn Gpus>>) {
        let _ = self.gpus.set(gpus);
    }

    /// Where readings of GPUs come from: NVIDIA's library, looked for once, unless something else was
    /// said.
    pub(crate) fn gpus(&self) -> Option<Arc<dyn Gpus>> {
        let found = self.gpus.get_or_init(|| match gpu::found() {
            Ok(gpus) => {
                tracing::info!(source = gpus.source(), "reading GPUs of this machine");
                Some(gpus)
            }
            Err(why) => {
                tracing::info!(why, "no GPUs of this machine are read");
                None
            }
        });
        found.clone()
    }

    pub(crate) fn saw(&self, devices: Vec<Gpu>) {
        *self.devices.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(devices);
    }

    pub(crate) fn devices(&self) -> Arc<Vec<Gpu>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::name::{JobId, TaskId};
    use crate::telemetry::reading::Has;

    #[test]
    fn what_was_read_long_ago_is_not_shown() {
        let now: Timestamp = "2026-05-01T12:00:00Z".parse().unwrap();
        let (board, job) = (Board::default(), JobId::new());
        for (attempt, at) in [(1, now - Duration::from_secs(61)), (2, now)] {
            let mut summary = Summary::new(Has::default());
            summary.last =
                Some(serde_json::from_value(serde_json::json!({ "at": at, "gpus": [] })).unwrap());
            let id = StartId { task: TaskId { job, task: 0 }, attempt };
            let (tenant, project) = ("t".to_owned(), "p".to_owned());
            board.show(id, Entry { tenant, project, summary: Arc::new(summary), idle_since: None });
        }
        board.forget_before(now - Duration::from_mins(1));
        let left: Vec<u32> = board.some(9).iter().map(|(id, _)| id.attempt).collect();
        assert_eq!(left, [2]);
    }
}
