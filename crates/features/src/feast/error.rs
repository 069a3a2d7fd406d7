//! Errors as Feast's clients read them: the name of a Python class, which they raise.

use axum::body::Body;
use axum::response::Response;
use falaj_base::{Error, ErrorKind};
use falaj_web::problem_response;
use http::{HeaderValue, header};
use serde_json::json;

/// What a *not found* is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum About {
    View,
    Service,
    PushSource,
}

/// The reply: a JSON string that has JSON in it.
pub(super) fn reply(error: &Error, about: About) -> Response {
    let detail = json!({
        "module": "feast.errors",
        "class": class(error, about),
        "message": error.message(),
    });
    let body = serde_json::Value::String(detail.to_string()).to_string();
    // The status, what it says about waiting, and the line in the log are those of any error.
    let mut response = problem_response(error);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.remove(header::CONTENT_LENGTH);
    response.map(|_| Body::from(body))
}

fn class(error: &Error, about: About) -> &'static str {
    match (error.kind(), about) {
        (ErrorKind::Forbidden | ErrorKind::Unauthenticated, _) => "FeastPermissionError",
        (ErrorKind::NotFound, About::View) => "FeatureViewNotFoundException",
        (ErrorKind::NotFound, About::Service) => "FeatureServiceNotFoundException",
        (ErrorKind::NotFound, About::PushSource) => "PushSourceNotFoundException",
        _ => "FeastError",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_error_is_a_string_of_json() {
        let response = reply(&Error::not_found("feature", "view x"), About::View);
        assert_eq!(response.status(), 404);
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let text: String = serde_json::from_slice(&body).unwrap();
        let detail: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(detail["module"], "feast.errors");
        assert_eq!(detail["class"], "FeatureViewNotFoundException");
        assert_eq!(detail["message"], "there is no feature \"view x\" here");
    }
}
