//! The last check before a success leaves: was this allowed, and is it on record?
//!
//! Authorisation lives in the service verbs, where the ids are known. A verb that forgets it would
//! be an open door; here the door is found closed: the reply is replaced by an internal error, and
//! every test that calls the route fails.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use falaj_base::{Access, Action, Ctx, Error};

use crate::problem::problem_response;

/// Runs the handler and lets its success pass only with the action authorised and recorded.
pub(crate) async fn guard(action: &'static Action, request: Request, next: Next) -> Response {
    let Some(ctx) = request.extensions().get::<Ctx>().cloned() else {
        return problem_response(&Error::internal("a guarded route was reached without a context"));
    };
    let response = next.run(request).await;
    if !response.status().is_success() {
        return response;
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
