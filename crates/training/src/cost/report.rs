//! What was used and what it cost, added up.

use std::collections::BTreeMap;

use falaj_base::{Error, Name, Resource, Result, Scope, Timestamp};
use falaj_mlflow::Call;
use falaj_scheduler::model::GPU_PARTS;
use falaj_store::db::{Tx, params};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{kept, money};
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
    /// The tenant, the project, the queue or the job; `deleted` for all jobs and projects that were. The
    /// project's own queue has no name.
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
/// The line of what is not there any more, where lines are jobs or projects.
const DELETED: &str = "deleted";

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
    add_deleted(tx, by, (tenant, project), (from, to), &mut lines)?;
    Ok(lines.into_values().collect())
}

/// Adds what deleted jobs cost. Of a day that is only partly asked for, a part of its cost counts.
fn add_deleted(
    tx: &mut Tx<'_>,
    by: By,
    (tenant, project): (&str, &str),
    (from, to): (Timestamp, Timestamp),
    lines: &mut BTreeMap<String, CostLine>,
) -> Result<()> {
    let sql = "SELECT c.queue AS queue, c.day AS day, c.starts AS starts,
                   c.core_hours AS core_hours, c.memory_hours AS memory_hours,
                   c.gpu_hours AS gpu_hours, c.cost AS cost, COALESCE(p.name, '') AS project,
                   COALESCE(t.name, '') AS tenant
               FROM training_cost AS c LEFT JOIN project AS p ON p.id = c.project
                   LEFT JOIN tenant AS t ON t.id = c.tenant
               WHERE ($1 = '' OR c.tenant = $1) AND ($2 = '' OR c.project = $2)
                   AND c.day >= $3 AND c.day <= $4";
    let now = tx.now();
    let days = (kept::day_of(from), kept::day_of(to));
    tx.scan(sql, &params![tenant, project, days.0, days.1], |row| {
        let day: i64 = row.get("day")?;
        // Of a day that is not over, all of it was used by now.
        let (begins, ends) = (kept::begins(day), kept::begins(day + 1).min(now));
        let asked = to.min(ends).since(from.max(begins)).as_secs_f64();
        let whole = ends.since(begins).as_secs_f64().max(1e-6);
        let part = (asked / whole).clamp(0.0, 1.0);
        let key: String = match by {
            By::Tenant => row.get("tenant")?,
            By::Project => row.get("project")?,
            By::Queue => row.get("queue")?,
            By::Job => String::new(),
        };
        let key = match by {
            By::Queue => key,
            _ if key.is_empty() => DELETED.to_owned(),
            _ => key,
        };
        let line = lines.entry(key.clone()).or_default();
        line.key = key;
        if part > 0.0 {
            line.starts += row.get::<u64>("starts")?;
        }
        line.core_hours += row.get::<f64>("core_hours")? * part;
        line.memory_gib_hours += row.get::<f64>("memory_hours")? * part;
        line.gpu_hours += row.get::<f64>("gpu_hours")? * part;
        line.cost += row.get::<f64>("cost")? * part;
        Ok(())
    })
}
