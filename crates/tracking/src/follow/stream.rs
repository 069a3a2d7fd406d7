//! The stream itself: looks at the run from time to time and tells what is new.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_base::Result;
use falaj_store::db::{Tx, params};
use falaj_web::Stopping;
use futures::stream::{self, Stream};
use http::header;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cursor::Cursor;
use super::seats::Seat;
use crate::access::Home;
use crate::console;
use crate::experiment::Stage;
use crate::key;
use crate::metric::{self, Point};
use crate::native::Native;
use crate::run::{RunId, RunStatus};

/// How long one stream lasts. The client comes back with the id it saw last, and with a credential
/// that is looked at again.
const LIFETIME: Duration = Duration::from_mins(1);
/// A comment keeps proxies from closing a quiet stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How much of a log one event holds.
const LOG_PIECE: usize = 64 << 10;

/// What a follower wants to hear of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct What {
    pub(super) status: bool,
    pub(super) metrics: bool,
    pub(super) log: bool,
}

struct Follower {
    native: Arc<Native>,
    run: RunId,
    what: What,
    cursor: Cursor,
    /// What was told last of each metric.
    told: HashMap<i64, Point>,
    first: bool,
    epoch: u64,
    opened: Instant,
    last_sent: Instant,
    stopping: Stopping,
    over: bool,
    /// When the run was looked at last, as a whole.
    looked: Option<Instant>,
    /// Whether there is more of the log than was told.
    behind: bool,
    _seat: Seat,
}

pub(super) fn follow(
    native: &Arc<Native>,
    home: &Home,
    what: What,
    cursor: Cursor,
    stopping: Stopping,
    seat: Seat,
) -> Response {
    let follower = Follower {
        epoch: native.places().epoch(),
        native: native.clone(),
        run: home.run,
        what,
        cursor,
        told: HashMap::new(),
        first: true,
        opened: Instant::now(),
        last_sent: Instant::now(),
        stopping,
        over: false,
        looked: None,
        behind: false,
        _seat: seat,
    };
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(frames(follower))).into_response()
}

fn frames(follower: Follower) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(follower, |mut follower| async move {
        follower.next_frame().await.map(|frame| (Ok(frame), follower))
    })
}

/// The run at one look.
#[derive(Debug)]
struct Seen {
    version: i64,
    name: String,
    status: RunStatus,
    end_time: Option<i64>,
    stage: Stage,
    /// If they were asked for and may be new: by the number of their key, with its name.
    metrics: Vec<(i64, String, Point)>,
    log: Vec<u8>,
    log_size: u64,
}

impl Follower {
    /// The next thing to send; `None` ends the stream: the run is over or gone, rights changed, its
    /// time is over, or the server is stopping.
    async fn next_frame(&mut self) -> Option<Bytes> {
        let every = self.native.tracking().config().follow.look_every.get();
        loop {
            if self.over {
                return None;
            }
            // A client that reads fast is no reason to look more often; but a log that is already
            // there is read on at once, and only the log.
            let due = self.looked.map_or_else(Instant::now, |looked| looked + every);
            let whole = !self.behind || due <= Instant::now();
            if whole {
                tokio::select! {
                    () = tokio::time::sleep_until(due) => self.looked = Some(Instant::now()),
                    () = self.stopping.begun() => return None,
                }
            }
            let changed = self.native.places().epoch() != self.epoch;
            if changed || self.opened.elapsed() >= LIFETIME {
                return None;
            }
            let seen = match self.look(whole).await {
                Ok(Some(seen)) => seen,
                Ok(None) => {
                    self.over = true;
                    return Some("event: gone\ndata: {}\n\n".into());
                }
                Err(error) => {
                    tracing::warn!(run = %self.run, "a stream ends: {}", error.chain());
                    return None;
                }
            };
            let text = self.tell(seen, whole);
            if !text.is_empty() {
                self.last_sent = Instant::now();
                return Some(text.into());
            }
            if self.last_sent.elapsed() >= HEARTBEAT {
                self.last_sent = Instant::now();
                return Some(Bytes::from_static(b": still here\n\n"));
            }
        }
    }

    async fn look(&self, whole: bool) -> Result<Option<Seen>> {
        let (run, cursor, first) = (self.run, self.cursor, self.first);
        let what = What { metrics: self.what.metrics && whole, ..self.what };
        self.native.tracking().db().read(move |tx| look(tx, run, what, cursor, first)).await
    }

