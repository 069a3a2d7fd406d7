//! What queues have used of late, found again from the starts that there were.
//!
//! Must hold: it is what the scheduler would have counted itself, had it been there all the time. What
//! is older than some half-lives is too little to find.

use std::collections::HashMap;

use falaj_base::{ProjectId, Result, TenantId, Timestamp};
use falaj_scheduler::{Event, HalfLife};
use falaj_store::db::{Tx, params};

use super::memory::Memory;
use crate::Training;
use crate::job::millis;
use crate::name::QueueName;

/// Half-lives after which nothing is looked for: a thousandth is left then.
const OLDEST: u64 = 10;

/// A tenant, a project and the name of a queue, empty for the project's own.
type Place = (TenantId, ProjectId, String);

impl Training {
    /// Tells the scheduler what was used before it was there.
    pub(super) async fn recall_usage(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        let half_life = self.config().fair_share.millis();
        if half_life == 0 {
            return Ok(());
        }
        let at = millis(now);
        let since = at.saturating_sub(half_life.saturating_mul(OLDEST));
        let since = i64::try_from(since).unwrap_or(i64::MAX).saturating_mul(1000);
        let since = Timestamp::from_micros(since);
        let fading = HalfLife::of(half_life);
        let used = self.db().read(move |tx| used(tx, since, fading, now)).await?;
        for ((tenant, project, queue), seconds) in used {
            let name = if queue.is_empty() { None } else { QueueName::new(queue).ok() };
            let (queue, events) = memory.tree.of_job(tenant, project, name.as_ref());
            for event in events {
                memory.scheduler.apply(at, event);
            }
            // A queue that is not there any more is nobody's.
            let Some(queue) = queue else { continue };
            memory.scheduler.apply(at, Event::Used { queue, seconds: seconds.map(whole) });
        }
        Ok(())
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sums of what a cluster has are far below 2^52"
)]
fn whole(seconds: f64) -> u64 {
    seconds.round().max(0.0) as u64
}

#[allow(clippy::cast_precision_loss, reason = "amounts are far below 2^52")]
fn used(
    tx: &mut Tx<'_>,
    since: Timestamp,
    half_life: HalfLife,
    now: Timestamp,
) -> Result<HashMap<Place, [f64; 3]>> {
    let sql = "SELECT j.tenant AS tenant, j.project AS project, j.queue AS queue, a.cpu AS cpu,
                   a.memory AS memory, a.gpu AS gpu, a.started_at AS started_at,
                   a.ended_at AS ended_at
               FROM training_attempt AS a JOIN training_job AS j ON j.id = a.job
               WHERE a.ended_at IS NULL OR a.ended_at > $1";
    let mut found: HashMap<Place, [f64; 3]> = HashMap::new();
    tx.scan(sql, &params![since], |row| {
        let ended: Option<Timestamp> = row.get("ended_at")?;
        let span = (millis(row.get("started_at")?), millis(ended.unwrap_or(now)));
        let place = (row.get("tenant")?, row.get("project")?, row.get("queue")?);
        let sums = found.entry(place).or_default();
        for (sum, column) in sums.iter_mut().zip(["cpu", "memory", "gpu"]) {
            let held = row.get::<u64>(column)? as f64;
            *sum += half_life.left_of(held, span, millis(now));
        }
        Ok(())
    })?;
    Ok(found)
}
