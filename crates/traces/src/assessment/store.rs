//! Assessments in the database.

use std::collections::HashMap;

use falaj_base::{Error, Result, code};
use falaj_store::db::{Row, Tx, Value, params};
use uuid::Uuid;

use super::assessment::Assessment;
use crate::span::store::key;
use crate::trace::store::{LISTED, list, number};

/// Writes an assessment, instead of an earlier one of the same id.
pub(crate) fn put(tx: &mut Tx<'_>, trace: Uuid, assessment: &Assessment) -> Result<()> {
    let body = serde_json::to_string(assessment).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO trace_assessment (trace, id, created_at, body) VALUES ($1, $2, $3, $4)
         ON CONFLICT (trace, id) DO UPDATE SET created_at = excluded.created_at,
             body = excluded.body",
        &params![key(trace), &assessment.id, assessment.created_at, body],
    )
    .map(drop)
}

pub(crate) fn find(tx: &mut Tx<'_>, trace: Uuid, id: &str) -> Result<Option<Assessment>> {
    let sql = "SELECT body FROM trace_assessment WHERE trace = $1 AND id = $2";
    tx.query_opt(sql, &params![key(trace), id])?.as_ref().map(read).transpose()
}

/// All of a trace, the oldest first.
pub(crate) fn of_trace(tx: &mut Tx<'_>, trace: Uuid) -> Result<Vec<Assessment>> {
    let rows = tx.query(
        "SELECT body FROM trace_assessment WHERE trace = $1 ORDER BY created_at, id",
        &params![key(trace)],
    )?;
    rows.iter().map(read).collect()
}

/// The same of many traces.
pub(crate) fn of_traces(
    tx: &mut Tx<'_>,
    traces: &[Uuid],
) -> Result<HashMap<Uuid, Vec<Assessment>>> {
    let mut all: HashMap<Uuid, Vec<Assessment>> = HashMap::new();
    for traces in traces.chunks(LISTED) {
        let keys: Vec<Value> = traces.iter().map(|trace| key(*trace)).collect();
        let sql = format!(
            "SELECT trace, body FROM trace_assessment WHERE trace IN ({}) ORDER BY created_at, id",
            list(1, keys.len())
        );
        for row in tx.query(&sql, &keys)? {
            all.entry(number(&row, "trace")?).or_default().push(read(&row)?);
        }
    }
    Ok(all)
}

pub(crate) fn delete(tx: &mut Tx<'_>, trace: Uuid, id: &str) -> Result<()> {
    let sql = "DELETE FROM trace_assessment WHERE trace = $1 AND id = $2";
    tx.execute(sql, &params![key(trace), id]).map(drop)
}

pub(crate) fn check_count(tx: &mut Tx<'_>, trace: Uuid, most: usize) -> Result<()> {
    let sql = "SELECT COUNT(*) AS n FROM trace_assessment WHERE trace = $1";
    let count: usize = tx.query_one(sql, &params![key(trace)])?.get("n")?;
    if count <= most {
        return Ok(());
    }
    let text = format!("a trace has at most {most} assessments (`traces.max_assessments`)");
    Err(Error::new(&code::INVALID_INPUT, text))
}

fn read(row: &Row) -> Result<Assessment> {
    serde_json::from_str(&row.get::<String>("body")?).map_err(Error::internal)
}