    /// The events that tell what is new, and moves on. Of a look that was not at the whole run,
    /// only the log is told.
    fn tell(&mut self, seen: Seen, whole: bool) -> String {
        let mut text = String::new();
        let is_new = self.first || seen.version != self.cursor.version;
        let resumed = self.cursor.version == seen.version;
        if !seen.log.is_empty() {
            let start = self.cursor.log;
            self.cursor.log += seen.log.len() as u64;
            let data = match std::str::from_utf8(&seen.log) {
                Ok(plain) => json!({ "offset": start, "text": plain }),
                Err(_) => json!({ "offset": start, "base64": STANDARD.encode(&seen.log) }),
            };
            self.event(&mut text, "log", &data);
        }
        let all_told = self.cursor.log >= seen.log_size || !self.what.log;
        self.behind = !all_told && !text.is_empty();
        if !whole {
            return text;
        }
        if is_new {
            self.cursor.version = seen.version;
        }
        let news: Vec<Value> = seen
            .metrics
            .iter()
            .filter(|(key, _, point)| self.told.get(key) != Some(point))
            .map(|(_, name, point)| metric_json(name, *point))
            .collect();
        self.told.extend(seen.metrics.iter().map(|(key, _, point)| (*key, *point)));
        if !news.is_empty() {
            self.event(&mut text, "metrics", &json!({ "metrics": news }));
        }
        let over =
            matches!(seen.status, RunStatus::Finished | RunStatus::Failed | RunStatus::Killed);
        if (self.what.status && is_new && !(self.first && resumed)) || (over && all_told) {
            let data = json!({
                "run_id": self.run.to_string(), "run_name": seen.name,
                "status": seen.status.as_str(), "lifecycle_stage": seen.stage,
                "end_time": seen.end_time,
            });
            let kind = if over && all_told { "end" } else { "status" };
            self.event(&mut text, kind, &data);
        }
        self.over = over && all_told;
        self.first = false;
        text
    }

    fn event(&self, text: &mut String, kind: &str, data: &Value) {
        // Writing into a String cannot fail.
        let _ = write!(text, "id: {}\nevent: {kind}\ndata: {data}\n\n", self.cursor);
    }
}

fn look(
    tx: &mut Tx<'_>,
    run: RunId,
    what: What,
    cursor: Cursor,
    first: bool,
) -> Result<Option<Seen>> {
    // The sum of all: the greatest alone does not tell of a change with a lower version that was
    // committed later.
    let row = tx.query_opt(
        "SELECT r.name, r.status, r.end_time, r.stage,
             CAST((SELECT COALESCE(SUM(t.version), 0) FROM run_touch t WHERE t.run = r.id)
                + (SELECT COALESCE(SUM(l.version), 0) FROM metric_log l WHERE l.run = r.id) AS BIGINT)
                 AS version
         FROM run r
         JOIN experiment e ON e.no = r.experiment WHERE r.id = $1 AND e.id >= 0",
        &params![run],
    )?;
    let Some(row) = row else { return Ok(None) };
    let mut seen = Seen {
        version: row.get("version")?,
        name: row.get("name")?,
        status: row.get("status")?,
        end_time: row.get("end_time")?,
        stage: row.get("stage")?,
        metrics: Vec::new(),
        log: Vec::new(),
        log_size: 0,
    };
    if what.metrics && (first || seen.version != cursor.version) {
        let latest = metric::latest::latest(tx, &[run])?;
        let names = key::names(tx, latest.iter().map(|(_, key, _)| *key))?;
        for (_, key, latest) in latest {
            if let Some(name) = names.get(&key) {
                seen.metrics.push((key, name.clone(), latest.last));
            }
        }
    }
    if what.log {
        seen.log_size = console::store::length(tx, run)?;
        if seen.log_size > cursor.log {
            let bytes = console::store::read(tx, run, cursor.log, LOG_PIECE)?;
            seen.log = whole_letters(bytes, seen.log_size - cursor.log);
        }
    }
    Ok(Some(seen))
}

/// Bytes up to the end of the last whole letter, where more of the log may follow: a letter that
/// was cut in two is told with the next piece. Bytes that are no text are told as they are.
fn whole_letters(mut bytes: Vec<u8>, available: u64) -> Vec<u8> {
    let cut = match std::str::from_utf8(&bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
            Some(error.valid_up_to())
        }
        _ => None,
    };
    // At the very end of the log a half letter waits for the other half, or for the run's end.
    if let Some(cut) = cut.filter(|cut| (*cut as u64) < available) {
        bytes.truncate(cut);
    }
    bytes
}

fn metric_json(name: &str, point: Point) -> Value {
    let value = point.value();
    let shown = match value {
        _ if value.is_finite() => json!(value),
        _ if value.is_nan() => json!("NaN"),
        _ if value > 0.0 => json!("Infinity"),
        _ => json!("-Infinity"),
    };
    json!({ "key": name, "value": shown, "step": point.step(), "timestamp": point.timestamp() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_not_cut_in_two() {
        let text = "aé".as_bytes();
        assert_eq!(whole_letters(text[..2].to_vec(), 3), b"a");
        assert_eq!(whole_letters(text.to_vec(), 3), text);
        assert_eq!(whole_letters(vec![0xff, 0xfe], 2), [0xff, 0xfe]);
        assert_eq!(whole_letters(text[1..2].to_vec(), 1), text[1..2]);
    }
}
