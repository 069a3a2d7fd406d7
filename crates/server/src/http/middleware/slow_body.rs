//! A request body must keep coming.
//!
//! Only the time the server spends *waiting* for bytes counts, so a handler that is slow to take
//! them never costs the client anything. The allowance is a grace period plus one second for
//! every `min_body_rate` bytes received: a byte every ten seconds ends soon, a slow but steady
//! upload does not.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use falaj_base::{Error, code};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::http::config::LimitsConfig;

/// How patient the server is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    grace: Duration,
    bytes_per_second: u64,
}

impl Patience {
    pub(crate) fn new(limits: &LimitsConfig) -> Self {
        Self {
            grace: limits.body_grace.get(),
            bytes_per_second: limits.min_body_rate.bytes().max(1),
        }
    }

    fn allowance(&self, received: u64) -> Duration {
        let earned = Duration::from_millis(received.saturating_mul(1000) / self.bytes_per_second);
        self.grace.saturating_add(earned)
    }
}

/// A body that is given up if it comes too slowly.
pub(crate) struct Paced {
    body: Body,
    patience: Patience,
    received: u64,
    waited: Duration,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
    ended: bool,
}

impl Paced {
    pub(crate) fn new(body: Body, patience: Patience) -> Self {
        let waited = Duration::ZERO;
        Self { body, patience, received: 0, waited, waiting: None, ended: false }
    }

    /// Whether it was read to its end.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }

    /// Sleeps until the allowance is spent; ready means it is.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let left = self.patience.allowance(self.received).saturating_sub(self.waited);
        let (_, timer) = self.waiting.get_or_insert_with(|| {
            let now = Instant::now();
            // A wait of years is as good as none, and cannot overflow the clock.
            let end = now + left.min(Duration::from_hours(24 * 365));
            (now, Box::pin(tokio::time::sleep_until(end)))
        });
        timer.as_mut().poll(cx)
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.poll_patience(cx).map(|()| Some(Err(too_slow().into())));
        };
        self.ended |= frame.is_none();
        if let Some((since, _)) = self.waiting.take() {
            self.waited += since.elapsed();
        }
        if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
            self.received += data.map_or(0, |data| data.len() as u64);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn too_slow() -> Error {
    let message = "the body came too slowly (`limits.body_grace`, `limits.min_body_rate`)";
    Error::new(&code::MALFORMED_BODY, message)
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use http_body_util::BodyExt;

    use super::*;

    fn patience() -> Patience {
        Patience { grace: Duration::from_secs(15), bytes_per_second: 500 }
    }

    /// A body of `count` chunks of `size` bytes, one every `pause`.
    fn dripping(count: usize, size: usize, pause: Duration) -> Body {
        let chunks = futures::stream::iter(0..count).then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, std::io::Error>(Bytes::from(vec![0; size]))
        });
        Body::from_stream(chunks)
    }

    #[tokio::test(start_paused = true)]
    async fn a_drip_ends_and_a_stream_flows() {
        let start = Instant::now();
        let drip = Paced::new(dripping(100, 1, Duration::from_secs(10)), patience());
        assert!(drip.collect().await.is_err());
        assert!(start.elapsed() < Duration::from_secs(30));

        let steady = Paced::new(dripping(100, 1000, Duration::from_secs(1)), patience());
        assert_eq!(steady.collect().await.unwrap().to_bytes().len(), 100_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_not_the_clients_fault() {
        let mut body = Paced::new(dripping(10, 1, Duration::from_millis(1)), patience());
        let mut frames = 0;
        while let Some(frame) = body.frame().await {
            frame.unwrap();
            frames += 1;
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        assert_eq!(frames, 10);
    }
}
