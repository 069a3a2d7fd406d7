//! Traces in the database.

use falaj_base::{Error, ProjectId, Result};
use falaj_store::db::{Row, Tx, Value, params};
use falaj_tracking::ExperimentId;
use uuid::Uuid;

use super::id::TraceId;
use super::link::LinkKind;
use super::trace::{Pairs, Trace};
use crate::access::no_trace;
use crate::span::store::key;

const COLUMNS: &str =
    "t.no, t.project, t.id, t.experiment, e.id AS experiment_id, t.timestamp, t.duration,
    t.state, t.spans, t.size, t.client_request_id, t.request_preview, t.response_preview, t.tags,
    t.metadata";

/// A purged experiment gives its id back at once; what was in it is cleared away later.
const TABLES: &str = "trace t JOIN experiment e ON e.no = t.experiment AND e.id >= 0";

/// Whether nobody sees a trace any more.
const ORPHANED: &str =
    "NOT EXISTS (SELECT 1 FROM experiment e WHERE e.no = t.experiment AND e.id >= 0)";

/// What a trace measures, without its spans and assessments.
const WEIGHT: &str = "octet_length(t.tags) + octet_length(t.metadata)
    + COALESCE(octet_length(t.request_preview), 0) + COALESCE(octet_length(t.response_preview), 0)";

/// How many ids stand in one list of a statement.
pub(crate) const LISTED: usize = 400;

/// Where a trace lives.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) no: Uuid,
    pub(crate) id: TraceId,
    pub(crate) experiment: i64,
    pub(crate) experiment_id: ExperimentId,
}

pub(crate) fn addresses(
    tx: &mut Tx<'_>,
    project: ProjectId,
    ids: &[TraceId],
) -> Result<Vec<Address>> {
    let mut all = Vec::new();
    for ids in ids.chunks(LISTED) {
        let sql = format!(
            "SELECT t.no, t.id, t.experiment, e.id AS experiment_id FROM {TABLES}
             WHERE t.project = $1 AND t.id IN ({})",
            list(2, ids.len())
        );
        for row in tx.query(&sql, &with(project, ids))? {
            all.push(Address {
                no: number(&row, "no")?,
                id: row.get("id")?,
                experiment: row.get("experiment")?,
                experiment_id: row.get("experiment_id")?,
            });
        }
    }
    Ok(all)
}

pub(crate) fn find(tx: &mut Tx<'_>, project: ProjectId, id: &TraceId) -> Result<Option<Trace>> {
    Ok(find_all(tx, project, std::slice::from_ref(id))?.pop())
}

/// Those of the traces that there are, in no order.
pub(crate) fn find_all(tx: &mut Tx<'_>, project: ProjectId, ids: &[TraceId]) -> Result<Vec<Trace>> {
    let mut all = Vec::new();
    for ids in ids.chunks(LISTED) {
        let sql = format!(
            "SELECT {COLUMNS} FROM {TABLES} WHERE t.project = $1 AND t.id IN ({})",
            list(2, ids.len())
        );
        for row in tx.query(&sql, &with(project, ids))? {
            all.push(read(&row)?);
        }
    }
    Ok(all)
}

/// The traces with these numbers, in no order.
pub(crate) fn load(tx: &mut Tx<'_>, numbers: &[Uuid]) -> Result<Vec<Trace>> {
    let mut all = Vec::new();
    for numbers in numbers.chunks(LISTED) {
        let keys: Vec<Value> = numbers.iter().map(|no| key(*no)).collect();
        let sql = format!("SELECT {COLUMNS} FROM {TABLES} WHERE t.no IN ({})", list(1, keys.len()));
        for row in tx.query(&sql, &keys)? {
            all.push(read(&row)?);
        }
    }
    Ok(all)
}

/// What these traces measure together.
pub(crate) fn weight(tx: &mut Tx<'_>, project: ProjectId, ids: &[TraceId]) -> Result<usize> {
    let mut all = 0_usize;
    for ids in ids.chunks(LISTED) {
        let sql = format!(
            "SELECT COALESCE(SUM({WEIGHT}), 0) AS weight FROM {TABLES}
             WHERE t.project = $1 AND t.id IN ({})",
            list(2, ids.len())
        );
        let weight: usize = tx.query_one(&sql, &with(project, ids))?.get("weight")?;
        all = all.saturating_add(weight);
    }
    Ok(all)
}

/// A trace as it stands in a list: what is known before it is read.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) no: Uuid,
    pub(crate) timestamp: i64,
    pub(crate) id: String,
    pub(crate) weight: usize,
}

