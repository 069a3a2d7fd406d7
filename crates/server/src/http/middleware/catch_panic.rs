//! A panic in a handler is that request's internal error, and nobody else's.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use super::pipeline::Next;
use axum::extract::Request;
use axum::response::Response;
use falaj_base::Error;
use futures::FutureExt;

use crate::http::reply::refuse;

pub(crate) async fn contain(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => refuse(Error::internal(format!("a handler panicked: {}", text(&*panic)))),
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)")
}
