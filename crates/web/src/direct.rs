//! The short way to a handler, for calls that come by the ten thousand a second: it is given what
//! others take out of a request themselves.

use std::fmt;
use std::sync::Arc;

use axum::body::Bytes;
use axum::response::Response;
use falaj_base::{Ctx, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;

use crate::gate;
use crate::problem::problem_response;
use crate::routes::Endpoint;

/// Answers a call whose caller is known and whose body is in memory.
#[derive(Clone)]
pub struct Direct(Arc<dyn Fn(Ctx, Parts, Bytes) -> BoxFuture<'static, Response> + Send + Sync>);

impl Direct {
    pub fn answer(&self, ctx: Ctx, parts: Parts, body: Bytes) -> BoxFuture<'static, Response> {
        (self.0)(ctx, parts, body)
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Direct")
    }
}

impl Endpoint {
    /// Answers calls whose path names its one parameter plainly with `handler`, which must do what
    /// the endpoint's own handler does. The last check before an answer leaves is the same.
    pub fn directly<H, F>(&mut self, handler: H)
    where
        H: Fn(Ctx, Parts, Bytes) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Response>> + Send + 'static,
    {
        let Some(action) = self.action else { return };
        self.direct = Some(Direct(Arc::new(move |ctx: Ctx, parts, body| {
            let noted = ctx.clone();
            let answer = handler(ctx, parts, body);
            async move {
                let response = answer.await.unwrap_or_else(|error| problem_response(&error));
                gate::pass(action, &noted, response)
            }
            .boxed()
        })));
    }
}
