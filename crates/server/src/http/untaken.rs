//! A response body that gives up on a client which does not take it.
//!
//! On HTTP/2 a client says of each response how much of it may be sent. One that says "nothing" and
//! keeps its connection alive would hold the response, and all the slots that go with it, for ever:
//! the socket itself never stalls.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The most that is handed over at a time. A client that takes a long piece slowly is seen to take
/// it, because it asks for the next part of it.
const PIECE: usize = 32 << 10;

/// Drops the body inside when nobody asked for more of it for `patience`. Waiting for the body to
/// have more does not count.
pub(super) struct Untaken {
    state: Arc<Mutex<State>>,
    watch: AbortHandle,
}

struct State {
    body: Option<Body>,
    /// What is left of a long piece.
    rest: Bytes,
    /// Since when the client could take more and does not.
    offered: Option<Instant>,
}

impl Untaken {
    pub(super) fn wrap(body: Body, patience: Duration) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let offered = Some(Instant::now());
        let state = State { body: Some(body), rest: Bytes::new(), offered };
        let state = Arc::new(Mutex::new(state));
        let watch = tokio::spawn(give_up(state.clone(), patience)).abort_handle();
        Body::new(Self { state, watch })
    }
}

impl State {
    /// A frame, if it is short; else its beginning.
    fn first_of(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_data() {
            Ok(data) => {
                self.rest = data;
                self.next_of_rest()
            }
            Err(frame) => frame,
        }
    }

    fn next_of_rest(&mut self) -> Frame<Bytes> {
        Frame::data(self.rest.split_to(self.rest.len().min(PIECE)))
    }
}

/// Ends with the body, or once it is given up.
async fn give_up(state: Arc<Mutex<State>>, patience: Duration) {
    let mut next = Instant::now() + patience;
    loop {
        tokio::time::sleep_until(next).await;
        let mut state = lock(&state);
        next = state.offered.unwrap_or_else(Instant::now) + patience;
        if next <= Instant::now() {
            let given_up = (state.body.take(), std::mem::take(&mut state.rest));
            // What goes with it may take locks of its own.
            drop(state);
            drop(given_up);
            return;
        }
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HttpBody for Untaken {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let Some(body) = &mut state.body else {
            let late =
                io::Error::new(io::ErrorKind::TimedOut, "the client did not take it in time");
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        };
        let polled = if state.rest.is_empty() {
            Pin::new(body).poll_frame(cx).map_ok(|frame| state.first_of(frame))
        } else {
            Poll::Ready(Some(Ok(state.next_of_rest())))
        };
        state.offered = match &polled {
            Poll::Ready(Some(Ok(_))) => Some(Instant::now()),
            Poll::Ready(None | Some(Err(_))) | Poll::Pending => None,
        };
        polled
    }

    fn is_end_stream(&self) -> bool {
        let state = lock(&self.state);
        state.rest.is_empty() && state.body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let state = lock(&self.state);
        let rest = state.rest.len() as u64;
        let mut hint = state.body.as_ref().map(HttpBody::size_hint).unwrap_or_default();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        self.watch.abort();
        // At once: the watch lets go of it only when it is next looked at.
        let body = lock(&self.state).body.take();
        drop(body);
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::BodyExt;

    use super::*;
    use crate::http::held::Held;

    const PATIENCE: Duration = Duration::from_secs(30);
    const NEARLY: Duration = Duration::from_secs(29);

    fn guarded(held: &Arc<()>, parts: usize, every: Duration) -> Body {
        let parts = stream::unfold(0, move |at| async move {
            tokio::time::sleep(every).await;
            (at < parts).then(|| (Ok::<_, io::Error>(Bytes::from_static(b"part")), at + 1))
        });
        Untaken::wrap(Held::wrap(Body::from_stream(parts), held.clone()), PATIENCE)
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_takes_is_given_up() {
        let held = Arc::new(());
        for taken in 0..2 {
            let mut body = guarded(&held, 3, Duration::ZERO);
            for _ in 0..taken {
                assert!(body.frame().await.unwrap().is_ok());
            }
            tokio::time::sleep(NEARLY).await;
            assert_eq!(Arc::strong_count(&held), 2, "{taken}");
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(Arc::strong_count(&held), 1, "{taken}");
            assert!(body.frame().await.unwrap().is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_piece_may_be_taken_slowly() {
        let piece = Bytes::from(vec![7; 10 * PIECE + 1]);
        let mut body = Untaken::wrap(Body::from(piece.clone()), PATIENCE);
        assert_eq!(body.size_hint().exact(), Some(piece.len() as u64));
        let mut taken = Vec::new();
        while taken.len() < piece.len() {
            tokio::time::sleep(NEARLY).await;
            taken.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
            assert_eq!(body.size_hint().exact(), Some((piece.len() - taken.len()) as u64));
        }
        assert_eq!(taken, piece);
        assert!(body.is_end_stream());
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_source_and_a_slow_reader_are_waited_for() {
        let held = Arc::new(());
        let body = guarded(&held, 3, 10 * PATIENCE);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "partpartpart");
        let mut body = guarded(&held, 3, Duration::ZERO);
        for _ in 0..3 {
            tokio::time::sleep(NEARLY).await;
            assert!(body.frame().await.unwrap().is_ok());
        }
        drop(body);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
