//! Assessments in the database.

use std::collections::HashMap;

use falaj_base::{Error, Result, code};
use falaj_store::db::{Row, Tx, Value, params};
use uuid::Uuid;

use super::assessment::Assessment;
use crate::config::TracesConfig;
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
    weighed(tx, trace).map(|(said, _)| said)
}

/// The same, and how much was read for it.
pub(crate) fn weighed(tx: &mut Tx<'_>, trace: Uuid) -> Result<(Vec<Assessment>, usize)> {
    let sql = "SELECT body FROM trace_assessment WHERE trace = $1 ORDER BY created_at, id";
    let (mut all, mut weight) = (Vec::new(), 0_usize);
    tx.scan(sql, &params![key(trace)], |row| {
        let body: String = row.get("body")?;
        weight += body.len();
        all.push(parse(&body)?);
        Ok(())
    })?;
    Ok((all, weight))
}

/// How much the assessments of each trace take; of those that have any.
pub(crate) fn weights(tx: &mut Tx<'_>, traces: &[Uuid]) -> Result<HashMap<Uuid, usize>> {
    let mut all = HashMap::new();
    for traces in traces.chunks(LISTED) {
        let keys: Vec<Value> = traces.iter().map(|trace| key(*trace)).collect();
        let sql = format!(
            "SELECT trace, SUM(octet_length(body)) AS weight FROM trace_assessment
             WHERE trace IN ({}) GROUP BY trace",
            list(1, keys.len())
        );
        for row in tx.query(&sql, &keys)? {
            all.insert(number(&row, "trace")?, row.get("weight")?);
        }
    }
    Ok(all)
}

/// The assessments of many traces.
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
        tx.scan(&sql, &keys, |row| {
            all.entry(number(&row, "trace")?).or_default().push(read(&row)?);
            Ok(())
        })?;
    }
    Ok(all)
}

pub(crate) fn delete(tx: &mut Tx<'_>, trace: Uuid, id: &str) -> Result<()> {
    let sql = "DELETE FROM trace_assessment WHERE trace = $1 AND id = $2";
    tx.execute(sql, &params![key(trace), id]).map(drop)
}

/// Refuses more assessments of a trace than are allowed, by number or by size.
pub(crate) fn check_room(tx: &mut Tx<'_>, trace: Uuid, limits: &TracesConfig) -> Result<()> {
    let row = tx.query_one(
        "SELECT COUNT(*) AS n, COALESCE(SUM(octet_length(body)), 0) AS size
         FROM trace_assessment WHERE trace = $1",
        &params![key(trace)],
    )?;
    let (count, size): (usize, usize) = (row.get("n")?, row.get("size")?);
    let (most, most_size) = (limits.max_assessments, limits.max_trace_assessments_size.as_usize());
    let text = if count > most {
        format!("a trace has at most {most} assessments (`traces.max_assessments`)")
    } else if size > most_size {
        format!(
            "the assessments of a trace have at most {most_size} bytes together \
             (`traces.max_trace_assessments_size`)"
        )
    } else {
        return Ok(());
    };
    Err(Error::new(&code::INVALID_INPUT, text))
}

fn read(row: &Row) -> Result<Assessment> {
    parse(&row.get::<String>("body")?)
}

fn parse(body: &str) -> Result<Assessment> {
    serde_json::from_str(body).map_err(Error::internal)
}
