//! Whether a job could ever run, asked before it is taken in: a scheduler that knows nodes and quotas
//! and no jobs. Any server can ask its own.

use std::sync::PoisonError;
use std::time::Duration;

use falaj_base::{Result, Timestamp};
use falaj_scheduler::order::Fifo;
use falaj_scheduler::{Event, Scheduler, Settings};

use crate::Training;
use crate::job::millis;
use crate::pool::Pools;
use crate::queue::store as queues;
use crate::queue::tree::QueueTree;

/// How long quotas are believed that another server may have changed.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Judge {
    pub(crate) scheduler: Scheduler,
    pub(crate) tree: QueueTree,
    read_at: Timestamp,
}

impl Training {
    /// Asks the judge, with quotas as they are.
    pub(crate) async fn with_judge<T>(
        &self,
        ask: impl FnOnce(&mut Judge, &Pools) -> Result<T>,
    ) -> Result<T> {
        let now = self.db().now();
        let fresh = |judge: &Judge| now.since(judge.read_at) < FRESH && judge.read_at <= now;
        {
            let mut kept = self.judge().lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(judge) = kept.as_mut().filter(|judge| fresh(judge)) {
                return ask(judge, self.pool_list());
            }
        }
        let rows = self.db().read(queues::all).await?;
        let pools = self.pool_list();
        let mut kept = self.judge().lock().unwrap_or_else(PoisonError::into_inner);
        let judge = kept.get_or_insert_with(|| {
            let mut scheduler = Scheduler::new(Settings::default(), Box::new(Fifo::strict()));
            for node in &pools.nodes {
                scheduler.apply(0, Event::NodeUp(node.spec.clone()));
            }
            Judge { scheduler, tree: QueueTree::default(), read_at: now }
        });
        judge.read_at = now;
        for event in judge.tree.update(&rows, pools) {
            judge.scheduler.apply(millis(now), event);
        }
        ask(judge, pools)
    }

    /// Lets quotas be read anew: this server changed some.
    pub(crate) fn forget_queues(&self) {
        *self.judge().lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
