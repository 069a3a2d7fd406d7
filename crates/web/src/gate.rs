//! The last check before an answer leaves: was this allowed, and is it on record?
//!
//! Authorisation lives in the service verbs, where the ids are known. A verb that forgets it would
//! be an open door; here the door is found closed: the reply is replaced by an internal error, and
//! every test that calls the route fails.

use std::convert::Infallible;
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::response::Response;
use falaj_base::{Access, Action, Ctx, Error, Result, code};
use futures::FutureExt;
use futures::future::BoxFuture;
use tower::{Layer, Service};

use crate::problem::{Told, problem_response};

/// Stands before the handlers of one endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard(pub(crate) &'static Action);

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, handler: S) -> Guarded<S> {
        Guarded { action: self.0, handler }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Guarded<S> {
    action: &'static Action,
    handler: S,
}

impl<S> Service<Request> for Guarded<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.handler.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let Some(ctx) = request.extensions().get::<Ctx>().cloned() else {
            let error = Error::internal("a guarded route was reached without a context");
            return std::future::ready(Ok(problem_response(&error))).boxed();
        };
        let action = self.action;
        self.handler
            .call(request)
            .map(move |answer| answer.map(|it| pass(action, &ctx, it)))
            .boxed()
    }
}

/// Lets a success pass only with the action authorised and recorded.
pub(crate) fn pass(action: &Action, ctx: &Ctx, response: Response) -> Response {
    if !response.status().is_success() || is_grpc_refusal(&response) {
        return refused(action, ctx, response);
    }
    match may_succeed(action, ctx) {
        Ok(()) => response,
        Err(fault) => problem_response(&fault),
    }
}

/// Whether the action was authorised, and recorded if it must be.
pub(crate) fn may_succeed(action: &Action, ctx: &Ctx) -> Result<()> {
    if !ctx.has_authorized(action) {
        let text = format!("{} was answered without being authorised", action.name);
        return Err(Error::internal(text));
    }
    if action.access == Access::Write && !ctx.has_recorded(action) {
        let text = format!("{} was answered without being recorded", action.name);
        return Err(Error::internal(text));
    }
    Ok(())
}

/// gRPC tells of a refusal in a header, under a status that is always 200; with that header there
/// is no message.
fn is_grpc_refusal(response: &Response) -> bool {
    response.headers().get("grpc-status").is_some_and(|status| status != "0")
}

/// The gate records its own refusals. A residency rule refuses later, in a verb, and a verb that
/// forgets to put that on record is found here.
fn refused(action: &Action, ctx: &Ctx, response: Response) -> Response {
    let told = response.extensions().get::<Told>();
    let residency = told.is_some_and(|told| *told.code == code::RESIDENCY);
    if residency && action.access == Access::Write && !ctx.has_denied(action) {
        let text = format!("{} was refused without being recorded", action.name);
        return problem_response(&Error::internal(text));
    }
    response
}
