//! What queues have used of late, kept in sums that fade, and told to whoever begins anew.
//!
//! Must hold: it is what the scheduler would have counted itself, had it been there all the time, whatever
//! jobs were deleted meanwhile: what a start used is added in the transaction that ends it. What a queue
//! used that is not there any more is its tenant's still.

use std::collections::{BTreeMap, HashMap};

use falaj_base::{ProjectId, Result, TenantId, Timestamp};
use falaj_scheduler::{Event, HalfLife};
use falaj_store::db::{Tx, params};

use super::memory::Memory;
use crate::Training;
use crate::job::millis;
use crate::name::QueueName;
use crate::queue::tree::QueueKey;

/// Resource-seconds of starts that have ended, as they had faded at a moment; `queue` is empty for the
/// project's own.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE training_used (
        tenant TEXT NOT NULL, project TEXT NOT NULL, queue TEXT NOT NULL, at INTEGER NOT NULL,
        cpu REAL NOT NULL, memory REAL NOT NULL, gpu REAL NOT NULL,
        PRIMARY KEY (tenant, project, queue));";

/// Half-lives after which nothing is looked for: a thousandth is left then.
const OLDEST: u64 = 10;
/// The row of `training_filled` that says that what ended before there were sums is in them.
const FILLED: i64 = 2;

/// A tenant, a project and the name of a queue, empty for the project's own.
pub(crate) type Place = (TenantId, ProjectId, String);

/// What starts that end together have used.
#[derive(Debug)]
pub(super) struct Used {
    half_life: HalfLife,
    now: Timestamp,
    sums: BTreeMap<Place, [f64; 3]>,
}

impl Used {
    pub(super) fn new(half_life: HalfLife, now: Timestamp) -> Self {
        Self { half_life, now, sums: BTreeMap::new() }
    }

    /// Adds a start that had so much between two moments.
    #[allow(clippy::cast_precision_loss, reason = "amounts are far below 2^52")]
    pub(super) fn add(&mut self, place: Place, holds: [u64; 3], span: (Timestamp, Timestamp)) {
        let span = (millis(span.0), millis(span.1));
        let sums = self.sums.entry(place).or_default();
        for (sum, held) in sums.iter_mut().zip(holds) {
            *sum += self.half_life.left_of(held as f64, span, millis(self.now));
        }
    }

    /// Adds all of it to what is kept.
    pub(super) fn keep(self, tx: &mut Tx<'_>) -> Result<()> {
        if self.half_life.is_off() {
            return Ok(());
        }
        for ((tenant, project, queue), more) in self.sums {
            let sql = "SELECT at, cpu, memory, gpu FROM training_used
                       WHERE tenant = $1 AND project = $2 AND queue = $3";
            let row = tx.query_opt(sql, &params![tenant, project, &queue])?;
            let mut sums = more;
            if let Some(row) = row {
                let at = millis(row.get("at")?);
                for (sum, column) in sums.iter_mut().zip(["cpu", "memory", "gpu"]) {
                    *sum += self.half_life.faded(row.get(column)?, at, millis(self.now));
                }
            }
            tx.execute(
                "INSERT INTO training_used (tenant, project, queue, at, cpu, memory, gpu)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)
                 ON CONFLICT (tenant, project, queue) DO UPDATE SET at = excluded.at,
                     cpu = excluded.cpu, memory = excluded.memory, gpu = excluded.gpu",
                &params![tenant, project, queue, self.now, sums[0], sums[1], sums[2]],
            )?;
        }
        Ok(())
    }
}

