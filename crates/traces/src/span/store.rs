//! Spans in the database.

use falaj_base::{Error, Result};
use falaj_store::db::{Row, Tx, Value, params};
use prost::Message;
use serde_json::Map;
use uuid::Uuid;

use super::usage::Node;
use crate::otlp::Received;
use crate::otlp::message::Span;

/// How large the span is that is already there, if it is.
pub(crate) fn size(tx: &mut Tx<'_>, trace: Uuid, id: &[u8]) -> Result<Option<i64>> {
    let sql = "SELECT length(content) AS size FROM trace_span WHERE trace = $1 AND id = $2";
    tx.query_opt(sql, &params![key(trace), id])?.map(|row| row.get("size")).transpose()
}

/// Writes spans, each instead of an earlier one of the same id.
pub(crate) fn write(tx: &mut Tx<'_>, trace: Uuid, spans: &[Received]) -> Result<()> {
    let numbers = |numbers: &Option<Map<String, serde_json::Value>>| {
        numbers.as_ref().and_then(|numbers| serde_json::to_string(numbers).ok())
    };
    let rows = spans.iter().map(|span| {
        params![
            key(trace),
            span.id.as_slice(),
            span.parent.clone(),
            i64::try_from(span.start).unwrap_or(i64::MAX),
            numbers(&span.facts.tokens),
            numbers(&span.facts.cost),
            span.content.as_ref(),
        ]
    });
    tx.execute_many(
        "INSERT INTO trace_span (trace, id, parent, start, tokens, cost, content)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (trace, id) DO UPDATE SET parent = excluded.parent, start = excluded.start,
             tokens = excluded.tokens, cost = excluded.cost, content = excluded.content",
        rows,
    )
    .map(drop)
}

/// The numbers of all spans of a trace: tokens, and cost.
pub(crate) fn numbers(tx: &mut Tx<'_>, trace: Uuid) -> Result<(Vec<Node>, Vec<Node>)> {
    let rows = tx.query(
        "SELECT id, parent, tokens, cost FROM trace_span WHERE trace = $1",
        &params![key(trace)],
    )?;
    let node = |row: &Row, column: &str| -> Result<Node> {
        let numbers: Option<String> = row.get(column)?;
        Ok(Node {
            id: row.get("id")?,
            parent: row.get("parent")?,
            numbers: numbers.and_then(|text| serde_json::from_str(&text).ok()),
        })
    };
    let all = |column| rows.iter().map(|row| node(row, column)).collect::<Result<Vec<_>>>();
    Ok((all("tokens")?, all("cost")?))
}

/// Hands over the spans of a trace one by one: first those without a parent, then by the time they
/// began. A small span can take much memory once read, so no two are held at the same time. Gives
/// how much was read.
pub(crate) fn each_of_trace(
    tx: &mut Tx<'_>,
    trace: Uuid,
    mut visit: impl FnMut(Span) -> Result<()>,
) -> Result<usize> {
    let mut bytes = 0_usize;
    tx.scan(
        "SELECT content FROM trace_span WHERE trace = $1
         ORDER BY CASE WHEN parent IS NULL THEN 0 ELSE 1 END, start, id",
        &params![key(trace)],
        |row| {
            let content: Vec<u8> = row.get("content")?;
            bytes = bytes.saturating_add(content.len());
            visit(Span::decode(content.as_slice()).map_err(Error::internal)?)
        },
    )?;
    Ok(bytes)
}

/// How the number of a trace is kept.
pub(crate) fn key(trace: Uuid) -> Value {
    Value::Blob(trace.as_bytes().to_vec())
}
