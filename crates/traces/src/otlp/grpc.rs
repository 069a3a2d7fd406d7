//! The same over gRPC: `opentelemetry.proto.collector.trace.v1.TraceService/Export`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::{Buf, BufMut, Bytes};
use falaj_base::{Error, ErrorKind, Result};
use falaj_mlflow::error::refused;
use falaj_mlflow::{Api, Call, Places};
use falaj_web::{Endpoint, grpc_code};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::HeaderMap;
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use super::http::{EXPERIMENT, RUN, limits, named, partial};
use super::message::ExportResponse;
use super::read::from_protobuf;
use crate::{TRACE_WRITE, Traces};

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The largest message that is read, unpacked: as over HTTP, by default.
const MAX_MESSAGE: usize = 16 << 20;

pub(crate) fn routes(traces: Arc<Traces>, places: Places) -> Vec<Endpoint> {
    Api::new(traces, places).grpc(EXPORT, &TRACE_WRITE, "Log spans over gRPC", answer).into()
}

async fn answer(traces: Arc<Traces>, call: Call, request: Request) -> Result<Response> {
    let codec: ProstCodec<ExportResponse, Unread> = ProstCodec::default();
    let mut service = Grpc::new(codec)
        .max_decoding_message_size(MAX_MESSAGE)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate);
    let headers = request.headers().clone();
    Ok(service.unary(Export { traces, call, headers }, request).await.map(Body::new))
}

struct Export {
    traces: Arc<Traces>,
    call: Call,
    headers: HeaderMap,
}

impl UnaryService<Unread> for Export {
    type Response = ExportResponse;
    type Future = BoxFuture<'static, std::result::Result<tonic::Response<ExportResponse>, Status>>;

    fn call(&mut self, request: tonic::Request<Unread>) -> Self::Future {
        let (traces, call) = (self.traces.clone(), self.call.clone());
        let (headers, body) = (std::mem::take(&mut self.headers), request.into_inner().0);
        let done = async move { export(&traces, &call, &headers, body).await };
        done.map(|done| done.map(tonic::Response::new).map_err(|error| status(&error))).boxed()
    }
}

async fn export(
    traces: &Traces,
    call: &Call,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<ExportResponse> {
    let experiment = named(headers, EXPERIMENT)?
        .ok_or_else(|| refused(format!("the metadata {EXPERIMENT} must name the experiment")))?;
    let run = named(headers, RUN)?;
    let batch = from_protobuf(&body, &limits(traces.config()))?;
    if let Some(why) = batch.why.as_ref().filter(|_| batch.spans.is_empty()) {
        return Err(refused(format!("Cannot convert OpenTelemetry span to MLflow span: {why}")));
    }
    let logged = traces.log_spans(call, experiment.parse()?, batch, run).await?;
    Ok(ExportResponse { partial_success: partial(logged) })
}

fn status(error: &Error) -> Status {
    if error.kind() == ErrorKind::Internal {
        tracing::error!(code = error.code().id, "{}", error.chain());
    }
    Status::new(grpc_code(error.code()).into(), error.message())
}

/// The bytes of a message, where a codec wants one: they are read within limits, later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Unread(Bytes);

impl Message for Unread {
    fn encode_raw(&self, to: &mut impl BufMut) {
        to.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire: WireType,
        from: &mut impl Buf,
        ctx: DecodeContext,
    ) -> std::result::Result<(), DecodeError> {
        skip_field(wire, tag, from, ctx)
    }

    fn merge(&mut self, mut from: impl Buf) -> std::result::Result<(), DecodeError> {
        self.0 = from.copy_to_bytes(from.remaining());
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
