//! Budgets, and what was spent of them, in the database.

use std::collections::BTreeMap;

use falaj_base::{Error, Name, ProjectId, Result, TenantId, Timestamp};
use falaj_store::db::{Row, Tx, params};
use serde::{Deserialize, Serialize};

use super::budget::{BudgetSet, Overrun};
use super::meter::{Meter, Running, millionths};
use super::period::{Month, Period, Window, parts_by_month};

/// `project` is empty where a budget is about a tenant. `told` is which shares were told, and in which
/// period. A row of `training_spent` is what ended starts of a project have cost in a month, in
/// millionths; `training_filled` says that those of before there were such rows are in them.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE training_budget (
        tenant TEXT NOT NULL, project TEXT NOT NULL, period TEXT NOT NULL, amount REAL NOT NULL,
        action TEXT NOT NULL, warn_at TEXT NOT NULL, told TEXT NOT NULL,
        updated_at INTEGER NOT NULL, updated_by TEXT NOT NULL,
        PRIMARY KEY (tenant, project, period));
    CREATE TABLE training_spent (
        project TEXT NOT NULL, month INTEGER NOT NULL, tenant TEXT NOT NULL,
        amount INTEGER NOT NULL, PRIMARY KEY (project, month));
    CREATE INDEX training_spent_tenant ON training_spent (tenant, month);
    CREATE TABLE training_filled (id INTEGER PRIMARY KEY);";

/// Budgets of all tenants that are looked at.
const MOST: usize = 1_000_000;

/// A budget as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) tenant: TenantId,
    pub(crate) project: Option<ProjectId>,
    pub(crate) period: Period,
    pub(crate) set: BudgetSet,
    pub(crate) told: String,
    pub(crate) updated_at: Timestamp,
    pub(crate) updated_by: String,
}

/// Which shares were told, and in which period.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Told {
    now: String,
    shares: Vec<u16>,
}

impl Kept {
    /// The shares that were told in a period.
    pub(crate) fn told_in(&self, window: &Window) -> Vec<u16> {
        let told: Told = serde_json::from_str(&self.told).unwrap_or_default();
        if told.now == window.label() { told.shares } else { Vec::new() }
    }
}

const COLUMNS: &str =
    "tenant, project, period, amount, action, warn_at, told, updated_at, updated_by";

fn of_project(project: Option<ProjectId>) -> String {
    project.map(|project| project.to_string()).unwrap_or_default()
}

pub(crate) fn lock(tx: &mut Tx<'_>, tenant: TenantId) -> Result<()> {
    tx.lock(&format!("training-budgets/{tenant}"))
}

pub(crate) fn all(tx: &mut Tx<'_>) -> Result<Vec<Kept>> {
    let sql = format!("SELECT {COLUMNS} FROM training_budget LIMIT $1");
    tx.query(&sql, &params![MOST])?.iter().map(read).collect()
}

/// Those of a tenant, and of one project of it.
pub(crate) fn about(tx: &mut Tx<'_>, tenant: TenantId, project: ProjectId) -> Result<Vec<Kept>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM training_budget
         WHERE tenant = $1 AND project IN ('', $2) ORDER BY project, period"
    );
    tx.query(&sql, &params![tenant, project])?.iter().map(read).collect()
}

pub(crate) fn find(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    project: Option<ProjectId>,
    period: Period,
) -> Result<Option<Kept>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM training_budget WHERE tenant = $1 AND project = $2 AND period = $3"
    );
    let row = tx.query_opt(&sql, &params![tenant, of_project(project), period.as_str()])?;
    row.as_ref().map(read).transpose()
}

