//! A reply that comes before the request's body was read ends an HTTP/1 connection, and says so.
//!
//! The rest of the body could be anything and of any length, so it is not read only to throw it
//! away. A client that was not told would send its next request into a closed connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use super::pipeline::Next;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use http::header::CONNECTION;
use http::{HeaderValue, Version};
use hyper::body::{Frame, SizeHint};

pub(crate) async fn say_so(request: Request, next: Next) -> Response {
    if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
        return next.run(request).await;
    }
    let read = Arc::new(AtomicBool::new(false));
    let noted = read.clone();
    let mut response = next.run(request.map(|body| Body::new(Noted { body, read: noted }))).await;
    if !read.load(Ordering::Acquire) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Notes when the body has come to its end.
struct Noted {
    body: Body,
    read: Arc<AtomicBool>,
}

impl HttpBody for Noted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let ended = matches!(polled, Poll::Ready(None));
        if ended || (matches!(polled, Poll::Ready(Some(Ok(_)))) && self.body.is_end_stream()) {
            self.read.store(true, Ordering::Release);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
