//! HTTP/1.1 for connections that bring nothing but calls on the short way, one after the other.
//!
//! Reading a head into a map, giving bodies out in frames and collecting replies again is what the
//! ordinary way does for any request there can be. Here a request is a head that came before and some
//! bytes, and its reply is one write.
//!
//! Must hold: a request that is answered here would be answered the same there (`tests` ask both). One that
//! is not plainly of this kind, and everything that the client sends after it, is for the ordinary way: that
//! gets the bytes as they came. Nothing is kept waiting longer, and nothing larger is taken in, than there:
//! all of a request lies in the room that there its head may take, or, if whoever sends it is known, in what
//! is set aside for bodies; and what is silent is closed alike.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;

use super::Express;
use super::head::{Head, Lengths, has_end, may_begin};
use super::reply::Reply;
use crate::http::activity::Activity;
use crate::http::connection::{Line, Timeouts};
use crate::http::loops::{Home, note_answered};
use crate::http::middleware::budget::Reservation;
use crate::http::port::Answered;

/// Room for a head and a small body; most requests need no more.
const ROOM: usize = 4 * 1024;
/// How long the body of a head that came is waited for here. The ordinary way asks who sends it first,
/// and how fast it must come.
const BODY_WITHIN: Duration = Duration::from_millis(50);

/// How long calls are answered where they come.
#[derive(Debug)]
pub(in crate::http) enum Stay {
    /// One, and no more: whoever sends a second may send many, for which there are threads.
    ForOne,
    /// All of them.
    Here,
    /// All of them, and what they start runs there.
    At(Home),
}

/// How this came to its end.
#[derive(Debug)]
pub(in crate::http) enum End {
    /// So did the connection.
    Closed,
    /// Another call on the short way came than was to be answered.
    Again,
    /// The ordinary way goes on, with what came and was not answered.
    Ordinary,
}

/// What was waited for.
enum Came {
    Bytes(usize),
    /// The client left, or was silent for too long.
    Nothing,
    /// What came is not to be waited for here any longer.
    Late,
}

/// A connection.
pub(in crate::http) struct Wire<S> {
    pub(in crate::http) stream: S,
    pub(in crate::http) line: Line,
    pub(in crate::http) activity: Activity,
    pub(in crate::http) timeouts: Timeouts,
    /// What came and was not answered.
    pub(in crate::http) came: Vec<u8>,
    /// What holds that, if it is more than a stranger may have us keep.
    pub(in crate::http) room: Option<Reservation>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Answers requests for as long as they are of this kind.
    pub(in crate::http) async fn serve(&mut self, express: &Arc<Express>, stay: Stay) -> End {
        let Self { stream, line, activity, timeouts, came, room } = self;
        let mut quiet = pin!(activity.silence(timeouts.header, timeouts.idle));
        let mut stopping = pin!(line.drain.started());
        let (mut known, mut reply) = (None, Vec::new());
        loop {
            let (mut head_since, mut scanned) = (None, 0);
            let lengths = loop {
                let since = match found(came, &mut known, &mut scanned, express, line) {
                    Found::Head(it) if it.all() > express.max_size && room.is_none() => {
                        let head = known.as_ref().map(|head| (head, it));
                        *room = head.and_then(|head| express.room(head, came.len(), line));
                        if room.is_none() {
                            return End::Ordinary;
                        }
                        came.reserve(it.all().saturating_sub(came.len()) + ROOM);
                        continue;
                    }
                    Found::Head(whole) if came.len() >= whole.all() => break whole,
                    // From when the head was there: each piece of the body is not waited for anew.
                    Found::Head(_) => Some(*head_since.get_or_insert_with(Instant::now)),
                    Found::Beginning if came.len() < express.max_size => None,
                    Found::Beginning | Found::Other => return End::Ordinary,
                };
                let mut late = pin!(patience(since));
                let waited = poll_fn(|cx| {
                    if let Poll::Ready(read) = read_more(stream, cx, came) {
                        return Poll::Ready(match (read, since) {
                            (Ok(count @ 1..), _) => Came::Bytes(count),
                            (_, None) => Came::Nothing,
                            // A body that breaks off is answered.
                            (_, Some(_)) => Came::Late,
                        });
                    }
                    // One whose head came is not silent.
                    if since.is_none() && quiet.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Came::Nothing);
                    }
                    let late = since.is_some() && late.as_mut().poll(cx).is_ready();
                    if late || stopping.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Came::Late);
                    }
                    Poll::Pending
                });
                match waited.await {
                    Came::Bytes(count) => {
                        if room.as_mut().is_some_and(|room| room.grow(count).is_err()) {
                            return End::Ordinary;
                        }
                    }
                    Came::Nothing => {
                        let _ = stream.shutdown().await;
                        return End::Closed;
                    }
                    Came::Late => return End::Ordinary,
                }
            };
            if matches!(stay, Stay::ForOne) && activity.has_served() {
                return End::Again;
            }
            let Some(head) = &known else { return End::Ordinary };
            let busy = activity.begin();
            let body = (taken(came, lengths), room.take());
            let answer = express.port.answer_known(head, body, line);
            let answer = pin!(async {
                match &stay {
                    Stay::At(home) => home.of(answer).await,
                    Stay::ForOne | Stay::Here => answer.await,
                }
            });
            let answered = unless_gone(answer, stream, came, express.max_size);
            let Some(answered) = answered.await else { return End::Closed };
            if matches!(stay, Stay::At(_)) {
                note_answered(answered.no_room);
                // What this thread was brought is answered before it is told, some dozens at a time: clients
                // that wait for several answers are then woken once, and not by each.
                tokio::task::yield_now().await;
            }
            let last = answered.ends || line.drain.has_started();
            let (tls, words) = (line.peer.tls, head.words);
            let told = Reply { answer: answered.answer, id: answered.id, words, tls, last };
            told.write(&mut reply).await;
            if write(stream, &reply).await.is_err() {
                return End::Closed;
            }
            drop((answered.held, busy));
            if last {
                let _ = stream.shutdown().await;
                return End::Closed;
            }
            // A large one is not kept for small ones.
            reply.clear();
            reply.shrink_to(ROOM);
            if came.is_empty() {
                came.shrink_to(ROOM);
            }
        }
    }
}

