//! gRPC on the same port, behind the same layers as everything else.
//!
//! Must hold: a refusal by any layer reaches a gRPC caller as a gRPC status, mapped from the same
//! error kinds as HTTP's. Health is open; reflection, like every service, needs a credential.

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use falaj_base::error::ALL_CODES;
use falaj_base::{Code, Error, Result, code};
use falaj_web::{Problem, grpc_code};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, Limited};
use tonic::Status;
use tonic_health::ServingStatus;

use crate::http::{Access, Drain, Route, RouteKind};

/// A problem document is ours and small; this only bounds a mistake.
const MAX_PROBLEM: usize = 64 * 1024;

/// The services, and the rows they add to the route table.
pub(crate) fn services(drain: Drain) -> Result<(Router, Vec<Route>)> {
    let (reporter, health) = tonic_health::server::health_reporter();
    tokio::spawn(async move {
        drain.announced().await;
        reporter.set_service_status("", ServingStatus::NotServing).await;
    });
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(Error::internal)?;
    let router = tonic::service::Routes::new(health)
        .add_service(reflection)
        .into_axum_router()
        .reset_fallback();
    let row = |service: &str, access, kind| Route {
        method: Method::POST,
        path: format!("/{service}/{{*rest}}"),
        access,
        kind,
        large: false,
    };
    let rows = vec![
        row("grpc.health.v1.Health", Access::Public, RouteKind::Health),
        row("grpc.reflection.v1.ServerReflection", Access::Authenticated, RouteKind::Grpc),
    ];
    Ok((router, rows))
}

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    value.is_some_and(|value| value.starts_with(b"application/grpc"))
}

/// Answers a gRPC caller in gRPC's own terms, whichever layer refused.
pub(crate) async fn translate(response: Response) -> Response {
    let problem = response.headers().get(CONTENT_TYPE);
    if problem.is_some_and(|kind| kind == "application/problem+json") {
        return as_status(response).await;
    }
    response
}

async fn as_status(response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let bytes =
        Limited::new(body, MAX_PROBLEM).collect().await.map(http_body_util::Collected::to_bytes);
    let problem = bytes.ok().and_then(|bytes| serde_json::from_slice::<Problem>(&bytes).ok());
    let status = match &problem {
        Some(problem) => Status::new(grpc_code(known(&problem.code)).into(), &problem.detail),
        None => Status::internal("the server failed"),
    };
    let mut translated = status.into_http::<()>().map(|()| Body::empty());
    if let Some(wait) = parts.headers.get(RETRY_AFTER) {
        translated.headers_mut().insert(RETRY_AFTER, wait.clone());
    }
    *translated.extensions_mut() = parts.extensions;
    translated
}

fn known(id: &str) -> &'static Code {
    ALL_CODES.iter().find(|code| code.id == id).copied().unwrap_or(&code::INTERNAL)
}

#[cfg(test)]
mod tests {
    use falaj_base::ErrorKind;

    use super::*;

    #[tokio::test]
    async fn a_problem_becomes_a_status() {
        let error = Error::new(&code::OVERLOADED, "the server is at its limit")
            .retry_after(std::time::Duration::from_secs(1));
        let translated = as_status(falaj_web::problem_response(&error)).await;
        assert_eq!(translated.status(), 200);
        assert_eq!(translated.headers()["grpc-status"], "14");
        assert_eq!(translated.headers()[RETRY_AFTER], "1");
        let message = translated.headers()["grpc-message"].to_str().unwrap();
        assert!(message.contains("limit"), "{message}");
    }

    #[test]
    fn only_our_own_faults_read_as_internal() {
        for code in ALL_CODES {
            let internal = tonic::Code::from(grpc_code(code)) == tonic::Code::Internal;
            assert_eq!(internal, code.kind == ErrorKind::Internal, "{}", code.id);
        }
    }
}