pub(crate) fn put(tx: &mut Tx<'_>, kept: &Kept) -> Result<()> {
    let warn_at = serde_json::to_string(&kept.set.warn_at).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO training_budget (tenant, project, period, amount, action, warn_at, told,
             updated_at, updated_by)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (tenant, project, period) DO UPDATE SET amount = excluded.amount,
             action = excluded.action, warn_at = excluded.warn_at, told = excluded.told,
             updated_at = excluded.updated_at, updated_by = excluded.updated_by",
        &params![
            kept.tenant,
            of_project(kept.project),
            kept.period.as_str(),
            kept.set.amount,
            kept.set.action.as_str(),
            warn_at,
            &kept.told,
            kept.updated_at,
            &kept.updated_by
        ],
    )
    .map(drop)
}

pub(crate) fn delete(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    project: Option<ProjectId>,
    period: Period,
) -> Result<()> {
    tx.execute(
        "DELETE FROM training_budget WHERE tenant = $1 AND project = $2 AND period = $3",
        &params![tenant, of_project(project), period.as_str()],
    )
    .map(drop)
}

/// Forgets what there is about a project that is deleted. What it spent stays, for its tenant.
pub(crate) fn forget_project(tx: &mut Tx<'_>, project: ProjectId) -> Result<()> {
    tx.execute("DELETE FROM training_budget WHERE project = $1", &params![project]).map(drop)
}

/// Forgets what there is about tenants that are not there any more. What their jobs cost stays in
/// reports.
pub(crate) fn forget_tenants(tx: &mut Tx<'_>) -> Result<()> {
    for table in ["training_budget", "training_spent", "training_used"] {
        let sql = format!("DELETE FROM {table} WHERE tenant NOT IN (SELECT id FROM tenant)");
        tx.execute(&sql, &[])?;
    }
    Ok(())
}

/// Notes which shares of a budget were told in a period. False, and nothing is noted, if it has another
/// amount by now: that one has shares of its own.
pub(crate) fn tell(
    tx: &mut Tx<'_>,
    (tenant, project, period): (TenantId, Option<ProjectId>, Period),
    amount: i128,
    window: &Window,
    shares: Vec<u16>,
) -> Result<bool> {
    lock(tx, tenant)?;
    let kept = find(tx, tenant, project, period)?;
    if kept.is_none_or(|kept| millionths(kept.set.amount) != amount) {
        return Ok(false);
    }
    let told = Told { now: window.label(), shares };
    let told = serde_json::to_string(&told).map_err(Error::internal)?;
    tx.execute(
        "UPDATE training_budget SET told = $4 WHERE tenant = $1 AND project = $2 AND period = $3",
        &params![tenant, of_project(project), period.as_str(), told],
    )?;
    Ok(true)
}

fn read(row: &Row) -> Result<Kept> {
    let project: String = row.get("project")?;
    let project = if project.is_empty() { None } else { Some(row.get("project")?) };
    let (action, warn_at): (String, String) = (row.get("action")?, row.get("warn_at")?);
    let action = Overrun::ALL.into_iter().find(|it| it.as_str() == action).unwrap_or_default();
    Ok(Kept {
        tenant: row.get("tenant")?,
        project,
        period: Period::parse(&row.get::<String>("period")?).map_err(Error::internal)?,
        set: BudgetSet {
            amount: row.get("amount")?,
            action,
            warn_at: serde_json::from_str(&warn_at).map_err(Error::internal)?,
        },
        told: row.get("told")?,
        updated_at: row.get("updated_at")?,
        updated_by: row.get("updated_by")?,
    })
}

/// What ended starts have cost, by project and month.
#[derive(Debug, Default)]
pub(crate) struct Bill(BTreeMap<(TenantId, ProjectId, Month), i128>);

impl Bill {
    /// Adds a start that ended.
    pub(crate) fn add(
        &mut self,
        (tenant, project): (TenantId, ProjectId),
        price: u64,
        (from, to): (Timestamp, Timestamp),
    ) {
        for (month, from, to) in parts_by_month(from, to.max(from)) {
            let mut meter = Meter::whole(0);
            let start = Running { price, since: from, until: None };
            meter.begin(&start);
            meter.end(&start, to);
            *self.0.entry((tenant, project, month)).or_default() += meter.so_far(to);
        }
    }

