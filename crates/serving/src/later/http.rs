//! `…/endpoints/{name}/requests`.

use std::sync::Arc;

use axum::RequestExt;
use axum::body::Body;
use axum::extract::{Extension, Path, Request as HttpRequest, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use falaj_base::{Ctx, Error, HumanDuration, Name, Page, PageQuery, Result, code};
use falaj_governance::tenancy::Project;
use falaj_oip::{HEADER_LENGTH, header_length};
use falaj_web::upload::{announced, pieces};
use falaj_web::{Doc, Endpoint as Route, Input, NoContent, Ok200, Routes, problem_response, query};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::request::Request;
use super::service::Submission;
use crate::{ENDPOINT_PREDICT, Serving};

const ALL: &str = "/v1/tenants/{tenant}/projects/{project}/endpoints/{name}/requests";
const ONE: &str = "/v1/tenants/{tenant}/projects/{project}/endpoints/{name}/requests/{id}";
const RESULT: &str =
    "/v1/tenants/{tenant}/projects/{project}/endpoints/{name}/requests/{id}/result";

/// What the callback is signed with: in a header, since queries end up in logs.
const SECRET: &str = "x-falaj-callback-secret";

const ANY: &str = "application/octet-stream";

const SUBMIT: Doc = Doc {
    summary: "Have an endpoint answer later",
    takes: Some(ANY),
    gives: Some("application/json"),
    status: 202,
    query: &[
        ("version", "The version that is to answer"),
        ("routing_key", "What keeps a caller with one variant"),
        ("priority", "1, 2 or 3: who goes first among those who wait; 2 if absent"),
        ("expires_in", "How long it may wait, such as 1h"),
        ("callback", "The URL that is called when it has ended"),
    ],
};

const FETCH: Doc = Doc {
    summary: "Fetch what an endpoint answered",
    takes: None,
    gives: Some(ANY),
    status: 200,
    query: &[],
};

pub(crate) fn routes(serving: Arc<Serving>) -> Vec<Route> {
    let (submit, fetch) =
        (post(submit).with_state(serving.clone()), get(result).with_state(serving.clone()));
    Routes::new(serving)
        .raw(Method::POST, ALL, &ENDPOINT_PREDICT, SUBMIT, submit)
        .get(ALL, &ENDPOINT_PREDICT, "List what an endpoint is to answer, or has", list)
        .get(ONE, &ENDPOINT_PREDICT, "See how far a request is", see)
        .raw(Method::GET, RESULT, &ENDPOINT_PREDICT, FETCH, fetch)
        .delete(ONE, &ENDPOINT_PREDICT, "Cancel a request, or forget its result", forget)
        .into()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OfEndpoint {
    tenant: Name,
    project: Name,
    name: Name,
}

impl OfEndpoint {
    async fn project(&self, s: &Serving, ctx: &Ctx) -> Result<Project> {
        s.registry().tenancy().project(ctx, &self.tenant, &self.project).await
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OfRequest {
    tenant: Name,
    project: Name,
    name: Name,
    #[schemars(with = "String")]
    id: Uuid,
}

impl OfRequest {
    async fn project(&self, s: &Serving, ctx: &Ctx) -> Result<Project> {
        s.registry().tenancy().project(ctx, &self.tenant, &self.project).await
    }
}

async fn path<P: DeserializeOwned + Send + 'static>(request: &mut HttpRequest) -> Result<P> {
    let Path(path) = request
        .extract_parts::<Path<P>>()
        .await
        .map_err(|bad| Error::new(&code::INVALID_INPUT, "the path is not valid").caused_by(bad))?;
    Ok(path)
}

/// What the query says.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    version: Option<String>,
    routing_key: Option<String>,
    priority: Option<u32>,
    expires_in: Option<HumanDuration>,
    callback: Option<String>,
}

fn submission(query_text: &str, headers: &HeaderMap) -> Result<Submission> {
    let Options { version, routing_key, priority, expires_in, callback } = query(query_text)?;
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let length = headers.get(HEADER_LENGTH).map(|value| header_length(&text(value)));
    Ok(Submission {
        version,
        routing_key,
        priority,
        expires_in,
        callback,
        callback_secret: headers.get(SECRET).map(secret).transpose()?,
        header_length: length.transpose()?,
        size: announced(headers),
    })
}

/// A secret that is there and cannot be used is refused: a call without its signature would follow.
fn secret(value: &HeaderValue) -> Result<String> {
    let text = value.to_str().ok().filter(|text| !text.is_empty());
    let allowed = "visible ASCII characters";
    text.map(str::to_owned).ok_or_else(|| Error::invalid(SECRET, "not that", allowed))
}

async fn submit(
    State(s): State<Arc<Serving>>,
    Extension(ctx): Extension<Ctx>,
    mut request: HttpRequest,
) -> Response {
    let answer = async {
        let of: OfEndpoint = path(&mut request).await?;
        let project = of.project(&s, &ctx).await?;
        let submission = submission(request.uri().query().unwrap_or_default(), request.headers());
        // Who may ask is settled before what was asked is looked at.
        let submission = match submission {
            Ok(submission) => submission,
            Err(error) => {
                s.seen(&ctx, &project, &of.name, &ENDPOINT_PREDICT).await?;
                return Err(error);
            }
        };
        let content = pieces(request.into_body());
        let made = s.submit(&ctx, &project, &of.name, submission, content).await?;
        let place = format!(
            "/v1/tenants/{}/projects/{}/endpoints/{}/requests/{}",
            of.tenant, of.project, of.name, made.id
        );
        Ok((StatusCode::ACCEPTED, [(header::LOCATION, place)], axum::Json(made)).into_response())
    };
    answer.await.unwrap_or_else(|error: Error| problem_response(&error))
}

async fn list(
    s: Arc<Serving>,
    ctx: Ctx,
    input: Input<OfEndpoint, PageQuery>,
) -> Result<Ok200<Page<Request>>> {
    let project = input.path.project(&s, &ctx).await?;
    s.later_requests(&ctx, &project, &input.path.name, input.query).await.map(Ok200)
}

async fn see(s: Arc<Serving>, ctx: Ctx, input: Input<OfRequest>) -> Result<Ok200<Request>> {
    let project = input.path.project(&s, &ctx).await?;
    s.later_request(&ctx, &project, &input.path.name, input.path.id).await.map(Ok200)
}

async fn forget(s: Arc<Serving>, ctx: Ctx, input: Input<OfRequest>) -> Result<NoContent> {
    let project = input.path.project(&s, &ctx).await?;
    s.forget(&ctx, &project, &input.path.name, input.path.id).await.map(|()| NoContent)
}

async fn result(
    State(s): State<Arc<Serving>>,
    Extension(ctx): Extension<Ctx>,
    mut request: HttpRequest,
) -> Response {
    let answer = async {
        let of: OfRequest = path(&mut request).await?;
        let project = of.project(&s, &ctx).await?;
        let (blob, length) = s.later_result(&ctx, &project, &of.name, of.id).await?;
        let mut reply = Response::new(Body::from_stream(blob.read()));
        let headers = reply.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(blob.size()));
        let kind = match length {
            Some(length) => {
                headers.insert(HEADER_LENGTH, HeaderValue::from(length));
                ANY
            }
            None => "application/json",
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        Ok(reply)
    };
    answer.await.unwrap_or_else(|error: Error| problem_response(&error))
}
