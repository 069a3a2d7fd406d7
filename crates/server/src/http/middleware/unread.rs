//! A reply that comes before the request's body was read ends an HTTP/1 connection, and says so.
//!
//! The rest of the body could be anything and of any length, so it is not read only to throw it
//! away. A client that was not told would send its next request into a closed connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use http::header::CONNECTION;
use http::{HeaderValue, Version};
use hyper::body::{Frame, SizeHint};

/// Whether the body of a request was read to its end.
#[derive(Debug)]
pub(crate) enum Reading {
    /// Nobody needs to know: there is none, or HTTP/2 ends each stream alone.
    Ended,
    /// Not yet.
    Open,
    /// By whoever has it now.
    Elsewhere(Arc<AtomicBool>),
}

impl Reading {
    pub(crate) fn of(request: &Request) -> Self {
        if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
            return Self::Ended;
        }
        Self::Open
    }

    /// The body is in memory.
    pub(crate) fn end(&mut self) {
        *self = Self::Ended;
    }

    /// The body is given to somebody who reads as much of it as they like.
    pub(crate) fn give(&mut self, body: Body) -> Body {
        if matches!(self, Self::Ended) {
            return body;
        }
        let read = Arc::new(AtomicBool::new(false));
        *self = Self::Elsewhere(read.clone());
        Body::new(Noted { body, read })
    }

    /// Tells the caller if the connection ends with this reply.
    pub(crate) fn tell(&self, response: &mut Response) {
        let read = match self {
            Self::Ended => true,
            Self::Open => false,
            Self::Elsewhere(read) => read.load(Ordering::Acquire),
        };
        if !read {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
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