    /// Adds all of it to what was spent, as part of the transaction that ends those starts.
    pub(crate) fn pay(self, tx: &mut Tx<'_>) -> Result<()> {
        for ((tenant, project, month), amount) in self.0 {
            let amount = i64::try_from(amount).unwrap_or(i64::MAX);
            tx.execute(
                "INSERT INTO training_spent (project, month, tenant, amount)
                 VALUES ($1, $2, $3, $4)
                 ON CONFLICT (project, month) DO UPDATE
                     SET amount = training_spent.amount + excluded.amount",
                &params![project, month, tenant, amount],
            )?;
        }
        Ok(())
    }
}

/// What ended starts have spent of a budget in a period.
pub(crate) fn spent(
    tx: &mut Tx<'_>,
    (tenant, project): (TenantId, Option<ProjectId>),
    window: &Window,
) -> Result<i128> {
    let sql = "SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) AS n FROM training_spent
               WHERE tenant = $1 AND ($2 = '' OR project = $2) AND month >= $3 AND month < $4";
    let row = tx.query_one(
        sql,
        &params![tenant, of_project(project), i64::from(window.first), i64::from(window.end)],
    )?;
    row.get::<i64>("n").map(i128::from)
}

/// What runs of a tenant, with its projects.
pub(crate) fn running(tx: &mut Tx<'_>, tenant: TenantId) -> Result<Vec<(ProjectId, Running)>> {
    let sql = "SELECT j.project AS project, a.price AS price, a.started_at AS started_at
               FROM training_attempt AS a JOIN training_job AS j ON j.id = a.job
               WHERE a.open = 2 AND j.tenant = $1 AND a.price > 0";
    let mut found = Vec::new();
    tx.scan(sql, &params![tenant], |row| {
        let start =
            Running { price: row.get("price")?, since: row.get("started_at")?, until: None };
        found.push((row.get("project")?, start));
        Ok(())
    })?;
    Ok(found)
}

/// What all ended starts of a job have cost, in millionths.
pub(crate) fn spent_by_job(tx: &mut Tx<'_>, job: crate::name::JobId) -> Result<i128> {
    let sql = "SELECT price, started_at, ended_at FROM training_attempt
               WHERE job = $1 AND ended_at IS NOT NULL";
    let mut meter = Meter::whole(0);
    tx.scan(sql, &params![job], |row| {
        let since = row.get("started_at")?;
        let start = Running { price: row.get("price")?, since, until: None };
        meter.begin(&start);
        meter.end(&start, row.get("ended_at")?);
        Ok(())
    })?;
    Ok(meter.so_far(tx.now()))
}

/// Fills in what starts cost that ended before anybody kept that, once. Nobody else may end some
/// meanwhile.
pub(crate) fn fill(tx: &mut Tx<'_>) -> Result<()> {
    if tx.query_opt("SELECT id FROM training_filled WHERE id = 1", &[])?.is_some() {
        return Ok(());
    }
    let mut bill = Bill::default();
    let sql = "SELECT j.tenant AS tenant, j.project AS project, a.price AS price,
                   a.started_at AS started_at, a.ended_at AS ended_at
               FROM training_attempt AS a JOIN training_job AS j ON j.id = a.job
               WHERE a.ended_at IS NOT NULL AND a.price > 0";
    tx.scan(sql, &[], |row| {
        let span = (row.get("started_at")?, row.get("ended_at")?);
        bill.add((row.get("tenant")?, row.get("project")?), row.get("price")?, span);
        Ok(())
    })?;
    bill.pay(tx)?;
    tx.execute("INSERT INTO training_filled (id) VALUES (1)", &[]).map(drop)
}

/// The name of a project.
pub(crate) fn name_of(tx: &mut Tx<'_>, project: ProjectId) -> Result<Option<Name>> {
    let row = tx.query_opt("SELECT name FROM project WHERE id = $1", &params![project])?;
    row.map(|row| row.get("name")).transpose()
}
