//! Following the log live, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use falaj_base::{Ctx, Error, Result, code};
use falaj_store::events::{Cursor, Event, Filter};
use futures::stream::{self, Stream};
use http::header;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::service::Events;
use crate::http::Drain;

/// How many events are read at a time.
const BATCH: usize = 100;
/// How long one stream lasts. The client comes back with the id it saw last, and with a credential
/// that is looked at again: one that has run out by then gets no further.
const LIFETIME: Duration = Duration::from_mins(1);
/// A comment keeps proxies from closing a quiet stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

struct Follower {
    events: Arc<Events>,
    ctx: Ctx,
    filter: Filter,
    cursor: Cursor,
    news: watch::Receiver<u64>,
    /// The rights this stream was opened under.
    epoch: u64,
    opened: tokio::time::Instant,
    last_sent: tokio::time::Instant,
    drain: Drain,
    _place: OwnedSemaphorePermit,
}

pub(super) fn follow(
    events: Arc<Events>,
    ctx: Ctx,
    filter: Filter,
    cursor: Cursor,
    drain: Drain,
) -> Result<Response> {
    let place = events.streams.clone().try_acquire_owned().map_err(|_| {
        Error::new(&code::OVERLOADED, "all live event streams are taken")
            .retry_after(Duration::from_secs(5))
    })?;
    let follower = Follower {
        news: events.log.watch(),
        epoch: events.epoch.current(),
        opened: tokio::time::Instant::now(),
        last_sent: tokio::time::Instant::now(),
        events,
        ctx,
        filter,
        cursor,
        drain,
        _place: place,
    };
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(frames(follower))).into_response())
}

fn frames(follower: Follower) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(follower, |mut follower| async move {
        follower.next_frame().await.map(|frame| (Ok(frame), follower))
    })
}

impl Follower {
    /// The next thing to send; `None` ends the stream: rights changed, its time is over, or the
    /// server is stopping.
    async fn next_frame(&mut self) -> Option<Bytes> {
        loop {
            if self.events.epoch.current() != self.epoch || self.opened.elapsed() >= LIFETIME {
                return None;
            }
            let read = self.events.read(&self.ctx, self.cursor, self.filter.clone(), BATCH).await;
            let (visible, next) = match read {
                Ok(read) => read,
                Err(error) => {
                    tracing::warn!("an event stream ends: {}", error.chain());
                    return None;
                }
            };
            let moved = next != self.cursor;
            self.cursor = next;
            if !visible.is_empty() {
                self.last_sent = tokio::time::Instant::now();
                return Some(visible.iter().map(frame).collect::<String>().into());
            }
            if self.last_sent.elapsed() >= HEARTBEAT {
                self.last_sent = tokio::time::Instant::now();
                return Some(Bytes::from_static(b": still here\n\n"));
            }
            if !moved {
                let news = self.events.log.changed(&mut self.news);
                self.drain.unless_started(news).await?;
            }
        }
    }
}

/// One event in the wire form; its id is what a client sends back as `Last-Event-ID`.
fn frame(event: &Event) -> String {
    format!("id: {}\nevent: {}\ndata: {}\n\n", event.cursor, event.kind, event.cloud_event())
}
