//! Those whose time to save their work is over are stopped.

use falaj_base::{Ctx, Result};
use falaj_executors::Notice;
use falaj_store::db::Tx;
use falaj_store::record::Change;

use super::flight::Launched;
use super::memory::Memory;
use super::told;
use crate::job::store as jobs;
use crate::job::{State, resource};
use crate::name::StartId;
use crate::{JOB_RUN, Training};

impl Training {
    pub(super) async fn stop_those_due(&self, memory: &mut Memory) -> Result<()> {
        let now = self.db().now();
        let due: Vec<StartId> = memory
            .flights
            .values()
            .filter(|flight| flight.purpose.is_some() && !flight.told)
            .filter(|flight| matches!(flight.launched, Launched::Yes(_)))
            .filter(|flight| flight.saves_until.is_none_or(|until| until <= now))
            .map(|flight| flight.id)
            .collect();
        let ctx = Ctx::system(super::NAME);
        let mut rows = Vec::new();
        for id in due {
            let Some(flight) = memory.flights.get_mut(&id) else { continue };
            let (pool, purpose) = (flight.pool, flight.purpose);
            let Some(executor) = self.pool_list().list.get(pool).map(|it| it.executor.clone())
            else {
                continue;
            };
            let attempt = id.outside()?;
            let tell = move || executor.tell(&attempt, Notice::Stop);
            let told = tokio::task::spawn_blocking(tell).await;
            // Nobody to tell: observing finds out what became of it.
            flight.told = matches!(told, Ok(Ok(())));
            if !flight.told || flight.state == State::Stopping {
                continue;
            }
            flight.state = State::Stopping;
            let Some(live) = memory.jobs.get_mut(&id.task.job) else { continue };
            let Some((state, row)) = live.tasks.get_mut(&id.task.task) else { continue };
            *state = State::Stopping;
            let row = row.clone();
            live.job.state = live.job.tasks.state(State::Stopping);
            let of = resource(&live.project, &id.task.job.to_string(), false);
            ctx.authorize(&JOB_RUN, &of).await?;
            rows.push((id, purpose, row, (live.job.state, live.job.tasks), of));
        }
        if rows.is_empty() {
            return Ok(());
        }
        let write = move |tx: &mut Tx<'_>| {
            for (id, purpose, row, (whole, tally), of) in &rows {
                let purpose = purpose.map(super::flight::Purpose::as_str);
                jobs::start_is(tx, *id, State::Stopping, None, purpose)?;
                jobs::put_task(tx, id.task, State::Stopping, row)?;
                jobs::progress(tx, id.task.job, (*whole, tally), None)?;
                let change = Change::new(&JOB_RUN, of)
                    .event("job.stopping", &told(id.task, State::Stopping))
                    .detail("task", id.task.task);
                tx.record(&ctx, change)?;
            }
            Ok(())
        };
        self.commit(memory, write).await
    }
}
