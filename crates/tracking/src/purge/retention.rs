//! How long a project keeps what was deleted.

use falaj_base::{Error, ProjectId, Resource, Result, Timestamp};
use falaj_mlflow::Call;
use falaj_store::db::{Tx, params};
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{RETENTION_READ, RETENTION_WRITE, Tracking};

/// The longest retention: a century.
const MOST_DAYS: i64 = 36_500;

pub(super) const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What a project says about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Retention {
    /// Days between deletion and purge; absent means that what was deleted is kept.
    pub deleted_days: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_at: Option<Timestamp>,
}

impl Tracking {
    pub async fn retention(&self, call: &Call) -> Result<Retention> {
        call.ctx.authorize(&RETENTION_READ, &resource(call)).await?;
        let project = call.place.id;
        self.db().read(move |tx| find(tx, project)).await
    }

    /// Sets how many days what was deleted is kept; `None` keeps it.
    pub async fn set_retention(&self, call: &Call, days: Option<i64>) -> Result<Retention> {
        if let Some(days) = days.filter(|days| !(0..=MOST_DAYS).contains(days)) {
            return Err(Error::invalid("deleted_days", days, format!("0 to {MOST_DAYS}, or null")));
        }
        let resource = resource(call);
        call.ctx.authorize(&RETENTION_WRITE, &resource).await?;
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        self.db()
            .write(move |tx| {
                tx.lock(&format!("retention/{project}"))?;
                let old = find(tx, project)?;
                tx.execute("DELETE FROM retention WHERE project = $1", &params![project])?;
                if let Some(days) = days {
                    let now = tx.now();
                    tx.execute(
                        "INSERT INTO retention (project, days, set_by, set_at)
                         VALUES ($1, $2, $3, $4)",
                        &params![project, days, &ctx.principal.name, now],
                    )?;
                }
                let new = find(tx, project)?;
                let days = days.map_or_else(|| "kept".to_owned(), |days| days.to_string());
                let change = Change::new(&RETENTION_WRITE, &resource)
                    .event("retention.changed", &new)
                    .before(&old)
                    .after(&new)
                    .detail("deleted_days", days);
                tx.record(&ctx, change)?;
                Ok(new)
            })
            .await
    }
}

fn resource(call: &Call) -> Resource {
    Resource::new("retention", call.place.id, call.place.scope())
        .with(call.place.attributes())
        .shown_as(format!("{}/{}", call.place.tenant, call.place.name))
}

pub(super) fn find(tx: &mut Tx<'_>, project: ProjectId) -> Result<Retention> {
    let row = tx.query_opt(
        "SELECT days, set_by, set_at FROM retention WHERE project = $1",
        &params![project],
    )?;
    match row {
        None => Ok(Retention { deleted_days: None, set_by: None, set_at: None }),
        Some(row) => Ok(Retention {
            deleted_days: Some(row.get("days")?),
            set_by: Some(row.get("set_by")?),
            set_at: Some(row.get("set_at")?),
        }),
    }
}

/// The projects that have one, and how many days it is.
pub(super) fn all(tx: &mut Tx<'_>) -> Result<Vec<(ProjectId, i64)>> {
    let rows = tx.query("SELECT project, days FROM retention ORDER BY project", &[])?;
    rows.iter().map(|row| Ok((row.get("project")?, row.get("days")?))).collect()
}
