//! Errors in MLflow's words.

use axum::Json;
use axum::response::{IntoResponse, Response};
use falaj_base::{Code, Error, ErrorKind, code};
use falaj_web::{Told, http_status};
use http::{StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// The longest value repeated in a message.
const ECHO: usize = 200;

const SEE: &str = "See the API docs for more information about request parameters.";

/// A required parameter is absent.
#[must_use]
pub fn missing(parameter: &str) -> Error {
    let text = format!("Missing value for required parameter '{parameter}'. {SEE}");
    Error::new(&code::INVALID_INPUT, text).at(parameter)
}

/// A parameter has a value it cannot have.
#[must_use]
pub fn invalid(parameter: &str, value: &Value, why: &str) -> Error {
    let value: String = value.to_string().chars().take(ECHO).collect();
    let text = format!("Invalid value {value} for parameter '{parameter}' supplied: {why}. {SEE}");
    Error::new(&code::INVALID_INPUT, text).at(parameter)
}

/// A text has more characters than are kept.
#[must_use]
pub fn too_long(parameter: &str, most: usize) -> Error {
    let text = format!("'{parameter}' exceeds the maximum length of {most} characters");
    Error::new(&code::INVALID_INPUT, text).at(parameter)
}

/// A refusal in a sentence of its own.
#[must_use]
pub fn refused(message: impl Into<String>) -> Error {
    Error::new(&code::INVALID_INPUT, message)
}

/// The value of a required parameter.
pub fn required<T>(parameter: &str, value: Option<T>) -> falaj_base::Result<T> {
    value.ok_or_else(|| missing(parameter))
}

/// The text of a required parameter; the original takes an empty one for a missing one.
pub fn required_text(parameter: &str, value: Option<String>) -> falaj_base::Result<String> {
    required(parameter, value.filter(|text| !text.is_empty()))
}

/// What MLflow's clients read from an error reply.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Failure {
    pub error_code: &'static str,
    pub message: String,
}

/// Says an error reply again in MLflow's words; any other reply passes as it is.
#[must_use]
pub fn translate(response: Response) -> Response {
    let Some(told) = response.extensions().get::<Told>().cloned() else { return response };
    let (status, error_code) = meaning(told.code);
    let (mut parts, _) = response.into_parts();
    let body = Json(Failure { error_code, message: told.message }).into_response();
    parts.status = status;
    parts.headers.remove(header::CONTENT_LENGTH);
    parts
        .headers
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Response::from_parts(parts, body.into_body())
}

/// The original answers a taken name with 400, and so on: a client decides by these words whether
/// to create, to fetch or to try again.
fn meaning(code: &'static Code) -> (StatusCode, &'static str) {
    let word = match code.kind {
        _ if *code == code::ALREADY_EXISTS => {
            return (StatusCode::BAD_REQUEST, "RESOURCE_ALREADY_EXISTS");
        }
        _ if *code == code::INVALID_STATE => return (StatusCode::BAD_REQUEST, "INVALID_STATE"),
        ErrorKind::UnsupportedMedia | ErrorKind::Unprocessable => {
            return (StatusCode::BAD_REQUEST, "INVALID_PARAMETER_VALUE");
        }
        ErrorKind::InvalidInput => "INVALID_PARAMETER_VALUE",
        ErrorKind::Unauthenticated => "UNAUTHENTICATED",
        ErrorKind::Forbidden => "PERMISSION_DENIED",
        ErrorKind::NotFound => "RESOURCE_DOES_NOT_EXIST",
        ErrorKind::MethodNotAllowed => "ENDPOINT_NOT_FOUND",
        ErrorKind::Conflict => "RESOURCE_CONFLICT",
        ErrorKind::TooLarge => "BAD_REQUEST",
        ErrorKind::RateLimited => "REQUEST_LIMIT_EXCEEDED",
        ErrorKind::Unavailable | ErrorKind::Timeout => "TEMPORARILY_UNAVAILABLE",
        ErrorKind::StorageFull => "RESOURCE_EXHAUSTED",
        ErrorKind::Internal => "INTERNAL_ERROR",
    };
    (http_status(code.kind), word)
}
