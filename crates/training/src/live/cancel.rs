//! Cancelling: what waits is over at once, what runs is told to end.

use std::collections::HashSet;

use falaj_base::{Ctx, Result};
use falaj_scheduler::{Event, JobId as Number};
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::flight::Purpose;
use super::memory::Memory;
use super::{inbox, told};
use crate::job::store as jobs;
use crate::job::{State, millis, resource};
use crate::name::{JobId, TaskId};
use crate::{JOB_RUN, Training};

impl Training {
    pub(super) async fn cancel(&self, memory: &mut Memory, id: JobId) -> Result<()> {
        let Some(live) = memory.jobs.get(&id) else { return Ok(()) };
        let (count, first) = (live.job.tasks.count, live.first);
        let flying: HashSet<TaskId> = (live.tasks.keys().copied())
            .map(|task| TaskId { job: id, task })
            .filter(|task| memory.flight_of(*task).is_some())
            .collect();
        let now = millis(self.db().now());
        let numbers = first..first + u64::from(count);
        memory.drop_due(|number| numbers.contains(&number.0));
        for number in numbers {
            let number = Number(number);
            let flies = memory.task(number).is_some_and(|task| flying.contains(&task));
            if !flies && memory.scheduler.knows(number) {
                memory.scheduler.apply(now, Event::Cancelled(number));
            }
        }
        self.write_cancelled(memory, id, &flying).await?;
        for task in flying {
            let detail = json!({ "why": "cancelled" });
            self.end_early(memory, task, Purpose::Cancel, detail).await?;
        }
        self.after_the_job(memory, id);
        Ok(())
    }

    /// Whatever has neither ended nor a start on its way is cancelled now.
    async fn write_cancelled(
        &self,
        memory: &mut Memory,
        id: JobId,
        flying: &HashSet<TaskId>,
    ) -> Result<()> {
        let ctx = Ctx::system(super::NAME);
        let Some(live) = memory.jobs.get_mut(&id) else { return Ok(()) };
        let waiting: Vec<u32> = live.tasks.keys().copied().collect();
        let flies = |task: u32| flying.contains(&TaskId { job: id, task });
        let waiting = waiting.into_iter().filter(|task| !flies(*task));
        let mut rows = Vec::new();
        for task in waiting {
            if let Some((_, row)) = live.tasks.remove(&task) {
                rows.push((TaskId { job: id, task }, row));
            }
        }
        let tally = &mut live.job.tasks;
        let others = tally.succeeded + tally.failed + tally.lost;
        let flying = u32::try_from(flying.len()).unwrap_or(u32::MAX);
        tally.cancelled = tally.count.saturating_sub(others).saturating_sub(flying);
        let latest = if flying == 0 { State::Cancelled } else { live.job.state };
        let whole = (tally.state(latest), *tally);
        live.job.state = whole.0;
        if let Some(held) = &mut live.held {
            held.tasks.clear();
        }
        let of = resource(&live.project, &id.to_string(), false);
        ctx.authorize(&JOB_RUN, &of).await?;
        let write = move |tx: &mut Tx<'_>| {
            for (task, row) in &rows {
                jobs::put_task(tx, *task, State::Cancelled, row)?;
            }
            let reason = whole.0.is_over().then_some("it was cancelled");
            jobs::progress(tx, id, (whole.0, &whole.1), reason)?;
            if !whole.0.is_over() {
                return Ok(());
            }
            inbox::runs_are_open(tx, id)?;
            let task = TaskId { job: id, task: 0 };
            let change =
                Change::new(&JOB_RUN, &of).event("job.ended", &told(task, State::Cancelled));
            tx.record(&ctx, change)
        };
        self.commit(memory, write).await
    }
}
