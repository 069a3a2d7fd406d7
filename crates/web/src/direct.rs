//! The short way to a handler, for calls that come by the ten thousand a second: it is given what
//! others take out of a request themselves.

use std::fmt;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::Response;
use falaj_base::{Ctx, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderName, HeaderValue, header};

use crate::gate;
use crate::problem::problem_response;
use crate::routes::Endpoint;

/// A success with its body in memory, and what is to be said of it.
#[derive(Clone, Debug)]
pub struct Plain {
    pub media: &'static str,
    /// A header beside that.
    pub beside: Option<(HeaderName, HeaderValue)>,
    pub body: Bytes,
}

/// What a call on the short way is answered with.
#[derive(Debug)]
pub enum Answer {
    Plain(Plain),
    Other(Response),
}

impl From<Plain> for Response {
    fn from(plain: Plain) -> Self {
        let mut response = Self::new(Body::from(plain.body));
        let headers = response.headers_mut();
        headers.extend(plain.beside);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(plain.media));
        response
    }
}

impl From<Answer> for Response {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Plain(plain) => plain.into(),
            Answer::Other(response) => response,
        }
    }
}

type Handler = dyn Fn(Ctx, Arc<Parts>, Bytes) -> BoxFuture<'static, Answer> + Send + Sync;

/// Answers a call whose caller is known and whose body is in memory.
#[derive(Clone)]
pub struct Direct(Arc<Handler>);

impl Direct {
    pub fn answer(&self, ctx: Ctx, parts: Arc<Parts>, body: Bytes) -> BoxFuture<'static, Answer> {
        (self.0)(ctx, parts, body)
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Direct")
    }
}

impl Endpoint {
    /// Answers calls whose path names its parameter, if it has one, plainly with `handler`, which must do what
    /// the endpoint's own handler does. The last check before an answer leaves is the same.
    pub fn directly<H, F>(&mut self, handler: H)
    where
        H: Fn(Ctx, Arc<Parts>, Bytes) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Plain>> + Send + 'static,
    {
        let Some(action) = self.action else { return };
        self.direct = Some(Direct(Arc::new(move |ctx: Ctx, parts, body| {
            let noted = ctx.clone();
            let answer = handler(ctx, parts, body);
            async move {
                match answer.await {
                    Ok(plain) => match gate::may_succeed(action, &noted) {
                        Ok(()) => Answer::Plain(plain),
                        Err(fault) => Answer::Other(problem_response(&fault)),
                    },
                    Err(error) => {
                        Answer::Other(gate::pass(action, &noted, problem_response(&error)))
                    }
                }
            }
            .boxed()
        })));
    }
}