/// The traces of an experiment that began within a span of time, newest first, from just behind
/// `after`.
pub(crate) fn newest(
    tx: &mut Tx<'_>,
    experiment: i64,
    (from, to): (i64, i64),
    after: Option<&(i64, String)>,
    limit: usize,
) -> Result<Vec<Entry>> {
    let (timestamp, id) = after.cloned().unwrap_or((i64::MAX, String::new()));
    let sql = format!(
        "SELECT t.no, t.timestamp, t.id, {WEIGHT} AS weight FROM {TABLES}
         WHERE t.experiment = $1 AND t.timestamp >= $2 AND t.timestamp <= $3
             AND (t.timestamp < $4 OR (t.timestamp = $4 AND t.id > $5))
         ORDER BY t.timestamp DESC, t.id LIMIT $6"
    );
    let to = to.min(timestamp);
    let rows = tx.query(&sql, &params![experiment, from, to, timestamp, id, limit])?;
    let entry = |row: &Row| {
        Ok(Entry {
            no: number(row, "no")?,
            timestamp: row.get("timestamp")?,
            id: row.get("id")?,
            weight: row.get("weight")?,
        })
    };
    rows.iter().map(entry).collect()
}

/// What tells a trace from all others, and is locked by whoever changes it.
#[derive(Clone, Debug)]
pub(crate) struct Doomed {
    pub(crate) no: Uuid,
    pub(crate) project: ProjectId,
    pub(crate) id: TraceId,
}

/// The oldest traces of an experiment up to a time.
pub(crate) fn oldest(
    tx: &mut Tx<'_>,
    experiment: i64,
    until: i64,
    limit: usize,
) -> Result<Vec<Doomed>> {
    let rows = tx.query(
        "SELECT no, project, id FROM trace WHERE experiment = $1 AND timestamp <= $2
         ORDER BY timestamp, id LIMIT $3",
        &params![experiment, until, limit],
    )?;
    let doomed = |row: &Row| {
        Ok(Doomed { no: number(row, "no")?, project: row.get("project")?, id: row.get("id")? })
    };
    rows.iter().map(doomed).collect()
}

/// Some of the traces whose experiment is gone.
pub(crate) fn orphans(tx: &mut Tx<'_>, limit: usize) -> Result<Vec<Doomed>> {
    let sql = format!("SELECT DISTINCT t.experiment FROM trace t WHERE {ORPHANED}");
    let gone = tx.query(&sql, &[])?;
    let Some(first) = gone.first() else { return Ok(Vec::new()) };
    oldest(tx, first.get("experiment")?, i64::MAX, limit)
}

/// Makes room for a trace whose id one of a vanished experiment still has.
fn clear_orphan(tx: &mut Tx<'_>, project: ProjectId, id: &TraceId) -> Result<()> {
    let sql = format!("SELECT t.no FROM trace t WHERE t.project = $1 AND t.id = $2 AND {ORPHANED}");
    match tx.query_opt(&sql, &params![project, id])? {
        Some(row) => delete(tx, &[number(&row, "no")?], None).map(drop),
        None => Ok(()),
    }
}

pub(crate) fn insert(tx: &mut Tx<'_>, project: ProjectId, trace: &Trace) -> Result<()> {
    clear_orphan(tx, project, &trace.id)?;
    tx.execute(
        "INSERT INTO trace (no, project, experiment, id, timestamp, duration, state, spans, size,
             client_request_id, request_preview, response_preview, tags, metadata)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        &params![
            key(trace.no),
            project,
            trace.experiment,
            &trace.id,
            trace.timestamp,
            trace.duration,
            trace.state,
            trace.spans,
            trace.size,
            trace.client_request_id.clone(),
            trace.request_preview.clone(),
            trace.response_preview.clone(),
            text(&trace.tags)?,
            text(&trace.metadata)?,
        ],
    )
    .map(drop)
}

pub(crate) fn update(tx: &mut Tx<'_>, trace: &Trace) -> Result<()> {
    let changed = tx.execute(
        "UPDATE trace SET experiment = $2, timestamp = $3, duration = $4, state = $5, spans = $6,
             size = $7, client_request_id = $8, request_preview = $9, response_preview = $10,
             tags = $11, metadata = $12
         WHERE no = $1",
        &params![
            key(trace.no),
            trace.experiment,
            trace.timestamp,
            trace.duration,
            trace.state,
            trace.spans,
            trace.size,
            trace.client_request_id.clone(),
            trace.request_preview.clone(),
            trace.response_preview.clone(),
            text(&trace.tags)?,
            text(&trace.metadata)?,
        ],
    )?;
    if changed == 0 {
        return Err(no_trace(trace.id.as_str()));
    }
    Ok(())
}

