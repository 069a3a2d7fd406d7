//! Traces in tables. Spans are there since MLflow 3.3; before, they lie in a file of each trace.

use std::collections::HashMap;

use super::engine::Row;
use super::{SqlStore, number, places};
use crate::error::Result;
use crate::record::{Assessment, Pairs, Trace};

/// The tag that is a trace's name, and the metadata that says of which session it is.
const NAME: &str = "mlflow.traceName";
const SESSION: &str = "mlflow.trace.session";

/// What a trace took, in all its spans: the metadata, and the columns that hold its numbers.
const TOKEN_USAGE: &str = "mlflow.trace.tokenUsage";
const TOKENS: [&str; 5] = [
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
];
const TRACE_COST: &str = "mlflow.trace.cost";
const COST: [&str; 3] = ["input_cost", "output_cost", "total_cost"];

/// Numbers by name, as JSON; nothing if there is none.
fn numbers(row: &Row, from: usize, names: &[&str]) -> Option<String> {
    let pair = |(at, name): (usize, &&str)| {
        row.opt_text(from + at).map(|number| format!("\"{name}\": {number}"))
    };
    let pairs: Vec<String> = names.iter().enumerate().filter_map(pair).collect();
    (!pairs.is_empty()).then(|| format!("{{{}}}", pairs.join(", ")))
}

/// Adds what is not there yet.
fn add(pairs: &mut Pairs, key: &str, value: Option<String>) {
    if let Some(value) = value.filter(|_| !pairs.iter().any(|(other, _)| other == key)) {
        pairs.push((key.to_owned(), value));
    }
}

impl SqlStore {
    /// How many traces an experiment has.
    pub(crate) async fn trace_count(&self, experiment: &str) -> Result<i64> {
        if !self.has("trace_info") {
            return Ok(0);
        }
        let id = number(experiment)?;
        let sql = format!("SELECT COUNT(*) FROM trace_info WHERE experiment_id = {id}");
        let rows = self.engine.query(&sql, &[]).await?;
        Ok(rows.first().and_then(|row| row.int(0)).unwrap_or_default())
    }

    pub(crate) async fn traces(
        &self,
        experiment: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Trace>> {
        if !self.has("trace_info") {
            return Ok(Vec::new());
        }
        let column = |name| self.column("trace_info", name);
        let sql = format!(
            "SELECT request_id, experiment_id, timestamp_ms, execution_time_ms, status, {client},
                 {request}, {response}, {name}, {session}, {numbers}
             FROM trace_info WHERE experiment_id = {id} AND request_id > $1
             ORDER BY request_id LIMIT {limit}",
            client = column("client_request_id"),
            request = column("request_preview"),
            response = column("response_preview"),
            name = column("trace_name"),
            session = column("session_id"),
            numbers =
                TOKENS.iter().chain(&COST).map(|name| column(name)).collect::<Vec<_>>().join(", "),
            id = number(experiment)?,
        );
        let rows = self.engine.query(&sql, &[after]).await?;
        let mut found: Vec<Trace> = rows.iter().map(trace).collect();
        if found.is_empty() {
            return Ok(found);
        }
        let ids: Vec<String> = found.iter().map(|trace| trace.id.clone()).collect();
        let mut tags = self.trace_pairs("trace_tags", &ids).await?;
        let mut metadata = self.trace_pairs("trace_request_metadata", &ids).await?;
        let mut said = self.assessments(&ids).await?;
        for (trace, row) in found.iter_mut().zip(&rows) {
            trace.tags = tags.remove(&trace.id).unwrap_or_default();
            trace.metadata = metadata.remove(&trace.id).unwrap_or_default();
            // Newer versions keep these beside the others, and show them among them.
            add(&mut trace.tags, NAME, row.opt_text(8));
            add(&mut trace.metadata, SESSION, row.opt_text(9));
            add(&mut trace.metadata, TOKEN_USAGE, numbers(row, 10, &TOKENS));
            add(&mut trace.metadata, TRACE_COST, numbers(row, 10 + TOKENS.len(), &COST));
            trace.assessments = said.remove(&trace.id).unwrap_or_default();
        }
        Ok(found)
    }

    async fn trace_pairs(&self, table: &str, ids: &[String]) -> Result<HashMap<String, Pairs>> {
        let list = places(ids.len());
        let sql = format!(
            "SELECT request_id, key, value FROM {table} WHERE request_id IN ({list}) ORDER BY key"
        );
        let values: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut found: HashMap<String, Pairs> = HashMap::new();
        for row in self.engine.query(&sql, &values).await? {
            found.entry(row.text(0)).or_default().push((row.text(1), row.text(2)));
        }
        Ok(found)
    }

    async fn assessments(&self, ids: &[String]) -> Result<HashMap<String, Vec<Assessment>>> {
        let mut found: HashMap<String, Vec<Assessment>> = HashMap::new();
        if !self.has("assessments") {
            return Ok(found);
        }
        let sql = format!(
            "SELECT trace_id, assessment_id, name, assessment_type, value, error, source_type,
                 source_id, span_id, rationale, {metadata}, overrides, valid, created_timestamp,
                 last_updated_timestamp
             FROM assessments WHERE trace_id IN ({list}) ORDER BY created_timestamp, assessment_id",
            metadata = self.column("assessments", "assessment_metadata"),
            list = places(ids.len()),
        );
        let values: Vec<&str> = ids.iter().map(String::as_str).collect();
        for row in self.engine.query(&sql, &values).await? {
            found.entry(row.text(0)).or_default().push(assessment(&row));
        }
        Ok(found)
    }

    /// Some spans of a trace as MLflow keeps them, each with its id, after one of them.
    pub(crate) async fn spans(
        &self,
        trace: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, String)>> {
        if !self.has("spans") {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT span_id, content FROM spans WHERE trace_id = $1 AND span_id > $2
             ORDER BY span_id LIMIT {limit}"
        );
        let rows = self.engine.query(&sql, &[trace, after]).await?;
        Ok(rows.iter().map(|row| (row.text(0), row.text(1))).collect())
    }
}

fn trace(row: &Row) -> Trace {
    Trace {
        id: row.text(0),
        experiment: row.text(1),
        timestamp: row.int(2).unwrap_or_default(),
        duration: row.int(3),
        state: row.text(4),
        client_request_id: row.opt_text(5),
        request_preview: row.opt_text(6),
        response_preview: row.opt_text(7),
        ..Trace::default()
    }
}

fn assessment(row: &Row) -> Assessment {
    Assessment {
        id: row.text(1),
        name: row.text(2),
        kind: row.text(3),
        value: row.text(4),
        error: row.opt_text(5),
        source_type: row.text(6),
        source_id: row.opt_text(7),
        span: row.opt_text(8),
        rationale: row.opt_text(9),
        metadata: row.opt_text(10),
        overrides: row.opt_text(11),
        valid: row.int(12) != Some(0),
        created_at: row.int(13).unwrap_or_default(),
        updated_at: row.int(14).unwrap_or_default(),
    }
}