/// Waits for an answer, unless the client leaves: nobody need answer it then. What it sends meanwhile is
/// its next request; one that sends another and then no more waits for both.
async fn unless_gone<S: AsyncRead + Unpin>(
    mut answer: Pin<&mut impl Future<Output = Answered>>,
    stream: &mut S,
    came: &mut Vec<u8>,
    max_size: usize,
) -> Option<Answered> {
    poll_fn(|cx| {
        if let Poll::Ready(answered) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(answered));
        }
        while came.len() < max_size {
            match read_more(stream, cx, came) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) if came.is_empty() => return Poll::Ready(None),
                Poll::Ready(_) | Poll::Pending => break,
            }
        }
        Poll::Pending
    })
    .await
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, reply: &[u8]) -> io::Result<()> {
    stream.write_all(reply).await?;
    stream.flush().await
}

/// What came may begin with.
enum Found {
    Head(Lengths),
    /// More may make a request of this kind of it.
    Beginning,
    Other,
}

/// A head that the last request had, too, or else one that is read for the first time. Where there is none
/// before `scanned`, its end is not looked for again.
fn found(
    came: &[u8],
    known: &mut Option<Head>,
    scanned: &mut usize,
    express: &Arc<Express>,
    line: &Line,
) -> Found {
    if let Some(lengths) = known.as_ref().and_then(|head| head.comes_again(came)) {
        return Found::Head(lengths);
    }
    if !may_begin(came) {
        return Found::Other;
    }
    if !has_end(came, scanned) {
        return Found::Beginning;
    }
    let Some((head, lengths)) = Head::read(came, express, line) else { return Found::Other };
    *known = Some(head);
    Found::Head(lengths)
}

/// Ends when the body of a head should have come; at once if there is no head yet.
async fn patience(head_since: Option<Instant>) {
    if let Some(since) = head_since {
        tokio::time::sleep_until(since + BODY_WITHIN).await;
    }
}

/// Takes a request out of what came; its body.
fn taken(came: &mut Vec<u8>, lengths: Lengths) -> Bytes {
    let end = lengths.all();
    if end == came.len() && end > ROOM {
        return Bytes::from(std::mem::take(came)).slice(lengths.head..);
    }
    let body = Bytes::copy_from_slice(&came[lengths.head..end]);
    if end == came.len() {
        came.clear();
    } else {
        came.drain(..end);
    }
    body
}

fn read_more<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    came: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    if came.capacity() - came.len() < ROOM / 2 {
        came.reserve(came.len().max(ROOM));
    }
    poll_read_buf(Pin::new(stream), cx, came)
}
