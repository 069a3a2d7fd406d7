//! What is under way beside the passes.
//!
//! Must hold: it is not dropped with what is in mind. A start that is being asked for is not asked for
//! a second time, nor is its end seen to, by somebody who began anew meanwhile; no executor is asked
//! what runs while it has not answered the last time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use crate::name::{JobId, StartId};

/// What may be done at a time, of one kind, for one pool.
const AT_ONCE: usize = 8;

/// Something that is under way at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    Ask(StartId),
    Settle(StartId),
    Observe(usize),
    /// Letting the runs of a job know of its end.
    Runs(JobId),
    /// Letting what a start used become metrics of its run.
    Metrics(StartId),
}

/// What shares a number of permits: each pool has its own, so that none waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    Launch(usize),
    Tell(usize),
    Settle(usize),
    Runs,
    /// What starts use, on its way into their runs.
    Metrics,
}

#[derive(Debug, Default)]
pub(super) struct Busy {
    tasks: Mutex<HashSet<Task>>,
    permits: Mutex<HashMap<Work, Arc<Semaphore>>>,
}

impl Busy {
    /// Begins something; nothing if it is under way. It has ended when what is returned is dropped.
    pub(super) fn begin(self: &Arc<Self>, task: Task) -> Option<Begun> {
        self.tasks().insert(task).then(|| Begun { busy: self.clone(), task })
    }

    pub(super) fn is(&self, task: Task) -> bool {
        self.tasks().contains(&task)
    }

    /// How many starts have samples on their way into their runs.
    pub(super) fn logging(&self) -> usize {
        self.tasks().iter().filter(|task| matches!(task, Task::Metrics(_))).count()
    }

    pub(super) fn permits(&self, work: Work) -> Arc<Semaphore> {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        permits.entry(work).or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))).clone()
    }

    fn tasks(&self) -> MutexGuard<'_, HashSet<Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Under way until it is dropped.
#[derive(Debug)]
pub(super) struct Begun {
    busy: Arc<Busy>,
    task: Task,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.busy.tasks().remove(&self.task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_not_begun_again_before_it_has_ended() {
        let busy = Arc::new(Busy::default());
        let begun = busy.begin(Task::Observe(1)).unwrap();
        assert!(busy.is(Task::Observe(1)) && busy.begin(Task::Observe(1)).is_none());
        assert!(busy.begin(Task::Observe(2)).is_some(), "another pool is none of its business");
        drop(begun);
        assert!(busy.begin(Task::Observe(1)).is_some());
    }

    #[test]
    fn no_pool_uses_up_what_another_has() {
        let busy = Busy::default();
        let first = busy.permits(Work::Launch(0));
        let _all = first.try_acquire_many(8).unwrap();
        assert!(busy.permits(Work::Launch(0)).try_acquire().is_err());
        assert!(busy.permits(Work::Launch(1)).try_acquire().is_ok());
        assert!(busy.permits(Work::Settle(0)).try_acquire().is_ok());
    }
}
