//! What jobs cost that were deleted, by queue and day.
//!
//! Must hold: what a job cost is in its starts, or here, and never in both: it is added here in the
//! transaction that deletes them.

use std::collections::BTreeMap;

use falaj_base::{ProjectId, Result, TenantId, Timestamp};
use falaj_scheduler::model::GPU_PARTS;
use falaj_store::db::{Tx, params};

use super::money;
use crate::name::JobId;

/// Hours of what was reserved, and what they cost. A day is its number since 1970, in UTC.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE training_cost (
        project TEXT NOT NULL, queue TEXT NOT NULL, day INTEGER NOT NULL, tenant TEXT NOT NULL,
        starts INTEGER NOT NULL, core_hours REAL NOT NULL, memory_hours REAL NOT NULL,
        gpu_hours REAL NOT NULL, cost REAL NOT NULL, PRIMARY KEY (project, queue, day));
    CREATE INDEX training_job_ended ON training_job (live, ended_at);";

const DAY: i64 = 86_400_000_000;

/// What starts of one day used.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    starts: i64,
    core_hours: f64,
    memory_hours: f64,
    gpu_hours: f64,
    cost: f64,
}

pub(super) fn day_of(at: Timestamp) -> i64 {
    at.micros().div_euclid(DAY)
}

/// When a day begins.
pub(super) fn begins(day: i64) -> Timestamp {
    Timestamp::from_micros(day.saturating_mul(DAY))
}

/// A stretch of time, cut where days begin.
fn parts_by_day(
    from: Timestamp,
    to: Timestamp,
) -> impl Iterator<Item = (i64, Timestamp, Timestamp)> {
    let to = to.max(from);
    (day_of(from)..=day_of(to)).map(move |day| {
        let (start, end) = (begins(day), begins(day + 1));
        (day, from.max(start), to.min(end))
    })
}

/// Adds what a job cost to what is kept of its queue.
#[allow(clippy::cast_precision_loss, reason = "amounts are far below 2^52")]
pub(crate) fn keep(
    tx: &mut Tx<'_>,
    job: JobId,
    (tenant, project, queue): (TenantId, ProjectId, &str),
) -> Result<()> {
    let mut days: BTreeMap<i64, Used> = BTreeMap::new();
    let sql = "SELECT cpu, memory, gpu, price, started_at, ended_at FROM training_attempt
               WHERE job = $1 AND ended_at IS NOT NULL";
    tx.scan(sql, &params![job], |row| {
        let (from, to): (Timestamp, Timestamp) = (row.get("started_at")?, row.get("ended_at")?);
        days.entry(day_of(from)).or_default().starts += 1;
        for (day, from, to) in parts_by_day(from, to) {
            let hours = to.since(from).as_secs_f64() / 3600.0;
            let used = days.entry(day).or_default();
            used.core_hours += row.get::<u64>("cpu")? as f64 / 1000.0 * hours;
            used.memory_hours += row.get::<u64>("memory")? as f64 / 1024.0 * hours;
            used.gpu_hours += row.get::<u64>("gpu")? as f64 / GPU_PARTS as f64 * hours;
            used.cost += money(row.get("price")?, from, to);
        }
        Ok(())
    })?;
    for (day, used) in days {
        tx.execute(
            "INSERT INTO training_cost (project, queue, day, tenant, starts, core_hours,
                 memory_hours, gpu_hours, cost)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
             ON CONFLICT (project, queue, day) DO UPDATE SET
                 starts = training_cost.starts + excluded.starts,
                 core_hours = training_cost.core_hours + excluded.core_hours,
                 memory_hours = training_cost.memory_hours + excluded.memory_hours,
                 gpu_hours = training_cost.gpu_hours + excluded.gpu_hours,
                 cost = training_cost.cost + excluded.cost",
            &params![
                project,
                queue,
                day,
                tenant,
                used.starts,
                used.core_hours,
                used.memory_hours,
                used.gpu_hours,
                used.cost
            ],
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_cut_where_days_begin() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (from, to) = (at("2026-11-30T23:00:00Z"), at("2026-12-02T01:00:00Z"));
        let parts: Vec<_> = parts_by_day(from, to).collect();
        let hours: Vec<_> = parts.iter().map(|(_, a, b)| b.since(*a).as_secs() / 3600).collect();
        assert_eq!(hours, [1, 24, 1]);
        assert_eq!(parts_by_day(from, from).count(), 1);
    }
}
