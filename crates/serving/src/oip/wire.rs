//! gRPC's frames around our handlers: one message in and one out, or many.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::routing::{MethodRouter, post};
use falaj_base::{Error, ErrorKind, Result};
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

/// A method with one message each way.
pub(super) fn unary<Q, R, H, F>(open: &Opening, handler: H) -> MethodRouter
where
    Q: Message + Default + 'static,
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
        grpc::<Q, R>().unary(One { desk, handler }, request).await.map(Body::new)
    })
}

/// A method with many messages each way; each is answered before the next is read.
///
/// The first is answered before the reply begins: what the caller may do must be known by then.
pub(super) fn streaming<Q, R, H, F>(open: &Opening, handler: H) -> MethodRouter
where
    Q: Message + Default + 'static,
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
        grpc::<Q, R>().streaming(Many { desk, handler }, request).await.map(Body::new)
    })
}

fn grpc<Q: Message + Default + 'static, R: Message + Default + 'static>() -> Grpc<ProstCodec<R, Q>>
{
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

struct One<H> {
    desk: Arc<dyn Desk>,
    handler: H,
}

impl<Q, R, H, F> UnaryService<Q> for One<H>
where
    Q: Send + 'static,
    R: Send + 'static,
    H: Fn(Arc<dyn Desk>, Q) -> F,
    F: Future<Output = Result<R>> + Send + 'static,
{
    type Response = R;
    type Future = BoxFuture<'static, std::result::Result<tonic::Response<R>, Status>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        let answer = (self.handler)(self.desk.clone(), request.into_inner());
        async move { answer.await.map(tonic::Response::new).map_err(|error| status(&error)) }
            .boxed()
    }
}

struct Many<H> {
    desk: Arc<dyn Desk>,
    handler: H,
}

type Replies<R> = Pin<Box<dyn Stream<Item = std::result::Result<R, Status>> + Send>>;

impl<Q, R, H, F> StreamingService<Q> for Many<H>
where
    Q: Send + 'static,
    R: Send + 'static,
    H: Fn(Arc<dyn Desk>, Q) -> F + Clone + Send + 'static,
    F: Future<Output = Result<R>> + Send + 'static,
{
    type Response = R;
    type ResponseStream = Replies<R>;
    type Future = BoxFuture<'static, std::result::Result<tonic::Response<Replies<R>>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<Q>>) -> Self::Future {
        let (desk, handler) = (self.desk.clone(), self.handler.clone());
        async move {
            let mut messages = request.into_inner();
            let Some(first) = messages.message().await? else {
                return Err(Status::invalid_argument("the stream ended before its first request"));
            };
            let first = handler(desk.clone(), first).await.map_err(|error| status(&error))?;
            let rest = messages.then(move |message| {
                let (desk, handler) = (desk.clone(), handler.clone());
                async move { handler(desk, message?).await.map_err(|error| status(&error)) }
            });
            let replies: Replies<R> = Box::pin(stream::iter([Ok(first)]).chain(rest));
            Ok(tonic::Response::new(replies))
        }
        .boxed()
    }
}
