//! gRPC's frames around our handlers: one message in and one out, or many.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::routing::{MethodRouter, post};
use falaj_base::{Error, ErrorKind, Result};
use falaj_oip::Limits;
use falaj_oip::proto::Raw;
use falaj_web::{grpc_code, problem_response};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt, stream};
use prost::Message;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, StreamingService, UnaryService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::desk::{Desk, Opening};

/// The largest message that is read, unpacked.
const MAX_MESSAGE: usize = 64 << 20;

/// Makes a message out of its bytes, within limits.
pub(super) type Read<Q> = fn(Raw, &Limits) -> Result<Q>;

/// Reads a message that only names things.
pub(super) fn small<Q: Message + Default>(raw: Raw, _: &Limits) -> Result<Q> {
    raw.small()
}

/// What a caller is told whose message cannot be read: nothing, if there is nothing for them here.
async fn read<Q>(desk: &dyn Desk, read: Read<Q>, raw: Raw) -> Result<Q> {
    match read(raw, desk.limits()) {
        Ok(message) => Ok(message),
        Err(error) => desk.greet().await.and(Err(error)),
    }
}

/// A method with one message each way.
pub(super) fn unary<Q, R, H, F>(open: &Opening, read: Read<Q>, handler: H) -> MethodRouter
where
    Q: Send + 'static,
    R: Message + Default + 'static,
    H: Fn(Arc<dyn Desk>, Q) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<R>> + Send + 'static,
{
    let open = open.clone();
    post(move |request: Request| async move {
        let (desk, request) = match open(request).await {
            Ok(opened) => opened,
            Err(error) => return problem_response(&error),
        };
        grpc::<R>().unary(One { desk, read, handler }, request).await.map(Body::new)
    })
}

/// A method with many messages each way; each is answered before the next is read.
///
/// The first is answered before the reply begins: what the caller may do must be known by then.
pub(super) fn streaming<Q, R, H, F>(open: &Opening, read: Read<Q>, handler: H) -> MethodRouter
where
    Q: Send + 'static,
    R: Message + Default + 'static,
    H: Fn(Arc<dyn Desk>, Q) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<R>> + Send + 'static,
{
    let open = open.clone();
    post(move |request: Request| async move {
        let (desk, request) = match open(request).await {
            Ok(opened) => opened,
            Err(error) => return problem_response(&error),
        };
        grpc::<R>().streaming(Many { desk, read, handler }, request).await.map(Body::new)
    })
}

fn grpc<R: Message + Default + 'static>() -> Grpc<ProstCodec<R, Raw>> {
    Grpc::new(ProstCodec::default())
        .max_decoding_message_size(MAX_MESSAGE)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
        .send_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Deflate)
}

/// An error as gRPC tells it.
pub(super) fn status(error: &Error) -> Status {
    if error.kind() == ErrorKind::Internal {
        tracing::error!(code = error.code().id, "{}", error.chain());
    }
    Status::new(grpc_code(error.code()).into(), error.message())
}

struct One<Q, H> {
    desk: Arc<dyn Desk>,
    read: Read<Q>,
    handler: H,
}

impl<Q, R, H, F> UnaryService<Raw> for One<Q, H>
where
    Q: Send + 'static,
    R: Send + 'static,
    H: Fn(Arc<dyn Desk>, Q) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<R>> + Send + 'static,
{
    type Response = R;
    type Future = BoxFuture<'static, std::result::Result<tonic::Response<R>, Status>>;

    fn call(&mut self, request: tonic::Request<Raw>) -> Self::Future {
        let (desk, message, handler) = (self.desk.clone(), self.read, self.handler.clone());
        let answer = async move {
            let message = read(&*desk, message, request.into_inner()).await?;
            handler(desk, message).await
        };
        answer.map(|done| done.map(tonic::Response::new).map_err(|error| status(&error))).boxed()
    }
}

struct Many<Q, H> {
    desk: Arc<dyn Desk>,
    read: Read<Q>,
    handler: H,
}

type Replies<R> = Pin<Box<dyn Stream<Item = std::result::Result<R, Status>> + Send>>;

impl<Q, R, H, F> StreamingService<Raw> for Many<Q, H>
where
    Q: Send + 'static,
    R: Send + 'static,
    H: Fn(Arc<dyn Desk>, Q) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<R>> + Send + 'static,
{
    type Response = R;
    type ResponseStream = Replies<R>;
    type Future = BoxFuture<'static, std::result::Result<tonic::Response<Replies<R>>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<Raw>>) -> Self::Future {
        let (desk, message, handler) = (self.desk.clone(), self.read, self.handler.clone());
        let answer = move |raw: Raw| {
            let (desk, handler) = (desk.clone(), handler.clone());
            async move {
                let message = read(&*desk, message, raw).await?;
                handler(desk, message).await
            }
            .map(|done| done.map_err(|error| status(&error)))
        };
        async move {
            let mut messages = request.into_inner();
            let Some(first) = messages.message().await? else {
                return Err(Status::invalid_argument("the stream ended before its first request"));
            };
            let first = answer(first).await?;
            let rest = messages.then(move |raw| {
                let answer = answer.clone();
                async move { answer(raw?).await }
            });
            let replies: Replies<R> = Box::pin(stream::iter([Ok(first)]).chain(rest));
            Ok(tonic::Response::new(replies))
        }
        .boxed()
    }
}
