//! The protocol over REST.

use std::sync::Arc;

use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::{FromRequest, Path, Request};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, get, on};
use falaj_base::{Action, Error, Result, code};
use falaj_oip::describe::{read_load, read_unload};
use falaj_oip::scoring::Form;
use falaj_web::{Doc, problem_response};
use http::request::Parts;
use http::{HeaderMap, Method};
use serde::Deserialize;

use super::desk::{Desk, Opening, Purpose};
use super::infer::Of;
use super::table::{Kind, Row};
use super::{rest, tell};
use crate::{ENDPOINT_PREDICT, ENDPOINT_READ, ENDPOINT_WRITE};

/// Keeps a caller with one variant of an endpoint.
const ROUTING_KEY: &str = "x-falaj-routing-key";

/// What follows the name of a model in a call of the protocol's first version.
const PREDICT: &str = ":predict";

const JSON: &str = "application/json";

/// How a model is asked most of the time; what stands around the name of the model in it.
pub(super) const INFER: &str = "/v2/models/{name}/infer";
const AROUND_NAME: (&str, &str) = ("/v2/models/", "/infer");

const fn doc(summary: &'static str, takes: Option<&'static str>) -> Doc {
    Doc { summary, takes, gives: Some(JSON), status: 200, query: &[] }
}

pub(super) fn rows(open: &Opening) -> Vec<Row> {
    let health = |path, summary, handler| Row {
        method: Method::GET,
        path,
        kind: Kind::Public(doc(summary, None)),
        handler,
    };
    let mut rows = vec![
        health("/v2/health/live", "Does the server run?", get(tell::live)),
        health("/v2/health/ready", "Does it take requests?", get(tell::ready)),
    ];
    macro_rules! look {
        ($summary:literal, $handler:ident: $($path:literal),*) => {
            $(rows.push(row(open, Method::GET, $path, &ENDPOINT_READ, $summary, $handler));)*
        };
    }
    look!("See what the server speaks", server: "/v2", "/v2/");
    look!("List models", models: "/v2/models");
    look!("See the statistics of all models", all_statistics: "/v2/models/stats");
    look!("See what a model takes and gives", metadata:
        "/v2/models/{name}", "/v2/models/{name}/versions/{version}");
    look!("Does a model take requests?", ready:
        "/v2/models/{name}/ready", "/v2/models/{name}/versions/{version}/ready");
    look!("See how a model runs", config:
        "/v2/models/{name}/config", "/v2/models/{name}/versions/{version}/config");
    look!("See how a model did", statistics:
        "/v2/models/{name}/stats", "/v2/models/{name}/versions/{version}/stats");
    macro_rules! ask {
        ($action:ident, $summary:literal, $handler:ident: $($path:expr),*) => {
            $(rows.push(row(open, Method::POST, $path, &$action, $summary, $handler));)*
        };
    }
    ask!(ENDPOINT_PREDICT, "Ask a model", infer:
        INFER, "/v2/models/{name}/versions/{version}/infer");
    ask!(ENDPOINT_PREDICT, "Ask a model in MLflow's words", invocations:
        "/endpoints/{name}/invocations");
    ask!(ENDPOINT_PREDICT, "Ask a model in the words of the protocol's first version", predict:
        "/v1/models/{name}");
    ask!(ENDPOINT_READ, "List what can be loaded", index: "/v2/repository/index");
    ask!(ENDPOINT_WRITE, "Load a model", load: "/v2/repository/models/{name}/load");
    ask!(ENDPOINT_WRITE, "Unload a model", unload: "/v2/repository/models/{name}/unload");
    rows
}

