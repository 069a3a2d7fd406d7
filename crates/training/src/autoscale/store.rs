//! Nodes that are there, and what pools were told to have, in the database.

use std::collections::BTreeSet;

use falaj_base::{Error, Result, Timestamp};
use falaj_store::db::{Row, Tx, params};

use super::node::{NodeRow, NodeState};
use super::plan::Last;

/// `generation` of a pool grows with what it should have; `told` is the one that its provider took.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE training_node (
        pool TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, address TEXT,
        since INTEGER NOT NULL, PRIMARY KEY (pool, name));
    CREATE TABLE training_autoscale (
        pool TEXT PRIMARY KEY, generation INTEGER NOT NULL, told INTEGER NOT NULL,
        last_up INTEGER, last_down INTEGER, accepted INTEGER, failures INTEGER NOT NULL,
        try_at INTEGER, problem TEXT);";

/// Nodes that went and of which the provider was not told yet, as JSON.
pub(crate) const REMOVED: &str = "
    ALTER TABLE training_autoscale ADD COLUMN removed TEXT NOT NULL DEFAULT '[]';";

/// Nodes that are looked at.
const MOST: usize = 1_000_000;

/// Held by whoever changes nodes of a pool.
pub(crate) fn lock(tx: &mut Tx<'_>, pool: &str) -> Result<()> {
    tx.lock(&format!("training-nodes/{pool}"))
}

pub(crate) fn all(tx: &mut Tx<'_>) -> Result<Vec<NodeRow>> {
    let sql = "SELECT pool, name, state, address, since FROM training_node
               ORDER BY pool, name LIMIT $1";
    tx.query(sql, &params![MOST])?.iter().map(read).collect()
}

pub(crate) fn find(tx: &mut Tx<'_>, pool: &str, name: &str) -> Result<Option<NodeRow>> {
    let sql = "SELECT pool, name, state, address, since FROM training_node
               WHERE pool = $1 AND name = $2";
    tx.query_opt(sql, &params![pool, name])?.as_ref().map(read).transpose()
}

pub(crate) fn put(tx: &mut Tx<'_>, row: &NodeRow) -> Result<()> {
    tx.execute(
        "INSERT INTO training_node (pool, name, state, address, since)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (pool, name) DO UPDATE SET state = excluded.state,
             address = excluded.address, since = excluded.since",
        &params![&row.pool, &row.name, row.state, row.address.as_ref(), row.since],
    )
    .map(drop)
}

pub(crate) fn delete(tx: &mut Tx<'_>, pool: &str, name: &str) -> Result<()> {
    let sql = "DELETE FROM training_node WHERE pool = $1 AND name = $2";
    tx.execute(sql, &params![pool, name]).map(drop)
}

fn read(row: &Row) -> Result<NodeRow> {
    Ok(NodeRow {
        pool: row.get("pool")?,
        name: row.get("name")?,
        state: row.get::<NodeState>("state")?,
        address: row.get("address")?,
        since: row.get("since")?,
    })
}

/// What a pool was told to have, and who knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) generation: u64,
    pub(crate) told: u64,
    pub(crate) last_up: Option<Timestamp>,
    pub(crate) last_down: Option<Timestamp>,
    /// How many nodes its provider said that there will be.
    pub(crate) accepted: Option<u64>,
    /// How often it was told in vain, when it is told again, and what it said.
    pub(crate) failures: u32,
    pub(crate) try_at: Option<Timestamp>,
    pub(crate) problem: Option<String>,
    /// Nodes that went and of which its provider was not told yet.
    pub(crate) removed: BTreeSet<String>,
}

impl Scale {
    pub(crate) fn last(&self, wanting: Option<u64>) -> Last {
        let millis = |at: Timestamp| crate::job::millis(at);
        Last { up: self.last_up.map(millis), down: self.last_down.map(millis), wanting }
    }
}

pub(crate) fn scale(tx: &mut Tx<'_>, pool: &str) -> Result<Scale> {
    let sql = "SELECT generation, told, last_up, last_down, accepted, failures, try_at, problem,
                   removed
               FROM training_autoscale WHERE pool = $1";
    let Some(row) = tx.query_opt(sql, &params![pool])? else { return Ok(Scale::default()) };
    let removed: String = row.get("removed")?;
    Ok(Scale {
        removed: serde_json::from_str(&removed).unwrap_or_default(),
        generation: row.get("generation")?,
        told: row.get("told")?,
        last_up: row.get("last_up")?,
        last_down: row.get("last_down")?,
        accepted: row.get("accepted")?,
        failures: row.get("failures")?,
        try_at: row.get("try_at")?,
        problem: row.get("problem")?,
    })
}

pub(crate) fn put_scale(tx: &mut Tx<'_>, pool: &str, scale: &Scale) -> Result<()> {
    let removed = serde_json::to_string(&scale.removed).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO training_autoscale (pool, generation, told, last_up, last_down, accepted,
             failures, try_at, problem, removed)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT (pool) DO UPDATE SET generation = excluded.generation, told = excluded.told,
             last_up = excluded.last_up, last_down = excluded.last_down,
             accepted = excluded.accepted, failures = excluded.failures,
             try_at = excluded.try_at, problem = excluded.problem, removed = excluded.removed",
        &params![
            pool,
            scale.generation,
            scale.told,
            scale.last_up,
            scale.last_down,
            scale.accepted,
            scale.failures,
            scale.try_at,
            scale.problem.as_ref(),
            removed
        ],
    )
    .map(drop)
}
