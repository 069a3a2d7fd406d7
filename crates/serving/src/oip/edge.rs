//! Errors in the protocol's words, whichever layer they come from.

use axum::body::Body;
use axum::response::Response;
use falaj_web::Told;
use http::{HeaderValue, header};

/// Whether a path belongs to the protocol's REST side.
#[must_use]
pub fn is_ours(path: &str) -> bool {
    path == "/v2" || path.starts_with("/v2/")
}

/// Says an error reply again as clients of the protocol read it; any other passes as it is.
#[must_use]
pub fn translate(response: Response) -> Response {
    let Some(told) = response.extensions().get::<Told>().cloned() else { return response };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(falaj_oip::error::body_of(&told.message)))
}
