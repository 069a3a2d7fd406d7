//! A response body that keeps something alive until it has been sent or given up.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

/// Drops `held` together with the body: when the last byte is out, or the client has gone.
pub(crate) struct Held<T> {
    body: Body,
    held: Option<T>,
}

impl<T> Held<T> {
    pub(crate) fn new(body: Body, held: T) -> Self {
        Self { body, held: Some(held) }
    }
}

impl<T: Send + Unpin + 'static> Held<T> {
    pub(crate) fn wrap(body: Body, held: T) -> Body {
        Body::new(Self::new(body, held))
    }
}

impl<T: Unpin> HttpBody for Held<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.held = None;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn what_is_held_goes_with_the_body() {
        let held = Arc::new(());
        let body = Held::wrap(Body::from("hello"), Arc::clone(&held));
        assert_eq!(Arc::strong_count(&held), 2);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
        assert_eq!(Arc::strong_count(&held), 1);

        drop(Held::wrap(Body::from("unread"), Arc::clone(&held)));
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
