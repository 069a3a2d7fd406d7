//! The outermost edge: other spellings of a path become the one that is routed, and errors leave
//! in the words of the protocol that was spoken.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use falaj_base::Name;
use http::uri::PathAndQuery;
use http::{Method, Uri};

use crate::error::translate;

/// The project that the path itself named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPlace {
    pub tenant: Name,
    pub project: Name,
}

/// What a request was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Spoken {
    Mlflow,
    /// A HEAD request, whose reply has no body.
    MlflowsHead,
    Ours,
}

/// Rewrites the path of a request to the one that is routed.
pub fn hear(request: &mut Request) -> Spoken {
    if let Some((place, path)) = routed(request.uri()) {
        if let Some(place) = place {
            request.extensions_mut().insert(place);
        }
        *request.uri_mut() = path;
    }
    match is_mlflows(request.uri().path()) {
        true if request.method() == Method::HEAD => Spoken::MlflowsHead,
        true => Spoken::Mlflow,
        false => Spoken::Ours,
    }
}

impl Spoken {
    /// The reply in the words of the request.
    #[must_use]
    pub fn answer(self, response: Response) -> Response {
        match self {
            Self::Mlflow => translate(response),
            Self::MlflowsHead => translate(response).map(|_| Body::empty()),
            Self::Ours => response,
        }
    }
}

/// The same as a layer, around a router that stands alone.
pub async fn speak(mut request: Request, next: Next) -> Response {
    let spoken = hear(&mut request);
    spoken.answer(next.run(request).await)
}

/// Where artifacts are named by their path.
const FOLDERS: &str = "/api/2.0/mlflow-artifacts/artifacts/";

/// Whether the path belongs to MLflow's protocol.
fn is_mlflows(path: &str) -> bool {
    let rest = path.strip_prefix("/api/2.0/").or_else(|| path.strip_prefix("/api/3.0/"));
    rest.is_some_and(|rest| rest.starts_with("mlflow"))
        || matches!(
            path,
            "/get-artifact" | "/model-versions/get-artifact" | "/v1/traces" | "/graphql"
        )
        || (path.starts_with("/endpoints/") && path.ends_with("/invocations"))
}

/// The path that is routed, where it differs from the one that was asked for.
fn routed(uri: &Uri) -> Option<(Option<PathPlace>, Uri)> {
    let asked = uri.path_and_query()?.as_str();
    let whole = without_more_slashes(asked);
    let (place, rest) = match prefix(whole) {
        Some((place, rest)) => (Some(place), rest),
        None => (None, whole),
    };
    let api = match rest.strip_prefix("/ajax-api/") {
        Some(tail) => Some(format!("/api/{tail}")),
        None if place.is_some() || whole != asked => Some(rest.to_owned()),
        None => None,
    };
    // Clients name a folder of artifacts with a slash behind it, and the inference protocol writes
    // its root with one; routes have none.
    let rewritten = match api.as_deref().unwrap_or(rest).strip_suffix('/') {
        Some(folder) if folder.starts_with(FOLDERS) || folder == "/v2" => folder.to_owned(),
        _ => api?,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(rewritten.parse::<PathAndQuery>().ok()?);
    Some((place, Uri::from_parts(parts).ok()?))
}

/// A path of the protocol from its last leading slash on: MLflow's clients put together an address
/// that ends with a slash and a path that begins with one.
fn without_more_slashes(asked: &str) -> &str {
    let more = asked.bytes().take_while(|byte| *byte == b'/').count().saturating_sub(1);
    let less = asked.get(more..).unwrap_or(asked);
    let path = less.split('?').next().unwrap_or(less);
    if path.starts_with("/ajax-api/") || is_mlflows(path) { less } else { asked }
}

/// Splits `/t/acme/vision/api/…` into the place and the rest.
fn prefix(path: &str) -> Option<(PathPlace, &str)> {
    let rest = path.strip_prefix("/t/")?;
    let (tenant, rest) = rest.split_once('/')?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (project, rest) = rest.split_at(end);
    let place = PathPlace { tenant: Name::new(tenant).ok()?, project: Name::new(project).ok()? };
    rest.starts_with('/').then_some((place, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_spellings_become_the_routed_one() {
        for (asked, place, path) in [
            ("/ajax-api/2.0/mlflow/runs/get?run_id=1", None, "/api/2.0/mlflow/runs/get?run_id=1"),
            ("/t/acme/vision/api/2.0/mlflow/x", Some("acme/vision"), "/api/2.0/mlflow/x"),
            ("/t/acme/vision/ajax-api/2.0/mlflow/x", Some("acme/vision"), "/api/2.0/mlflow/x"),
            ("/t/acme/vision/health", Some("acme/vision"), "/health"),
            (
                "/api/2.0/mlflow-artifacts/artifacts/1/run/",
                None,
                "/api/2.0/mlflow-artifacts/artifacts/1/run",
            ),
            ("/v2/", None, "/v2"),
            ("//get-artifact?path=a//b", None, "/get-artifact?path=a//b"),
            ("///ajax-api/2.0/mlflow/x", None, "/api/2.0/mlflow/x"),
            ("/t/acme/vision/v2/", Some("acme/vision"), "/v2"),
        ] {
            let (found, uri) = routed(&asked.parse().unwrap()).unwrap();
            assert_eq!(uri.to_string(), path, "{asked}");
            let found = found.map(|p| format!("{}/{}", p.tenant, p.project));
            assert_eq!(found.as_deref(), place, "{asked}");
        }
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for path in [
            "/",
            "/v1/tenants",
            "//v1/tenants",
            "/api/2.0/mlflow/x",
            "/t/acme",
            "/t/A/b/api/x",
            "/t//x/y",
        ] {
            assert!(routed(&path.parse().unwrap()).is_none(), "{path}");
        }
    }
}
