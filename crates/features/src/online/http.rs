//! `/api/features/online` and `/api/features/push`.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Result, code};
use falaj_mlflow::{Api, Call, Places};
use falaj_online::{Moments, value::json};
use falaj_web::{Doc, Endpoint, Ok200, Reply};
use http::{HeaderValue, Method, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::{Answer, Status, ViewAnswer};
use super::ask::Wanted;
use super::body::{self, Columnar, Columns};
use super::push::To;
use crate::name::FeatureName;
use crate::{FEATURE_ONLINE, FEATURE_WRITE, Features};

const ONLINE: Doc = Doc {
    summary: "Read the latest values of features",
    takes: Some("application/json"),
    gives: Some("application/json"),
    status: 200,
    query: &[],
};

pub(crate) fn routes(features: Arc<Features>, places: Places) -> Vec<Endpoint> {
    let mut endpoints: Vec<Endpoint> = Api::new(features, places)
        .stream(Method::POST, "/api/features/online", &FEATURE_ONLINE, ONLINE, online)
        .reading::<Push, Ok200<Kept>, _, _>(
            Method::POST,
            "/api/features/push",
            &FEATURE_WRITE,
            "Push rows to a feature view",
            push,
        )
        .into();
    for endpoint in &mut endpoints {
        // Rows: their own limit is `max_push_size`.
        endpoint.large = endpoint.path.ends_with("/push");
    }
    endpoints
}

/// Which features of which entities.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default)]
    features: Option<Vec<String>>,
    #[serde(default)]
    service: Option<String>,
    entities: Columnar,
}

async fn online(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    let asked: Asked = body::read(request).await?;
    let wanted = match (asked.features, asked.service) {
        (Some(features), None) => Wanted::Features(features),
        (None, Some(service)) => Wanted::Service(service),
        _ => {
            let text = "the body has either `features` or `service`";
            return Err(Error::new(&code::INVALID_INPUT, text).at("features"));
        }
    };
    let answer = s.read_online(&call.ctx, &call.place, &wanted, asked.entities.0).await?;
    let most = s.shelf().config().max_reply;
    let mut reply = Response::new(body::written(answer, move |answer| write(answer, most)).await?);
    let kind = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(reply)
}

/// Row by row: the values of an entity, and a letter for each that says what is known about it.
fn write(answer: &Answer, most: falaj_base::ByteSize) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(1024);
    let views = answer.views.iter();
    let rows = views.clone().map(|view| view.rows(answer.now)).collect::<Result<Vec<_>>>()?;
    out.extend_from_slice(b"{\"features\":[");
    let mut first = true;
    for view in views.clone() {
        for &field in &view.picked.fields {
            comma(&mut out, &mut first);
            let name = &view.picked.shape.fields[field].0;
            json::text(&mut out, &format!("{}:{name}", called(answer, view)));
        }
    }
    out.extend_from_slice(b"],\"values\":[");
    for entity in 0..answer.entities {
        out.extend_from_slice(if entity > 0 { b",[" } else { b"[" });
        let mut first = true;
        for (view, rows) in views.clone().zip(&rows) {
            for &field in &view.picked.fields {
                comma(&mut out, &mut first);
                body::value(&mut out, &rows[entity], field, Moments::Text, most)?;
            }
        }
        out.push(b']');
    }
    out.extend_from_slice(b"],\"status\":[");
    for entity in 0..answer.entities {
        out.extend_from_slice(if entity > 0 { b",\"" } else { b"\"" });
        for (view, rows) in views.clone().zip(&rows) {
            out.extend(view.picked.fields.iter().map(|field| letter(rows[entity].status(*field))));
        }
        out.push(b'"');
        body::within(&out, most)?;
    }
    out.extend_from_slice(b"],\"event_times\":{");
    let mut first = true;
    for (view, rows) in views.zip(&rows) {
        comma(&mut out, &mut first);
        json::text(&mut out, &called(answer, view));
        out.extend_from_slice(b":[");
        let mut first = true;
        for row in rows {
            comma(&mut out, &mut first);
            match row.event() {
                Some(event) => json::timestamp(&mut out, event, Moments::Text),
                None => out.extend_from_slice(b"null"),
            }
            body::within(&out, most)?;
        }
        out.push(b']');
    }
    out.extend_from_slice(b"}}");
    Ok(out)
}

/// A view by its name, and its version where two of one name answer.
pub(crate) fn called(answer: &Answer, view: &ViewAnswer) -> String {
    let own = &view.picked.view;
    let alike = answer.views.iter().filter(|other| other.picked.view.name() == own.name());
    match alike.count() {
        1 => own.name().to_string(),
        _ => format!("{}@{}", own.name(), own.version()),
    }
}

fn letter(status: Status) -> u8 {
    match status {
        Status::Present => b'p',
        Status::Null => b'n',
        Status::Missing => b'm',
        Status::Expired => b'e',
    }
}

fn comma(out: &mut Vec<u8>, first: &mut bool) {
    if !std::mem::replace(first, false) {
        out.push(b',');
    }
}

/// Rows for a view.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Push {
    view: String,
    /// The values of each column: join keys, features and the event time.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    columns: Columns,
}

/// What became of them.
#[derive(Debug, Serialize, JsonSchema)]
struct Kept {
    view: FeatureName,
    version: i64,
    rows: usize,
    /// How many entities have values of it now; the others have newer ones.
    placed: usize,
}

async fn push(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    let (push, _share): (Push, _) = body::read_large(request, s.push_memory()).await?;
    let to = To::View(push.view);
    let pushed = s.push(&call.ctx, &call.place, &to, push.columns).await?;
    let one = pushed.into_iter().next().ok_or_else(|| Error::internal("a push to no view"))?;
    let (view, version) = (one.view.name().clone(), one.view.version());
    Ok(Ok200(Kept { view, version, rows: one.rows, placed: one.placed }).into_response())
}
