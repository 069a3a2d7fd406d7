//! What was used and what it cost, added up.

use std::collections::BTreeMap;
use std::time::Duration;

use falaj_base::{Error, Name, Resource, Result, Scope, Timestamp};
use falaj_mlflow::Call;
use falaj_scheduler::model::GPU_PARTS;
use falaj_store::db::{Tx, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::money;
use crate::name::JobId;
use crate::{COST_READ, Training};

/// What lines of a report are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Every tenant; for those who may see them all.
    Tenant,
    /// Every project of the tenant.
    Project,
    #[default]
    Queue,
    Job,
}

/// One line of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct CostLine {
    /// The tenant, the project, the queue or the job. The project's own queue has no name.
    pub key: String,
    /// The name of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub starts: u64,
    pub core_hours: f64,
    pub memory_gib_hours: f64,
    pub gpu_hours: f64,
    pub cost: f64,
}

/// Lines of a report at most; the dearest are shown.
const MOST: usize = 10_000;
/// For how long what a job has cost is believed, and of how many.
const BELIEVED: Duration = Duration::from_secs(1);
const REMEMBERED: usize = 10_000;

impl Training {
    /// What was used between two moments; starts that go on count until now.
    pub async fn costs(
        &self,
        call: &Call,
        by: By,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Vec<CostLine>> {
        let place = &call.place;
        let scope = match by {
            By::Tenant => Scope::Platform,
            By::Project => Scope::Tenant(place.tenant_id),
            By::Queue | By::Job => place.scope(),
        };
        let of = Resource::new("cost", "costs", scope).with(place.attributes());
        call.ctx.authorize(&COST_READ, &of).await?;
        let now = self.db().now();
        let (from, to) = (from.unwrap_or(Timestamp::from_micros(0)), to.unwrap_or(now));
        if from > to {
            return Err(Error::invalid("from", from, format!("no later than `to`, {to}")));
        }
        if from > now {
            return Ok(Vec::new());
        }
        let (tenant, project) = match by {
            By::Tenant => (String::new(), String::new()),
            By::Project => (place.tenant_id.to_string(), String::new()),
            By::Queue | By::Job => (place.tenant_id.to_string(), place.id.to_string()),
        };
        let read = move |tx: &mut Tx<'_>| add_up(tx, by, (&tenant, &project), (from, to.min(now)));
        let mut lines = self.db().read(read).await?;
        lines.sort_by(|a, b| b.cost.total_cmp(&a.cost).then_with(|| a.key.cmp(&b.key)));
        lines.truncate(MOST);
        Ok(lines)
    }

    /// What all starts of a job have cost so far. All its tasks ask for it, so it is added up once in a
    /// while.
    pub(crate) async fn cost_of(&self, job: JobId) -> Result<f64> {
        let now = self.db().now();
        let fresh = |known: &(Timestamp, f64)| now.since(known.0) < BELIEVED && known.0 <= now;
        if let Some((_, cost)) = self.spent().get(&job).copied().filter(fresh) {
            return Ok(cost);
        }
        let cost = self.db().read(move |tx| spent(tx, job)).await?;
        let mut all = self.spent();
        if all.len() >= REMEMBERED {
            all.retain(|_, known| fresh(known));
        }
        all.insert(job, (now, cost));
        Ok(cost)
    }
}

/// What all starts of a job have cost so far.
pub(crate) fn spent(tx: &mut Tx<'_>, job: JobId) -> Result<f64> {
    let now = tx.now();
    let mut sum = 0.0;
    let sql = "SELECT price, started_at, ended_at FROM training_attempt WHERE job = $1";
    tx.scan(sql, &params![job], |row| {
        let ended: Option<Timestamp> = row.get("ended_at")?;
        sum += money(row.get("price")?, row.get("started_at")?, ended.unwrap_or(now));
        Ok(())
    })?;
    Ok(sum)
}

#[allow(clippy::cast_precision_loss, reason = "amounts are far below 2^52")]
fn add_up(
    tx: &mut Tx<'_>,
    by: By,
    (tenant, project): (&str, &str),
    (from, to): (Timestamp, Timestamp),
) -> Result<Vec<CostLine>> {
    let sql = "SELECT j.id AS job, j.name AS name, j.queue AS queue, p.name AS project,
                   t.name AS tenant, a.cpu AS cpu, a.memory AS memory, a.gpu AS gpu,
                   a.price AS price, a.started_at AS started_at, a.ended_at AS ended_at
               FROM training_attempt AS a JOIN training_job AS j ON j.id = a.job
                   JOIN project AS p ON p.id = j.project JOIN tenant AS t ON t.id = p.tenant
               WHERE ($1 = '' OR j.tenant = $1) AND ($2 = '' OR j.project = $2)
                   AND a.started_at < $4 AND (a.ended_at IS NULL OR a.ended_at > $3)";
    let mut lines: BTreeMap<String, CostLine> = BTreeMap::new();
    tx.scan(sql, &params![tenant, project, from, to], |row| {
        let ended: Option<Timestamp> = row.get("ended_at")?;
        let start = row.get::<Timestamp>("started_at")?.max(from);
        let end = ended.unwrap_or(to).min(to);
        let hours = end.since(start).as_secs_f64() / 3600.0;
        let key: String = match by {
            By::Tenant => row.get::<Name>("tenant")?.to_string(),
            By::Project => row.get::<Name>("project")?.to_string(),
            By::Queue => row.get("queue")?,
            By::Job => row.get("job")?,
        };
        let name = if by == By::Job { Some(row.get("name")?) } else { None };
        let line = lines.entry(key.clone()).or_default();
        line.key = key;
        line.name = name;
        line.starts += 1;
        line.core_hours += row.get::<u64>("cpu")? as f64 / 1000.0 * hours;
        line.memory_gib_hours += row.get::<u64>("memory")? as f64 / 1024.0 * hours;
        line.gpu_hours += row.get::<u64>("gpu")? as f64 / GPU_PARTS as f64 * hours;
        line.cost += money(row.get("price")?, start, end);
        Ok(())
    })?;
    Ok(lines.into_values().collect())
}
