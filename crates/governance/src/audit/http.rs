//! The routes under `/v1/audit`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use falaj_base::{Ctx, Error, Page, PageQuery, Result, Timestamp, code};
use falaj_store::record::Decision;
use falaj_web::{Doc, Input, Ok200, Routes, problem_response};
use http::{Method, header};
use schemars::JsonSchema;
use serde::Deserialize;

use super::search::{Filter, Found};
use super::service::{
    AUDIT_CHECKPOINT, AUDIT_EXPORT, AUDIT_READ, Audit, ExportQuery, SearchQuery,
};
use super::stream::Format;

/// The routes of the audit log.
#[must_use]
pub fn routes(audit: Arc<Audit>) -> Routes<Audit> {
    let (exporter, checkpoint, key) = (audit.clone(), audit.clone(), audit.clone());
    Routes::new(audit)
        .get("/v1/audit", &AUDIT_READ, "Search the audit log, newest first", search)
        .raw(Method::GET, "/v1/audit/export", &AUDIT_EXPORT, EXPORT, get(
            move |Extension(ctx): Extension<Ctx>, query: ParsedQuery<ExportParams>| async move {
                answer(export(&exporter, &ctx, query).await)
            },
        ))
        .raw(Method::GET, "/v1/audit/checkpoint", &AUDIT_CHECKPOINT, CHECKPOINT, get(
            move |Extension(ctx): Extension<Ctx>, query: ParsedQuery<TenantParam>| async move {
                let tenant = parsed(query).map(|query| query.tenant);
                answer(match tenant {
                    Ok(tenant) => checkpoint.checkpoint(&ctx, tenant.as_deref()).await.map(text),
                    Err(error) => Err(error),
                })
            },
        ))
        .raw(Method::GET, "/v1/audit/key", &AUDIT_CHECKPOINT, KEY, get(
            move |Extension(ctx): Extension<Ctx>, query: ParsedQuery<TenantParam>| async move {
                let tenant = parsed(query).map(|query| query.tenant);
                answer(match tenant {
                    Ok(tenant) => key.public_key(&ctx, tenant.as_deref()).await.map(text),
                    Err(error) => Err(error),
                })
            },
        ))
}
