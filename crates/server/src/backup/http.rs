//! `POST /v1/backup`.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::{Extension, routing};
use falaj_base::Ctx;
use falaj_web::{Doc, Routes, problem_response};
use futures::stream;
use http::{Method, header};

use super::BACKUP_CREATE;
use super::service::Backups;

const BACKUP: Doc = Doc {
    summary: "Take a backup: one encrypted stream that holds everything",
    takes: None,
    gives: Some("application/octet-stream"),
    status: 200,
    query: &[],
};

#[must_use]
pub fn routes(service: Arc<Backups>) -> Routes<Backups> {
    let backups = service.clone();
    let handler = routing::post(move |Extension(ctx): Extension<Ctx>| take(backups.clone(), ctx));
    Routes::new(service).raw(Method::POST, "/v1/backup", &BACKUP_CREATE, BACKUP, handler)
}

async fn take(backups: Arc<Backups>, ctx: Ctx) -> Response {
    match backups.take(&ctx).await {
        Ok(pieces) => {
            let bytes = stream::unfold(pieces, |mut pieces| async move {
                pieces.recv().await.map(|piece| (piece, pieces))
            });
            let headers = [(header::CONTENT_TYPE, "application/octet-stream")];
            (headers, Body::from_stream(bytes)).into_response()
        }
        Err(error) => problem_response(&error),
    }
}
