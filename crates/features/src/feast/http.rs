//! `/get-online-features`, `/push`, `/write-to-online-store`, `/materialize`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Result, Timestamp, code};
use falaj_mlflow::{Api, Call, Places};
use falaj_online::moment;
use falaj_web::{Accepted, Doc, Endpoint, Reply, query};
use http::{HeaderValue, Method, header};
use serde::Deserialize;

use super::error::{About, reply};
use super::grpc;
use super::write::{Style, write};
use crate::online::body::{self, Columnar, Columns};
use crate::online::{To, Wanted, Window};
use crate::{FEATURE_ONLINE, FEATURE_WRITE, Features};

const fn doc(summary: &'static str) -> Doc {
    let json = Some("application/json");
    Doc { summary, takes: json, gives: json, status: 200, query: &[] }
}

pub(crate) fn routes(features: Arc<Features>, places: Places) -> Vec<Endpoint> {
    const READ: Doc = doc("Read the latest values of features, in Feast's words");
    const PUSH: Doc = doc("Push rows to the views of a push source, in Feast's words");
    const WRITE: Doc = doc("Push rows to a feature view, in Feast's words");
    const ASYNC: &[(&str, &str)] =
        &[("async", "`true` to be answered at once, with the job that does it")];
    const ALL: Doc = Doc {
        query: ASYNC,
        ..doc("Bring rows of sources into the online store, in Feast's words")
    };
    const MORE: Doc =
        Doc { query: ASYNC, ..doc("The same from where the last time ended, in Feast's words") };
    let mut endpoints: Vec<Endpoint> = Api::new(features, places)
        .stream(Method::POST, "/get-online-features", &FEATURE_ONLINE, READ, get)
        .stream(Method::POST, "/push", &FEATURE_WRITE, PUSH, push)
        .stream(Method::POST, "/write-to-online-store", &FEATURE_WRITE, WRITE, write_online)
        .stream(Method::POST, "/materialize", &FEATURE_WRITE, ALL, materialize)
        .stream(Method::POST, "/materialize-incremental", &FEATURE_WRITE, MORE, incremental)
        .grpc(grpc::METHOD, &FEATURE_ONLINE, READ.summary, grpc::get)
        .into();
    for endpoint in &mut endpoints {
        // Rows: their own limit is `max_push_size`.
        endpoint.large = matches!(endpoint.path, "/push" | "/write-to-online-store");
    }
    endpoints
}

/// Clients of other versions may say more; it is passed over, as Feast does.
#[derive(Debug, Deserialize)]
struct Asked {
    entities: Columnar,
    #[serde(default)]
    feature_service: Option<String>,
    #[serde(default)]
    features: Option<Vec<String>>,
    #[serde(default)]
    full_feature_names: bool,
    #[serde(default)]
    include_feature_view_version_metadata: bool,
}

async fn get(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    let mut about = About::View;
    let answer = get_online_features(&s, &call, request, &mut about).await;
    Ok(answer.unwrap_or_else(|error| reply(&error, about)))
}

async fn get_online_features(
    s: &Features,
    call: &Call,
    request: Request,
    about: &mut About,
) -> Result<Response> {
    let asked: Asked = body::read(request).await?;
    let style = Style {
        full_names: asked.full_feature_names,
        versions: asked.include_feature_view_version_metadata,
    };
    let wanted = match asked.feature_service.filter(|name| !name.is_empty()) {
        Some(service) => {
            *about = About::Service;
            Wanted::Service(service)
        }
        None => Wanted::Features(asked.features.unwrap_or_default()),
    };
    let answer = s.read_online(&call.ctx, &call.place, &wanted, asked.entities.0).await?;
    let most = s.shelf().config().max_reply;
    Ok(json(body::written(answer, move |answer| write(answer, style, most)).await?))
}

