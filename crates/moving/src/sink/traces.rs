//! Traces on their way into a database. Their spans lie in files.

use rusqlite::{Transaction, params};

use super::Database;
use crate::error::Result;
use crate::record::{Assessment, Trace};

impl Database {
    /// Writes a trace, in place of what was there of it.
    pub fn put_trace(&mut self, trace: &Trace) -> Result<()> {
        self.change(|tx| {
            for (table, column) in [
                ("assessments", "trace_id"),
                ("trace_request_metadata", "request_id"),
                ("trace_tags", "request_id"),
                ("trace_info", "request_id"),
            ] {
                tx.execute(&format!("DELETE FROM {table} WHERE {column} = ?1"), [&trace.id])?;
            }
            tx.execute(
                "INSERT INTO trace_info (request_id, experiment_id, timestamp_ms,
                     execution_time_ms, status, client_request_id, request_preview,
                     response_preview) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![
                    trace.id,
                    trace.experiment.parse::<i64>().unwrap_or_default(),
                    trace.timestamp,
                    trace.duration,
                    trace.state,
                    trace.client_request_id,
                    trace.request_preview,
                    trace.response_preview,
                ],
            )?;
            for (table, pairs) in
                [("trace_tags", &trace.tags), ("trace_request_metadata", &trace.metadata)]
            {
                let sql =
                    format!("INSERT INTO {table} (request_id, key, value) VALUES (?1, ?2, ?3)");
                for (key, value) in pairs {
                    tx.execute(&sql, params![trace.id, key, value])?;
                }
            }
            trace.assessments.iter().try_for_each(|one| write_assessment(tx, &trace.id, one))
        })
    }
}

fn write_assessment(tx: &Transaction<'_>, trace: &str, one: &Assessment) -> rusqlite::Result<()> {
    tx.execute(
        "INSERT INTO assessments (assessment_id, trace_id, name, assessment_type, value, error,
             created_timestamp, last_updated_timestamp, source_type, source_id, span_id, rationale,
             overrides, valid, assessment_metadata)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        params![
            one.id,
            trace,
            one.name,
            one.kind,
            one.value,
            one.error,
            one.created_at,
            one.updated_at,
            one.source_type,
            one.source_id,
            one.span,
            one.rationale,
            one.overrides,
            one.valid,
            one.metadata,
        ],
    )
    .map(drop)
}
