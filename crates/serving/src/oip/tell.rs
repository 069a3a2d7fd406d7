//! What is said about models, over REST.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use falaj_base::Result;
use falaj_oip::describe::{Live, Ready, read_index};
use http::StatusCode;
use serde_json::json;

use super::about;
use super::desk::Desk;
use super::infer::Of;
use crate::live::Served;

pub(super) async fn live() -> Response {
    Json(Live { live: true }).into_response()
}

pub(super) async fn ready() -> Response {
    Json(Ready { name: None, ready: true }).into_response()
}

pub(super) fn server() -> Response {
    Json(about::server()).into_response()
}

/// `KServe`'s list of names.
pub(super) async fn models(desk: &dyn Desk) -> Result<Response> {
    let all = desk.all().await?;
    let names: Vec<&str> = all.iter().map(|served| served.name.as_str()).collect();
    Ok(Json(json!({ "models": names })).into_response())
}

/// Clients look at the status; one of `KServe` also reads the body.
pub(super) async fn model_ready(desk: &dyn Desk, of: Of<'_>) -> Result<Response> {
    let ready = about::is_ready(desk, of).await?;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(Ready { name: Some(of.name.to_owned()), ready })).into_response())
}

pub(super) async fn metadata(desk: &dyn Desk, of: Of<'_>) -> Result<Response> {
    Ok(Json(about::metadata(desk, of).await?).into_response())
}

pub(super) async fn config(desk: &dyn Desk, of: Of<'_>) -> Result<Response> {
    Ok(Json(about::config(desk, of).await?).into_response())
}

pub(super) fn statistics(
    desk: &dyn Desk,
    served: &[Arc<Served>],
    version: Option<&str>,
) -> Result<Response> {
    Ok(Json(about::statistics(desk, served, version)?).into_response())
}

pub(super) async fn index(desk: &dyn Desk, body: &[u8]) -> Result<Response> {
    let asked = read_index(body)?;
    Ok(Json(about::index(desk, asked.ready).await?).into_response())
}

/// Done, and nothing to say.
pub(super) fn done() -> Response {
    Json(json!({})).into_response()
}