/// Adds up what ended before anybody kept sums, once, and forgets what has faded. Nobody else may end
/// starts meanwhile. Where nothing fades there are no sums, and they are made anew when something does.
pub(super) fn fill(tx: &mut Tx<'_>, half_life: u64) -> Result<()> {
    let fading = HalfLife::of(half_life);
    let marked = params![FILLED];
    if fading.is_off() {
        tx.execute("DELETE FROM training_filled WHERE id = $1", &marked)?;
        return tx.execute("DELETE FROM training_used", &[]).map(drop);
    }
    let (now, since) = (tx.now(), oldest(tx.now(), half_life));
    tx.execute("DELETE FROM training_used WHERE at < $1", &params![since])?;
    if tx.query_opt("SELECT id FROM training_filled WHERE id = $1", &marked)?.is_some() {
        return Ok(());
    }
    let mut used = Used::new(fading, now);
    let sql = "SELECT j.tenant AS tenant, j.project AS project, j.queue AS queue, a.cpu AS cpu,
                   a.memory AS memory, a.gpu AS gpu, a.started_at AS started_at,
                   a.ended_at AS ended_at
               FROM training_attempt AS a JOIN training_job AS j ON j.id = a.job
               WHERE a.ended_at > $1";
    tx.scan(sql, &params![since], |row| {
        let place = (row.get("tenant")?, row.get("project")?, row.get("queue")?);
        let holds = [row.get("cpu")?, row.get("memory")?, row.get("gpu")?];
        used.add(place, holds, (row.get("started_at")?, row.get("ended_at")?));
        Ok(())
    })?;
    used.keep(tx)?;
    tx.execute("INSERT INTO training_filled (id) VALUES ($1)", &marked).map(drop)
}

/// Before when nothing is looked for.
fn oldest(now: Timestamp, half_life: u64) -> Timestamp {
    let since = millis(now).saturating_sub(half_life.saturating_mul(OLDEST));
    Timestamp::from_micros(i64::try_from(since).unwrap_or(i64::MAX).saturating_mul(1000))
}

impl Training {
    pub(super) fn fading(&self) -> HalfLife {
        HalfLife::of(self.config().fair_share.millis())
    }

    /// Tells the scheduler what was used before it was there.
    pub(super) async fn recall_usage(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        let fading = self.fading();
        if fading.is_off() {
            return Ok(());
        }
        let at = millis(now);
        let used = self.db().read(move |tx| used(tx, fading, now)).await?;
        for ((tenant, project, queue), seconds) in used {
            let name = if queue.is_empty() { None } else { QueueName::new(queue).ok() };
            let (mut queue, mut events) = memory.tree.of_job(tenant, project, name.as_ref());
            if queue.is_none() {
                // It is not there any more, and its tenant is.
                events = memory.tree.of_job(tenant, project, None).1;
                queue = memory.tree.id(&QueueKey::Tenant(tenant));
            }
            for event in events {
                memory.scheduler.apply(at, event);
            }
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

/// What is left now of what was used: the sums, and what runs.
#[allow(clippy::cast_precision_loss, reason = "amounts are far below 2^52")]
fn used(tx: &mut Tx<'_>, half_life: HalfLife, now: Timestamp) -> Result<HashMap<Place, [f64; 3]>> {
    let mut found: HashMap<Place, [f64; 3]> = HashMap::new();
    let sql = "SELECT tenant, project, queue, at, cpu, memory, gpu FROM training_used";
    tx.scan(sql, &[], |row| {
        let at = millis(row.get("at")?);
        let place = (row.get("tenant")?, row.get("project")?, row.get("queue")?);
        let sums = found.entry(place).or_default();
        for (sum, column) in sums.iter_mut().zip(["cpu", "memory", "gpu"]) {
            *sum += half_life.faded(row.get(column)?, at, millis(now));
        }
        Ok(())
    })?;
    let sql = "SELECT j.tenant AS tenant, j.project AS project, j.queue AS queue, a.cpu AS cpu,
                   a.memory AS memory, a.gpu AS gpu, a.started_at AS started_at
               FROM training_attempt AS a JOIN training_job AS j ON j.id = a.job
               WHERE a.open = 2";
    tx.scan(sql, &[], |row| {
        let span = (millis(row.get("started_at")?), millis(now));
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
