//! The messages of a gRPC body count against the memory of all bodies, as they travel.
//!
//! A stream may go on for days: what counts is the message that came last. It counts until the next one
//! begins, or until the call is answered.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use falaj_base::Result;
use falaj_web::grpc_code;
use hyper::body::{Frame, SizeHint};
use tonic::Status;

use super::budget::{Budget, Reservation};

/// Before each message: whether it is packed, and its length.
const HEAD: usize = 5;

/// What the message that came last holds of the budget.
pub(crate) type Latest = Arc<Mutex<Option<Reservation>>>;

/// A body of framed messages.
pub(super) struct Framed {
    body: Body,
    budget: Budget,
    held: Latest,
    head: Vec<u8>,
    /// What is still to come of a message.
    left: usize,
}

impl Framed {
    pub(super) fn new(body: Body, budget: Budget) -> Self {
        Self { body, budget, held: Latest::default(), head: Vec::with_capacity(HEAD), left: 0 }
    }

    /// Where its last message is held.
    pub(super) fn latest(&self) -> Latest {
        self.held.clone()
    }

    fn count(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let wanted = if self.left > 0 { self.left } else { HEAD - self.head.len() };
            let (piece, rest) = data.split_at(wanted.min(data.len()));
            data = rest;
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            if self.left > 0 {
                self.left -= piece.len();
                held.get_or_insert_with(|| self.budget.reserve()).grow(piece.len())?;
                continue;
            }
            self.head.extend_from_slice(piece);
            if let [_, length @ ..] = self.head.as_slice()
                && let Ok(length) = <[u8; 4]>::try_from(length)
            {
                self.left = u32::from_be_bytes(length) as usize;
                self.head.clear();
                *held = None;
            }
        }
        Ok(())
    }
}

impl HttpBody for Framed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, BoxError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        let Some(frame) = frame else { return Poll::Ready(None) };
        let frame = frame?;
        if let Some(data) = frame.data_ref()
            && let Err(full) = self.count(data)
        {
            // In the words that whoever reads the frames passes on.
            let status = Status::new(grpc_code(full.code()).into(), full.message());
            return Poll::Ready(Some(Err(status.into())));
        }
        Poll::Ready(Some(Ok(frame)))
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
    use http_body_util::BodyExt;

    use super::*;

    fn message(length: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.resize(bytes.len() + length as usize, 7);
        bytes
    }

    /// Reads the messages in pieces of this size; how many bytes came until one was refused.
    async fn read(lengths: &[u32], piece: usize, budget: &Budget) -> (usize, Option<Status>) {
        let bytes: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
        let pieces: Vec<_> =
            bytes.chunks(piece).map(|piece| Ok::<_, BoxError>(piece.to_vec())).collect();
        let body = Body::from_stream(futures::stream::iter(pieces));
        let mut framed = Framed::new(body, budget.clone());
        let mut came = 0;
        while let Some(frame) = framed.frame().await {
            match frame {
                Ok(frame) => came += frame.into_data().unwrap().len(),
                Err(refused) => return (came, Some(*refused.downcast::<Status>().unwrap())),
            }
        }
        (came, None)
    }

    #[tokio::test]
    async fn one_message_counts_at_a_time() {
        let budget = Budget::new(4096);
        for piece in [1, 3, 5, 4096, 1 << 20] {
            // Together far more than there is room for, each of them less.
            let (came, refused) = read(&[3000, 0, 4000, 1, 4096], piece, &budget).await;
            assert!(refused.is_none(), "{piece}: {refused:?}");
            assert_eq!(came, 3000 + 4000 + 1 + 4096 + 5 * HEAD);
            let (came, refused) = read(&[3000, 6000], piece, &budget).await;
            assert_eq!(refused.unwrap().code(), tonic::Code::Unavailable);
            assert!(came <= 3000 + 4096 + 2 * HEAD, "{came}");
        }
    }

    #[tokio::test]
    async fn it_is_given_back_with_the_body_and_the_call() {
        let budget = Budget::new(4096);
        let framed = Framed::new(Body::from(message(4000)), budget.clone());
        let call = framed.latest();
        framed.collect().await.unwrap();
        assert!(read(&[1000], 100, &budget).await.1.is_some());
        drop(call);
        assert!(read(&[1000], 100, &budget).await.1.is_none());
    }
}
