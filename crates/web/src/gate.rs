//! The last check before an answer leaves: was this allowed, and is it on record?
//!
//! Authorisation lives in the service verbs, where the ids are known. A verb that forgets it would
//! be an open door; here the door is found closed: the reply is replaced by an internal error, and
//! every test that calls the route fails.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use falaj_base::{Access, Action, Ctx, Error, code};

use crate::problem::{Told, problem_response};

/// Runs the handler and lets its success pass only with the action authorised and recorded.
pub(crate) async fn guard(action: &'static Action, request: Request, next: Next) -> Response {
    let Some(ctx) = request.extensions().get::<Ctx>().cloned() else {
        return problem_response(&Error::internal("a guarded route was reached without a context"));
    };
    let response = next.run(request).await;
    if !response.status().is_success() || is_grpc_refusal(&response) {
        return refused(action, &ctx, response);
    }
    if !ctx.has_authorized(action) {
        let text = format!("{} was answered without being authorised", action.name);
        return problem_response(&Error::internal(text));
    }
    if action.access == Access::Write && !ctx.has_recorded(action) {
        let text = format!("{} was answered without being recorded", action.name);
        return problem_response(&Error::internal(text));
    }
    response
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