/// Deletes traces and all that belongs to them; how many there were. The caller holds their locks,
/// so nobody adds to them meanwhile. One that has left the experiment stays.
pub(crate) fn delete(tx: &mut Tx<'_>, traces: &[Uuid], inside: Option<i64>) -> Result<u64> {
    let mut deleted = 0;
    for traces in traces.chunks(LISTED) {
        let traces = match inside {
            Some(experiment) => still_inside(tx, traces, experiment)?,
            None => traces.to_vec(),
        };
        if traces.is_empty() {
            continue;
        }
        let keys: Vec<Value> = traces.iter().map(|no| key(*no)).collect();
        let these = list(1, keys.len());
        let links = format!(
            "DELETE FROM trace_link WHERE (project, trace) IN
                 (SELECT project, id FROM trace WHERE no IN ({these}))"
        );
        tx.execute(&links, &keys)?;
        deleted += tx.execute(&format!("DELETE FROM trace WHERE no IN ({these})"), &keys)?;
        for table in ["trace_span", "trace_assessment"] {
            tx.execute(&format!("DELETE FROM {table} WHERE trace IN ({these})"), &keys)?;
        }
    }
    Ok(deleted)
}

fn still_inside(tx: &mut Tx<'_>, traces: &[Uuid], experiment: i64) -> Result<Vec<Uuid>> {
    let keys = traces.iter().map(|no| key(*no));
    let values: Vec<Value> = std::iter::once(Value::from(experiment)).chain(keys).collect();
    let these = list(2, traces.len());
    let sql = format!("SELECT no FROM trace WHERE experiment = $1 AND no IN ({these})");
    tx.query(&sql, &values)?.iter().map(|row| number(row, "no")).collect()
}

pub(crate) fn add_link(
    tx: &mut Tx<'_>,
    (project, trace): (ProjectId, &TraceId),
    kind: LinkKind,
    target: &str,
) -> Result<()> {
    tx.execute(
        "INSERT INTO trace_link (project, trace, kind, target) VALUES ($1, $2, $3, $4)
         ON CONFLICT (project, trace, kind, target) DO NOTHING",
        &params![project, trace, kind as i64, target],
    )
    .map(drop)
}

pub(crate) fn links(
    tx: &mut Tx<'_>,
    project: ProjectId,
    trace: &TraceId,
) -> Result<Vec<(i64, String)>> {
    let rows = tx.query(
        "SELECT kind, target FROM trace_link WHERE project = $1 AND trace = $2",
        &params![project, trace],
    )?;
    rows.iter().map(|row| Ok((row.get("kind")?, row.get("target")?))).collect()
}

fn with(project: ProjectId, ids: &[TraceId]) -> Vec<Value> {
    std::iter::once(Value::from(project)).chain(ids.iter().map(Value::from)).collect()
}

/// Placeholders for a list: `$2, $3, …`.
pub(crate) fn list(first: usize, count: usize) -> String {
    let names: Vec<String> = (first..first + count).map(|at| format!("${at}")).collect();
    names.join(", ")
}

pub(crate) fn number(row: &Row, column: &str) -> Result<Uuid> {
    let bytes: Vec<u8> = row.get(column)?;
    Uuid::from_slice(&bytes).map_err(Error::internal)
}

fn text(pairs: &Pairs) -> Result<String> {
    serde_json::to_string(pairs).map_err(Error::internal)
}

fn read(row: &Row) -> Result<Trace> {
    let pairs = |column: &str| -> Result<Pairs> {
        serde_json::from_str(&row.get::<String>(column)?).map_err(Error::internal)
    };
    Ok(Trace {
        no: number(row, "no")?,
        project: row.get("project")?,
        id: row.get("id")?,
        experiment: row.get("experiment")?,
        experiment_id: row.get("experiment_id")?,
        timestamp: row.get("timestamp")?,
        duration: row.get("duration")?,
        state: row.get("state")?,
        spans: row.get("spans")?,
        size: row.get("size")?,
        client_request_id: row.get("client_request_id")?,
        request_preview: row.get("request_preview")?,
        response_preview: row.get("response_preview")?,
        tags: pairs("tags")?,
        metadata: pairs("metadata")?,
    })
}
