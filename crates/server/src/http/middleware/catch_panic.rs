//! A panic in a handler is that request's internal error, and nobody else's.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use falaj_base::{Error, Result};
use futures::FutureExt;

pub(crate) async fn contain<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        Err(Error::internal(format!("a handler panicked: {}", text(&*panic))))
    })
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)")
}