fn json(body: Body) -> Response {
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[derive(Debug, Deserialize)]
struct Push {
    #[serde(rename = "push_source_name")]
    source: String,
    df: Columns,
    #[serde(default)]
    to: Option<String>,
}

async fn push(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    let work = async {
        let (push, _share): (Push, _) = body::read_large(request, s.push_memory()).await?;
        // Rows that are pushed are always both: one log feeds the latest values and the history.
        match push.to.as_deref() {
            None | Some("online" | "online_and_offline") => {}
            Some("offline") => {
                let text = "rows that are pushed can be read at once: `offline` alone is not kept";
                return Err(Error::new(&code::INVALID_INPUT, text).at("to"));
            }
            Some(other) => {
                return Err(Error::invalid("to", other, "online, online_and_offline"));
            }
        }
        let to = To::Source(push.source);
        s.push(&call.ctx, &call.place, &to, push.df).await?;
        Ok(Response::new(Body::empty()))
    };
    Ok(work.await.unwrap_or_else(|error| reply(&error, About::PushSource)))
}

#[derive(Debug, Deserialize)]
struct Write {
    feature_view_name: String,
    df: Columns,
}

async fn write_online(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    let work = async {
        let (write, _share): (Write, _) = body::read_large(request, s.push_memory()).await?;
        let to = To::View(write.feature_view_name);
        s.push(&call.ctx, &call.place, &to, write.df).await?;
        Ok(json(Body::from("null")))
    };
    Ok(work.await.unwrap_or_else(|error| reply(&error, About::View)))
}

/// Moments are read as Feast writes them, with or without an offset.
fn moment(field: &str, text: Option<&str>) -> Result<Timestamp> {
    let shown = text.unwrap_or("absent");
    let read = text.and_then(moment::read).map(Timestamp::from_micros);
    read.ok_or_else(|| Error::invalid(field, shown, "a time like 2026-01-31T09:00:00Z"))
}

#[derive(Debug, Deserialize)]
struct Materialize {
    #[serde(default)]
    start_ts: Option<String>,
    #[serde(default)]
    end_ts: Option<String>,
    #[serde(default)]
    feature_views: Option<Vec<String>>,
    #[serde(default)]
    disable_event_timestamp: bool,
}

/// Whether to answer before it is done.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct When {
    r#async: bool,
}

fn when(request: &Request) -> Result<When> {
    query(request.uri().query().unwrap_or_default())
}

async fn materialize(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    let work = async {
        let when = when(&request)?;
        let asked: Materialize = body::read(request).await?;
        let window = if asked.disable_event_timestamp {
            Window::Everything
        } else {
            let start = moment("start_ts", asked.start_ts.as_deref())?;
            let end = moment("end_ts", asked.end_ts.as_deref())?;
            if start >= end {
                return Err(Error::invalid("start_ts", start, format!("a time before {end}")));
            }
            Window::Between(start, end)
        };
        bring(&s, &call, asked.feature_views.as_deref(), window, when).await
    };
    Ok(work.await.unwrap_or_else(|error| reply(&error, About::View)))
}

#[derive(Debug, Deserialize)]
struct Incremental {
    end_ts: String,
    #[serde(default)]
    feature_views: Option<Vec<String>>,
}

async fn incremental(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    let work = async {
        let when = when(&request)?;
        let asked: Incremental = body::read(request).await?;
        let window = Window::Until(moment("end_ts", Some(&asked.end_ts))?);
        bring(&s, &call, asked.feature_views.as_deref(), window, when).await
    };
    Ok(work.await.unwrap_or_else(|error| reply(&error, About::View)))
}

/// Feast says nothing; how many rows were brought does no harm to its clients.
async fn bring(
    s: &Features,
    call: &Call,
    views: Option<&[String]>,
    window: Window,
    when: When,
) -> Result<Response> {
    if when.r#async {
        let job = s.ask_to_materialize(&call.ctx, &call.place, views, window).await?;
        return Ok(Accepted(job).into_response());
    }
    let job = s.materialize(&call.ctx, &call.place, views, window).await?;
    let told = job.views.iter().map(|one| (one.view.to_string(), one.progress.rows.into()));
    let told: serde_json::Map<_, _> = told.collect();
    Ok(json(Body::from(serde_json::json!({ "rows": told }).to_string())))
}
