//! The routes under `/v1/audit`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use falaj_base::{Ctx, Error, Page, PageQuery, Result, Timestamp, code};
use falaj_store::record::Decision;
use falaj_web::{Doc, Input, Ok200, Routes, problem_response};
use http::{Method, header};
use schemars::JsonSchema;
use serde::Deserialize;

use super::search::{Filter, Found};
use super::service::{AUDIT_CHECKPOINT, AUDIT_EXPORT, AUDIT_READ, Audit, ExportQuery, SearchQuery};
use super::stream::Format;

/// The routes of the audit log.
#[must_use]
pub fn routes(audit: Arc<Audit>) -> Routes<Audit> {
    let export = get(export).with_state(audit.clone());
    let checkpoint = get(checkpoint).with_state(audit.clone());
    let key = get(key).with_state(audit.clone());
    Routes::new(audit)
        .get("/v1/audit", &AUDIT_READ, "Search the audit log, newest first", search)
        .raw(Method::GET, "/v1/audit/export", &AUDIT_EXPORT, EXPORT, export)
        .raw(Method::GET, "/v1/audit/checkpoint", &AUDIT_CHECKPOINT, CHECKPOINT, checkpoint)
        .raw(Method::GET, "/v1/audit/key", &AUDIT_CHECKPOINT, KEY, key)
}

const EXPORT: Doc = Doc {
    summary: "Export the audit log as JSON lines, with the hashes that prove it",
    takes: None,
    gives: Some("application/x-ndjson"),
    status: 200,
    query: &[
        ("format", "`json`, which can be verified, or `ocsf` for a SIEM; `json` if absent"),
        ("size", "Only the first so many entries: the size of the checkpoint to verify against"),
        ("after", "Show only entries at this RFC 3339 time or later"),
        ("before", "Show only entries before this RFC 3339 time"),
        ("actor", "Show only entries of this principal, by id or name"),
        ("action", "Show only entries of this action"),
        ("resource", "Show only entries about this `kind/id`, or this kind"),
        ("tenant", "Show only entries of this tenant, by name or id"),
        ("decision", "Show only `allow` or only `deny`"),
    ],
};

const CHECKPOINT: Doc = Doc {
    summary: "Read the latest signed checkpoint of the audit log",
    takes: None,
    gives: Some("text/plain"),
    status: 200,
    query: &[TENANT],
};

const KEY: Doc = Doc {
    summary: "Read the public key that verifies the audit log's checkpoints",
    takes: None,
    gives: Some("text/plain"),
    status: 200,
    query: &[TENANT],
};

const TENANT: (&str, &str) = ("tenant", "Ask as an auditor of this tenant, by name or id");

/// The query of a search.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchParams {
    /// At this time or later.
    after: Option<Timestamp>,
    /// Before this time.
    before: Option<Timestamp>,
    /// A principal's id or name.
    #[schemars(length(max = 256))]
    actor: Option<String>,
    /// For instance `tenant:create`.
    #[schemars(length(max = 256))]
    action: Option<String>,
    /// `kind/id`, or a kind alone.
    #[schemars(length(max = 256))]
    resource: Option<String>,
    /// A tenant's name or id.
    #[schemars(length(max = 256))]
    tenant: Option<String>,
    decision: Option<Decision>,
    /// How many entries at most, 1 to 1000; 100 if absent.
    #[schemars(range(min = 1, max = 1000))]
    page_size: Option<u32>,
    /// Where the last page ended: its `next_page_token`.
    #[schemars(length(max = 512))]
    page_token: Option<String>,
}

async fn search(
    audit: Arc<Audit>,
    ctx: Ctx,
    input: Input<(), SearchParams, ()>,
) -> Result<Ok200<Page<Found>>> {
    let SearchParams { after, before, actor, action, resource, tenant, decision, .. } = input.query;
    let page = PageQuery { page_size: input.query.page_size, page_token: input.query.page_token };
    let filter = Filter { after, before, actor, action, resource, tenant: None, decision };
    audit.search(&ctx, SearchQuery { filter, tenant, page }).await.map(Ok200)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportParams {
    after: Option<Timestamp>,
    before: Option<Timestamp>,
    actor: Option<String>,
    action: Option<String>,
    resource: Option<String>,
    tenant: Option<String>,
    decision: Option<Decision>,
    #[serde(default)]
    format: Format,
    size: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantParam {
    tenant: Option<String>,
}

type Parsed<T> = Result<Query<T>, QueryRejection>;

async fn export(
    State(audit): State<Arc<Audit>>,
    Extension(ctx): Extension<Ctx>,
    query: Parsed<ExportParams>,
) -> Response {
    let answer = async {
        let ExportParams { after, before, actor, action, resource, tenant, decision, format, size } =
            parsed(query)?;
        let filter = Filter { after, before, actor, action, resource, tenant: None, decision };
        let lines = audit.export(&ctx, ExportQuery { filter, tenant, format, size }).await?;
        let media = [(header::CONTENT_TYPE, "application/x-ndjson")];
        Ok((media, Body::from_stream(lines)).into_response())
    };
    answer.await.unwrap_or_else(|error| problem_response(&error))
}

async fn checkpoint(
    State(audit): State<Arc<Audit>>,
    Extension(ctx): Extension<Ctx>,
    query: Parsed<TenantParam>,
) -> Response {
    let answer = async { audit.checkpoint(&ctx, parsed(query)?.tenant.as_deref()).await };
    text(answer.await)
}

async fn key(
    State(audit): State<Arc<Audit>>,
    Extension(ctx): Extension<Ctx>,
    query: Parsed<TenantParam>,
) -> Response {
    let answer = async { audit.public_key(&ctx, parsed(query)?.tenant.as_deref()).await };
    text(answer.await)
}

fn parsed<T>(query: Parsed<T>) -> Result<T> {
    query.map(|Query(query)| query).map_err(|rejection| {
        let why: String = rejection.body_text().chars().take(300).collect();
        Error::new(&code::INVALID_INPUT, why).at("query")
    })
}

fn text(answer: Result<String>) -> Response {
    match answer {
        // Notes hold characters beyond ASCII.
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response(),
        Err(error) => problem_response(&error),
    }
}
