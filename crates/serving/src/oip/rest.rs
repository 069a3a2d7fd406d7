//! Predictions over REST, for whoever keeps the desk.

use axum::body::{Body, Bytes};
use axum::response::Response;
use falaj_base::{Error, Result};
use falaj_oip::scoring::{Form, Scheme};
use falaj_oip::{HEADER_LENGTH, header_length, read_http, scoring, write_http};
use falaj_web::Plain;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::desk::{Desk, Purpose};
use super::infer::{self, Of};
use crate::runtime::Ask;

const LENGTH: HeaderName = HeaderName::from_static(HEADER_LENGTH);
/// Who answered, for callers whose reply has no place to say it.
const VERSION: HeaderName = HeaderName::from_static("x-falaj-model-version");
const VARIANT: HeaderName = HeaderName::from_static("x-falaj-variant");
const PREDICTION: HeaderName = HeaderName::from_static("x-falaj-prediction-id");

/// Answers `…/infer`.
pub(super) async fn infer(
    desk: &dyn Desk,
    of: Of<'_>,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Plain> {
    // Who may ask is settled before anything of the body is read.
    let served = desk.served(of.name, Purpose::Predict).await?;
    let model = infer::shed(desk, &served, of, &body)?;
    let length =
        headers.get(&LENGTH).map(|value| header_length(value.to_str().unwrap_or_default()));
    let request = read_http(body, length.transpose()?, desk.limits())?;
    let asked = request.asked();
    let response = infer::infer(desk, &served, of, request, model).await?;
    let written = write_http(&response, &asked)?;
    let (media, beside) = match written.header_length {
        Some(length) => ("application/octet-stream", Some((LENGTH, HeaderValue::from(length)))),
        None => ("application/json", None),
    };
    Ok(Plain { media, beside, body: written.body })
}

/// Answers MLflow's `/invocations`; in the form of the question, if no other is asked for.
pub(super) async fn invocations(
    desk: &dyn Desk,
    of: Of<'_>,
    headers: &HeaderMap,
    body: Bytes,
    form: Option<Form>,
) -> Result<Response> {
    let served = desk.served(of.name, Purpose::Predict).await?;
    let chosen = infer::pick(&served, of.version, of.key)?;
    let arm = chosen.arm;
    let model = desk.fleet().model(&arm.key).await?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let scheme = Scheme { metadata: model.metadata(), columns: &arm.columns };
    let scored = scoring::read(&body, kind, scheme, desk.limits())?;
    let key = of.key.map(str::to_owned);
    let ask = Ask::new(scored.inputs);
    let answered = infer::answered(desk, &served, chosen, (ask, key), Some(model.clone())).await?;
    let form = form.unwrap_or(scored.form);
    let written = scoring::write(&answered.outputs, model.metadata(), form)?;
    let mut reply = Response::new(Body::from(written));
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let text = |text: &str| HeaderValue::from_str(text).map_err(Error::internal);
    headers.insert(VERSION, text(&arm.version)?);
    headers.insert(VARIANT, text(arm.variant.as_str())?);
    if let Some(id) = answered.id {
        headers.insert(PREDICTION, text(&id.to_string())?);
    }
    Ok(reply)
}
