//! The protocol over REST.

use std::sync::Arc;

use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::{FromRequest, Path, Request};
use axum::response::Response;
use axum::routing::get;
use falaj_base::{Error, Result, code};
use falaj_mlflow::{Api, Call, Places};
use falaj_oip::describe::{read_load, read_unload};
use falaj_web::{Doc, Endpoint, Routes};
use http::{HeaderMap, Method};
use serde::Deserialize;

use super::desk::Desk;
use super::infer::Of;
use super::platform::Project;
use super::{rest, tell};
use crate::{ENDPOINT_PREDICT, ENDPOINT_READ, ENDPOINT_WRITE, Serving};

/// Keeps a caller with one variant of an endpoint.
const ROUTING_KEY: &str = "x-falaj-routing-key";

const JSON: &str = "application/json";

/// A call that only looks.
const fn look(summary: &'static str) -> Doc {
    Doc { summary, takes: None, gives: Some(JSON), status: 200, query: &[] }
}

/// A call with a body.
const fn ask(summary: &'static str) -> Doc {
    Doc { summary, takes: Some(JSON), gives: Some(JSON), status: 200, query: &[] }
}

pub(crate) fn routes(serving: &Arc<Serving>, places: &Places) -> Vec<Endpoint> {
    let health = Routes::new(serving.clone())
        .public(Method::GET, "/v2/health/live", look("Does the server run?"), get(tell::live))
        .public(Method::GET, "/v2/health/ready", look("Does it take requests?"), get(tell::ready))
        .into_endpoints();
    let api = Api::new(serving.clone(), places.clone());
    let api = ["/v2", "/v2/"].into_iter().fold(api, |api, path| {
        api.stream(Method::GET, path, &ENDPOINT_READ, look("See what the server speaks"), server)
    });
    let api =
        api.stream(Method::GET, "/v2/models", &ENDPOINT_READ, look("List models"), models).stream(
            Method::GET,
            "/v2/models/stats",
            &ENDPOINT_READ,
            look("See all statistics"),
            all_statistics,
        );
    let api = about(
        api,
        ["/v2/models/{name}", "/v2/models/{name}/versions/{version}"],
        "See what a model takes and gives",
        metadata,
    );
    let api = about(
        api,
        ["/v2/models/{name}/ready", "/v2/models/{name}/versions/{version}/ready"],
        "Does a model take requests?",
        ready,
    );
    let api = about(
        api,
        ["/v2/models/{name}/config", "/v2/models/{name}/versions/{version}/config"],
        "See how a model runs",
        config,
    );
    let api = about(
        api,
        ["/v2/models/{name}/stats", "/v2/models/{name}/versions/{version}/stats"],
        "See a model's statistics",
        statistics,
    );
    let infer_at = ["/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer"];
    let api = infer_at.into_iter().fold(api, |api, path| {
        api.stream(Method::POST, path, &ENDPOINT_PREDICT, ask("Ask a model"), infer)
    });
    let api = api
        .stream(
            Method::POST,
            "/endpoints/{name}/invocations",
            &ENDPOINT_PREDICT,
            ask("Ask a model in MLflow's words"),
            invocations,
        )
        .stream(
            Method::POST,
            "/v2/repository/index",
            &ENDPOINT_READ,
            ask("List what can be loaded"),
            index,
        )
        .stream(
            Method::POST,
            "/v2/repository/models/{name}/load",
            &ENDPOINT_WRITE,
            ask("Load a model"),
            load,
        )
        .stream(
            Method::POST,
            "/v2/repository/models/{name}/unload",
            &ENDPOINT_WRITE,
            ask("Unload a model"),
            unload,
        );
    let mut endpoints: Vec<Endpoint> = api.into();
    endpoints.extend(health);
    endpoints
}

/// The same question about a model and about one of its versions.
fn about<H, F>(
    api: Api<Serving>,
    paths: [&'static str; 2],
    summary: &'static str,
    handler: H,
) -> Api<Serving>
where
    H: Fn(Arc<Serving>, Call, Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response>> + Send,
{
    paths.into_iter().fold(api, |api, path| {
        api.stream(Method::GET, path, &ENDPOINT_READ, look(summary), handler.clone())
    })
}

/// The model that a path names.
#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    version: Option<String>,
}

impl Named {
    async fn of(request: &mut Request) -> Result<Self> {
        let Path(named) = request.extract_parts::<Path<Self>>().await.map_err(|bad| {
            Error::new(&code::INVALID_INPUT, "the path is not valid").caused_by(bad)
        })?;
        Ok(named)
    }

    fn of_with<'a>(&'a self, headers: &'a HeaderMap) -> Of<'a> {
        let key = headers.get(ROUTING_KEY).and_then(|value| value.to_str().ok());
        Of { name: &self.name, version: self.version.as_deref(), key }
    }

    fn of_model(&self) -> Of<'_> {
        Of { name: &self.name, version: self.version.as_deref(), key: None }
    }
}

async fn body(request: Request) -> Result<Bytes> {
    Bytes::from_request(request, &()).await.map_err(|rejected| {
        Error::new(&code::MALFORMED_BODY, "the body broke off").caused_by(rejected)
    })
}

async fn infer(s: Arc<Serving>, call: Call, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    let desk = Project { serving: &s, call: &call };
    let headers = std::mem::take(request.headers_mut());
    rest::infer(&desk, named.of_with(&headers), &headers, body(request).await?).await
}

async fn invocations(s: Arc<Serving>, call: Call, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    let desk = Project { serving: &s, call: &call };
    let headers = std::mem::take(request.headers_mut());
    rest::invocations(&desk, named.of_with(&headers), &headers, body(request).await?).await
}

async fn server(_: Arc<Serving>, call: Call, _: Request) -> Result<Response> {
    call.ctx.authorize(&ENDPOINT_READ, &call.place.resource()).await?;
    Ok(tell::server())
}

async fn models(s: Arc<Serving>, call: Call, _: Request) -> Result<Response> {
    tell::models(&Project { serving: &s, call: &call }).await
}

async fn all_statistics(s: Arc<Serving>, call: Call, _: Request) -> Result<Response> {
    let desk = Project { serving: &s, call: &call };
    let all = desk.all().await?;
    tell::statistics(&desk, &all, None)
}

async fn metadata(s: Arc<Serving>, call: Call, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    tell::metadata(&Project { serving: &s, call: &call }, named.of_model()).await
}

async fn ready(s: Arc<Serving>, call: Call, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    tell::model_ready(&Project { serving: &s, call: &call }, named.of_model()).await
}

async fn config(s: Arc<Serving>, call: Call, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    tell::config(&Project { serving: &s, call: &call }, named.of_model()).await
}

async fn statistics(s: Arc<Serving>, call: Call, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    let desk = Project { serving: &s, call: &call };
    let served = desk.served(&named.name, super::Purpose::Look).await?;
    tell::statistics(&desk, &[served], named.version.as_deref())
}

async fn index(s: Arc<Serving>, call: Call, request: Request) -> Result<Response> {
    let desk = Project { serving: &s, call: &call };
    tell::index(&desk, &body(request).await?).await
}

async fn load(s: Arc<Serving>, call: Call, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    read_load(&body(request).await?)?;
    Project { serving: &s, call: &call }.load(&named.name).await?;
    Ok(tell::done())
}

async fn unload(s: Arc<Serving>, call: Call, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    read_unload(&body(request).await?)?;
    Project { serving: &s, call: &call }.unload(&named.name).await?;
    Ok(tell::done())
}
