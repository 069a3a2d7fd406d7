//! `DoExchange`: a table of moments comes in, and goes out with the features beside it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_schema::SchemaRef;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tonic::server::StreamingService;
use tonic::{Status, Streaming};

use super::command::{read, time_column};
use super::wire::{Messages, grpc, messages, opened, status};
use crate::Features;
use crate::budget::{Budget, Share};
use crate::training::State;

pub(super) async fn exchange(s: Arc<Features>, call: Call, request: Request) -> Result<Response> {
    Ok(grpc().streaming(Exchange { s, call }, request).await.map(Body::new))
}

struct Exchange {
    s: Arc<Features>,
    call: Call,
}

impl StreamingService<FlightData> for Exchange {
    type Response = FlightData;
    type ResponseStream = Messages;
    type Future = BoxFuture<'static, std::result::Result<tonic::Response<Messages>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<FlightData>>) -> Self::Future {
        let (s, call) = (self.s.clone(), self.call.clone());
        async move {
            let mut incoming = request.into_inner();
            let Some(first) = incoming.message().await? else {
                return Err(Status::invalid_argument("the stream ended before its first message"));
            };
            let answer = answered(&s, &call, first, incoming).await;
            answer.map(tonic::Response::new).map_err(status)
        }
        .boxed()
    }
}

async fn answered(
    s: &Features,
    call: &Call,
    first: FlightData,
    rest: Streaming<FlightData>,
) -> Result<Messages> {
    // Who may ask is settled before anything of the table is read.
    let id = s.new_training_set(&call.ctx, &call.place).await?;
    let command = first.flight_descriptor.as_ref().map(|it| it.cmd.clone()).unwrap_or_default();
    let mut what = read(&command)?;
    let views = s.choose(&call.ctx, &call.place, &what).await?;
    let table = received(first, rest, s.exchange_memory()).await?;
    let schema = table.schema;
    if schema.fields().len() == 1 && schema.field(0).name() == "key" {
        let allowed = "a table of entities with a time for each row";
        return Err(Error::invalid("moments", "absent", allowed));
    }
    what.event_time = Some(time_column(&schema)?);
    let moments = s.moments_batches(&call.place, &what, &views, schema, table.batches).await?;
    // From here on the table is a file.
    drop(table.shares);
    s.ask_for(&call.ctx, &call.place, id, (None, what), views, moments).await?;
    let set = s.awaited(&call.place, id, s.config().max_time.get()).await?;
    if set.state == State::Failed {
        let why = set.error.unwrap_or_default();
        return Err(Error::new(&code::INVALID_INPUT, why));
    }
    let (_, blob) = s.open_training_set(&call.ctx, &call.place, id).await?;
    Ok(messages(opened(blob).await?))
}

/// A table as it came, and the memory that it takes.
struct Received {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    shares: Vec<Share>,
}

/// The whole table, as long as there is memory for it beside those of others.
async fn received(
    first: FlightData,
    rest: Streaming<FlightData>,
    memory: &Budget,
) -> Result<Received> {
    // Clients begin with a message that has a command and nothing of the table.
    let filled = |data: &FlightData| std::future::ready(!data.data_header.is_empty());
    let data = stream::iter([Ok(first)]).chain(rest.map_err(FlightError::from)).try_filter(filled);
    let mut incoming = FlightRecordBatchStream::new_from_flight_data(data);
    let (mut batches, mut shares, mut bytes) = (Vec::new(), Vec::new(), 0);
    loop {
        // The library asserts some things that only hold for a well-made message.
        let next = AssertUnwindSafe(incoming.next()).catch_unwind().await;
        let next = next.map_err(|_| Error::invalid("moments", "damaged", "Arrow's messages"))?;
        let Some(batch) = next else { break };
        let batch: RecordBatch = batch.map_err(|error| {
            let why: String = error.to_string().chars().take(200).collect();
            Error::invalid("moments", why, "Arrow's messages")
        })?;
        let size = batch.get_array_memory_size() as u64;
        bytes += size;
        if bytes > memory.bytes() {
            let text = "the table is larger than `features.memory` allows; store it as an object";
            return Err(Error::new(&code::TOO_LARGE, text).at("moments"));
        }
        shares.push(memory.take_now(size)?);
        batches.push(batch);
    }
    let schema = incoming.schema().cloned();
    let schema = schema.ok_or_else(|| Error::invalid("moments", "absent", "a table"))?;
    Ok(Received { schema, batches, shares })
}