fn row<H, F>(
    open: &Opening,
    method: Method,
    path: &'static str,
    action: &'static Action,
    summary: &'static str,
    handler: H,
) -> Row
where
    H: Fn(Arc<dyn Desk>, Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response>> + Send + 'static,
{
    let takes = (method == Method::POST).then_some(JSON);
    let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
    let handler = answering(filter, open.clone(), handler);
    Row { method, path, kind: Kind::Rest(action, doc(summary, takes)), handler }
}

fn answering<H, F>(filter: MethodFilter, open: Opening, handler: H) -> MethodRouter
where
    H: Fn(Arc<dyn Desk>, Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response>> + Send + 'static,
{
    on(filter, move |request: Request| async move {
        let answer = async {
            let (desk, request) = open(request).await?;
            handler(desk, request).await
        };
        answer.await.unwrap_or_else(|error| problem_response(&error))
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

    fn asked<'a>(&'a self, headers: &'a HeaderMap) -> Of<'a> {
        Of { key: routing_key(headers), ..self.model() }
    }

    fn model(&self) -> Of<'_> {
        Of { name: &self.name, version: self.version.as_deref(), key: None }
    }
}

/// Who is asked by a path that is [`INFER`] with a plain name in it.
pub(super) fn asked(parts: &Parts) -> Result<Of<'_>> {
    let path = parts.uri.path();
    let (before, behind) = AROUND_NAME;
    let name = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(behind));
    let name = name.ok_or_else(|| Error::not_found("route", path))?;
    Ok(Of { name, version: None, key: routing_key(&parts.headers) })
}

fn routing_key(headers: &HeaderMap) -> Option<&str> {
    headers.get(ROUTING_KEY).and_then(|value| value.to_str().ok())
}

async fn body(request: Request) -> Result<Bytes> {
    Bytes::from_request(request, &()).await.map_err(|rejected| {
        Error::new(&code::MALFORMED_BODY, "the body broke off").caused_by(rejected)
    })
}

async fn infer(desk: Arc<dyn Desk>, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    let headers = std::mem::take(request.headers_mut());
    let body = body(request).await?;
    rest::infer(&*desk, named.asked(&headers), &headers, body).await.map(Response::from)
}

async fn invocations(desk: Arc<dyn Desk>, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    let headers = std::mem::take(request.headers_mut());
    rest::invocations(&*desk, named.asked(&headers), &headers, body(request).await?, None).await
}

/// `NAME:predict`: instances in, predictions out, as MLflow's scoring has them.
async fn predict(desk: Arc<dyn Desk>, mut request: Request) -> Result<Response> {
    let mut named = Named::of(&mut request).await?;
    let Some(name) = named.name.strip_suffix(PREDICT) else {
        return Err(Error::invalid("path", &named.name, "the name of a model and `:predict`"));
    };
    named.name = name.to_owned();
    let headers = std::mem::take(request.headers_mut());
    let rows = Some(Form::Rows);
    rest::invocations(&*desk, named.asked(&headers), &headers, body(request).await?, rows).await
}

async fn server(desk: Arc<dyn Desk>, _: Request) -> Result<Response> {
    desk.greet().await?;
    Ok(tell::server())
}

async fn models(desk: Arc<dyn Desk>, _: Request) -> Result<Response> {
    tell::models(&*desk).await
}

async fn all_statistics(desk: Arc<dyn Desk>, _: Request) -> Result<Response> {
    let all = desk.all().await?;
    tell::statistics(&*desk, &all, None)
}

async fn metadata(desk: Arc<dyn Desk>, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    tell::metadata(&*desk, named.model()).await
}

async fn ready(desk: Arc<dyn Desk>, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    tell::model_ready(&*desk, named.model()).await
}

async fn config(desk: Arc<dyn Desk>, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    tell::config(&*desk, named.model()).await
}

async fn statistics(desk: Arc<dyn Desk>, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    let served = desk.served(&named.name, Purpose::Look).await?;
    tell::statistics(&*desk, &[served], named.version.as_deref())
}

async fn index(desk: Arc<dyn Desk>, request: Request) -> Result<Response> {
    tell::index(&*desk, &body(request).await?).await
}

async fn load(desk: Arc<dyn Desk>, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    read_load(&body(request).await?)?;
    desk.load(&named.name).await?;
    Ok(tell::done())
}

async fn unload(desk: Arc<dyn Desk>, mut request: Request) -> Result<Response> {
    let named = Named::of(&mut request).await?;
    read_unload(&body(request).await?)?;
    desk.unload(&named.name).await?;
    Ok(tell::done())
}
