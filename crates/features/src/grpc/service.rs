//! The methods.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use futures::FutureExt;
use futures::future::BoxFuture;
use prost::Message;
use serde_json::Map;
use tonic::Status as Told;
use tonic::server::UnaryService;

use super::message::{
    Feature, GetOnlineFeaturesRequest, GetOnlineFeaturesResponse, PushRequest, PushResponse,
    Status, Value,
};
use crate::Features;
use crate::flight::{grpc, status};
use crate::online::body::{Columns, too_large};
use crate::online::{Answer, Found, Status as Known, To, Wanted, called};

type Reply<R> = BoxFuture<'static, std::result::Result<tonic::Response<R>, Told>>;

pub(super) async fn get(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    Ok(grpc().unary(Get { s, call }, request).await.map(Body::new))
}

pub(super) async fn push(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    Ok(grpc().unary(Push { s, call }, request).await.map(Body::new))
}

struct Get {
    s: Arc<Features>,
    call: Call,
}

impl UnaryService<GetOnlineFeaturesRequest> for Get {
    type Response = GetOnlineFeaturesResponse;
    type Future = Reply<GetOnlineFeaturesResponse>;

    fn call(&mut self, request: tonic::Request<GetOnlineFeaturesRequest>) -> Self::Future {
        let (s, call) = (self.s.clone(), self.call.clone());
        let found = async move { found(&s, &call, request.into_inner()).await };
        found.map(|done| done.map(tonic::Response::new).map_err(status)).boxed()
    }
}

async fn found(
    s: &Features,
    call: &Call,
    asked: GetOnlineFeaturesRequest,
) -> Result<GetOnlineFeaturesResponse> {
    let wanted = match (asked.features.is_empty(), asked.service.is_empty()) {
        (false, true) => Wanted::Features(asked.features),
        (true, false) => Wanted::Service(asked.service),
        _ => {
            let text = "the request has either `features` or `service`";
            return Err(Error::new(&code::INVALID_INPUT, text).at("features"));
        }
    };
    let entities = asked.entities.into_iter().map(|(name, it)| (name, it.into_json())).collect();
    let answer = s.read_online(&call.ctx, &call.place, &wanted, entities).await?;
    let most = s.shelf().config().max_reply;
    let reply = GetOnlineFeaturesResponse { features: features(&answer, most.as_usize())? };
    if reply.encoded_len() > most.as_usize() {
        return Err(too_large("the reply", most));
    }
    Ok(reply)
}

/// Column by column; no more than so many bytes of values, since a row may be asked for many times.
fn features(answer: &Answer, most: usize) -> Result<Vec<Feature>> {
    let (mut features, mut left) = (Vec::new(), most);
    for view in &answer.views {
        let rows = view.rows(answer.now)?;
        let event_times: Vec<i64> = rows.iter().map(|row| row.event().unwrap_or(0)).collect();
        for &field in &view.picked.fields {
            let mut values = Vec::with_capacity(rows.len());
            for row in &rows {
                let value = match row {
                    Found::Row(row) => Value::from(row.value(field)?),
                    Found::Missing | Found::Expired(_) => Value::default(),
                };
                left = left.checked_sub(value.encoded_len()).ok_or_else(|| {
                    too_large("the reply", falaj_base::ByteSize::from_bytes(most as u64))
                })?;
                values.push(value);
            }
            let statuses = rows.iter().map(|row| told(row.status(field)) as i32).collect();
            let name = format!("{}:{}", called(answer, view), view.picked.shape.fields[field].0);
            features.push(Feature { name, values, statuses, event_times: event_times.clone() });
        }
    }
    Ok(features)
}

fn told(status: Known) -> Status {
    match status {
        Known::Present => Status::Present,
        Known::Null => Status::NullValue,
        Known::Missing => Status::NotFound,
        Known::Expired => Status::OutsideMaxAge,
    }
}

struct Push {
    s: Arc<Features>,
    call: Call,
}

impl UnaryService<PushRequest> for Push {
    type Response = PushResponse;
    type Future = Reply<PushResponse>;

    fn call(&mut self, request: tonic::Request<PushRequest>) -> Self::Future {
        let (s, call) = (self.s.clone(), self.call.clone());
        let kept = async move { kept(&s, &call, request.into_inner()).await };
        kept.map(|done| done.map(tonic::Response::new).map_err(status)).boxed()
    }
}

async fn kept(s: &Features, call: &Call, push: PushRequest) -> Result<PushResponse> {
    let _share = s.push_memory().take(push.encoded_len() as u64).await?;
    let columns = push.columns.into_iter();
    let columns: Map<_, _> =
        columns.map(|(name, values)| (name, values.into_json().into())).collect();
    let to = To::View(push.view);
    let pushed = s.push(&call.ctx, &call.place, &to, Columns(columns)).await?;
    let one = pushed.into_iter().next().ok_or_else(|| Error::internal("a push to no view"))?;
    Ok(PushResponse {
        view: one.view.name().to_string(),
        version: one.view.version(),
        rows: one.rows as u64,
        placed: one.placed as u64,
    })
}
