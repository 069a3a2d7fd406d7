//! `GetFlightInfo` and `DoGet`.

use std::sync::Arc;

use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Result};
use falaj_mlflow::Call;
use futures::FutureExt;
use futures::future::BoxFuture;
use tonic::Status;
use tonic::server::{ServerStreamingService, UnaryService};

use super::wire::{Messages, grpc, messages, opened, status};
use crate::Features;
use crate::training::TrainingSetId;

type Answer<R> = BoxFuture<'static, std::result::Result<tonic::Response<R>, Status>>;

pub(super) async fn info(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    Ok(grpc().unary(Info { s, call }, request).await.map(Body::new))
}

pub(super) async fn get(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    Ok(grpc().server_streaming(Get { s, call }, request).await.map(Body::new))
}

async fn id(s: &Features, call: &Call, bytes: &[u8]) -> Result<TrainingSetId> {
    s.training_set_id(&call.ctx, &call.place, &String::from_utf8_lossy(bytes)).await
}

struct Info {
    s: Arc<Features>,
    call: Call,
}

impl UnaryService<FlightDescriptor> for Info {
    type Response = FlightInfo;
    type Future = Answer<FlightInfo>;

    fn call(&mut self, request: tonic::Request<FlightDescriptor>) -> Self::Future {
        let (s, call) = (self.s.clone(), self.call.clone());
        let told = async move { told(&s, &call, request.into_inner()).await };
        told.map(|done| done.map(tonic::Response::new).map_err(status)).boxed()
    }
}

async fn told(s: &Features, call: &Call, asked: FlightDescriptor) -> Result<FlightInfo> {
    let named = match asked.r#type() {
        DescriptorType::Path => asked.path.last().map_or(&[][..], |part| part.as_bytes()),
        _ => &asked.cmd,
    };
    let id = id(s, call, named).await?;
    let (set, blob) = s.open_training_set(&call.ctx, &call.place, id).await?;
    let table = opened(blob).await?;
    let count = |number: Option<u64>| number.and_then(|it| i64::try_from(it).ok()).unwrap_or(-1);
    // Without a location the ticket is for whoever told of it: this server.
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(id.to_string()));
    FlightInfo::new()
        .try_with_schema(table.schema())
        .map(|info| {
            info.with_descriptor(asked)
                .with_endpoint(endpoint)
                .with_total_records(count(set.rows))
                .with_total_bytes(count(set.size))
                .with_ordered(true)
        })
        .map_err(Error::internal)
}

struct Get {
    s: Arc<Features>,
    call: Call,
}

impl ServerStreamingService<Ticket> for Get {
    type Response = arrow_flight::FlightData;
    type ResponseStream = Messages;
    type Future = Answer<Messages>;

    fn call(&mut self, request: tonic::Request<Ticket>) -> Self::Future {
        let (s, call) = (self.s.clone(), self.call.clone());
        let opened = async move {
            let id = id(&s, &call, &request.into_inner().ticket).await?;
            let (_, blob) = s.open_training_set(&call.ctx, &call.place, id).await?;
            Ok(messages(opened(blob).await?))
        };
        opened.map(|done| done.map(tonic::Response::new).map_err(status)).boxed()
    }
}
