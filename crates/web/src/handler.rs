//! A handler whose type is forgotten.
//!
//! axum compiles a chain of services for the type of every handler, and runs it once when the router
//! is put together. Hundreds of endpoints make that the largest part of the program and of what it
//! touches when it starts; with one type for all there is one chain.

use std::fmt;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use futures::FutureExt;
use futures::future::BoxFuture;

/// Answers requests by one method with what `answer` gives.
pub fn handled<H, F>(filter: MethodFilter, answer: H) -> MethodRouter
where
    H: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    route(filter, Erased(Arc::new(move |request| answer(request).boxed())))
}

#[derive(Clone)]
struct Erased(Arc<dyn Fn(Request) -> BoxFuture<'static, Response> + Send + Sync>);

impl fmt::Debug for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Erased")
    }
}

impl Handler<(), ()> for Erased {
    type Future = BoxFuture<'static, Response>;

    fn call(self, request: Request, (): ()) -> Self::Future {
        (self.0)(request)
    }
}

/// Apart, so that the chain is compiled in this crate alone.
fn route(filter: MethodFilter, handler: Erased) -> MethodRouter {
    on(filter, handler)
}
