//! An error as the caller reads it: RFC 9457 problem JSON, the same shape everywhere.

use std::fmt;

use axum::body::Body;
use axum::response::Response;
use falaj_base::{Code, Error, ErrorKind, code};
use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the page about a code is, relative to the server, which serves it to everyone: a `type`
/// must be a URI reference.
const PAGES: &str = "/docs/errors/";

/// The body of every error reply. It holds nothing that differs between *not there* and *not
/// yours*; the request id is in the `x-request-id` header.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Names the page that explains this kind of error.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// What happened this time, in one sentence.
    pub detail: String,
    /// The stable code, for programs.
    pub code: String,
    /// The field at fault, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// The same, put together without a copy: refusals must stay cheap when there are many.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(rename = "type")]
    kind: fmt::Arguments<'a>,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

fn shown(error: &Error) -> Vec<u8> {
    let code = error.code();
    let mut text = Vec::with_capacity(256);
    // Writing into a vector does not fail, and none of this refuses to be written.
    let _ = serde_json::to_writer(
        &mut text,
        &Shown {
            kind: format_args!("{PAGES}{}", code.id),
            title: code.title,
            status: http_status(code.kind).as_u16(),
            detail: error.message(),
            code: code.id,
            field: error.field(),
        },
    );
    text
}

/// Beside an error reply: what it says, for a layer that must say it in another protocol's words.
#[derive(Clone, Debug)]
pub struct Told {
    pub code: &'static Code,
    pub message: String,
}

/// The one mapping from kinds to HTTP.
#[must_use]
pub fn http_status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::InvalidInput => StatusCode::BAD_REQUEST,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::UnsupportedMedia => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ErrorKind::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The one mapping from our codes to gRPC's numbers.
#[must_use]
pub fn grpc_code(code: &Code) -> i32 {
    if *code == code::ALREADY_EXISTS {
        return 6; // ALREADY_EXISTS
    }
    match code.kind {
        ErrorKind::InvalidInput | ErrorKind::UnsupportedMedia => 3, // INVALID_ARGUMENT
        ErrorKind::Timeout => 4,                                    // DEADLINE_EXCEEDED
        ErrorKind::NotFound => 5,                                   // NOT_FOUND
        ErrorKind::Forbidden => 7,                                  // PERMISSION_DENIED
        // RESOURCE_EXHAUSTED
        ErrorKind::TooLarge | ErrorKind::RateLimited | ErrorKind::StorageFull => 8,
        ErrorKind::Unprocessable => 9,     // FAILED_PRECONDITION
        ErrorKind::Conflict => 10,         // ABORTED
        ErrorKind::MethodNotAllowed => 12, // UNIMPLEMENTED
        ErrorKind::Internal => 13,         // INTERNAL
        ErrorKind::Unavailable => 14,      // UNAVAILABLE
        ErrorKind::Unauthenticated => 16,  // UNAUTHENTICATED
    }
}

/// Turns an error into its reply. This is where an error is handled, and so where it is logged.
#[must_use]
pub fn problem_response(error: &Error) -> Response {
    if error.kind() == ErrorKind::Internal {
        tracing::error!(code = error.code().id, "{}", error.chain());
    } else {
        tracing::debug!(code = error.code().id, "{}", error.chain());
    }
    let status = http_status(error.kind());
    let told = Told { code: error.code(), message: error.message().to_owned() };
    let mut response = Response::new(Body::from(shown(error)));
    *response.status_mut() = status;
    response.extensions_mut().insert(told);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(wait) = error.wait() {
        // Rounded up: a client that waits as told must not come too early.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers
            .append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"falaj\""));
        headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"falaj\""));
    }
    response
}
