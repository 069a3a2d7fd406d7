//! Ranges of something far away: what is small is fetched in blocks, and the last ones are kept.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use falaj_base::{Error, Result};

use super::Ranges;

/// How much is fetched at a time where little is asked for.
const BLOCK: u64 = 1 << 20;
/// How many such blocks are remembered.
const REMEMBERED: usize = 16;

type Fetch = dyn Fn(Range<u64>) -> Result<Bytes> + Send + Sync;

/// Reads ranges through a function that fetches exactly what it is asked for.
pub struct Blocks {
    size: u64,
    fetch: Box<Fetch>,
    known: Mutex<VecDeque<(u64, Bytes)>>,
    /// Why the last fetch failed. Whoever reads through a library of formats would only learn that
    /// the file is damaged.
    failure: Mutex<Option<Error>>,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Blocks {
    pub fn new(
        size: u64,
        fetch: impl Fn(Range<u64>) -> Result<Bytes> + Send + Sync + 'static,
    ) -> Self {
        let (known, failure) = (Mutex::default(), Mutex::default());
        Self { size, fetch: Box::new(fetch), known, failure }
    }

    fn exactly(&self, range: Range<u64>) -> io::Result<Bytes> {
        let wanted = range.end - range.start;
        let found = (self.fetch)(range).map_err(|error| {
            let text = io::Error::other(error.message().to_owned());
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            text
        })?;
        let whole = found.len() as u64 == wanted;
        if whole { Ok(found) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn block(&self, number: u64) -> io::Result<Bytes> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = lock().iter().find(|(of, _)| *of == number) {
            return Ok(known.clone());
        }
        let start = number * BLOCK;
        let block = self.exactly(start..self.size.min(start + BLOCK))?;
        let mut known = lock();
        if known.len() >= REMEMBERED {
            known.pop_front();
        }
        known.push_back((number, block.clone()));
        Ok(block)
    }
}

impl Ranges for Blocks {
    fn size(&self) -> u64 {
        self.size
    }

    fn failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn read(&self, start: u64, length: usize) -> io::Result<Bytes> {
        let end = start + length as u64;
        if length == 0 {
            return Ok(Bytes::new());
        }
        if end > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if length as u64 >= 2 * BLOCK {
            return self.exactly(start..end);
        }
        let mut whole = BytesMut::with_capacity(length);
        for number in start / BLOCK..=(end - 1) / BLOCK {
            let block = self.block(number)?;
            let first = number * BLOCK;
            // Both lie within a block, which any platform can count.
            let from = usize::try_from(start.saturating_sub(first)).unwrap_or(0);
            let to = usize::try_from((end - first).min(BLOCK)).unwrap_or(0);
            whole.extend_from_slice(block.get(from..to).ok_or(io::ErrorKind::UnexpectedEof)?);
        }
        Ok(whole.freeze())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_those_of_the_whole(
            size in 1_usize..5 << 20,
            wanted in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 1..8),
        ) {
            let whole: Bytes = (0..size).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect();
            let of = whole.clone();
            let blocks = Blocks::new(size as u64, move |range| {
                let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
                Ok(of.slice(start..end))
            });
            for (start, length) in wanted {
                let start = start.index(size);
                let length = length.index(size - start);
                let read = blocks.read(start as u64, length).unwrap();
                prop_assert_eq!(&read, &whole.slice(start..start + length));
            }
            prop_assert!(blocks.read(size as u64, 1).is_err());
        }
    }

    #[test]
    fn small_reads_share_what_was_fetched() {
        let fetched = Arc::new(AtomicUsize::new(0));
        let count = fetched.clone();
        let blocks = Blocks::new(3 << 20, move |range| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(vec![0; usize::try_from(range.end - range.start).unwrap()].into())
        });
        for at in 0..1000 {
            blocks.read(at * 64, 64).unwrap();
        }
        assert_eq!(fetched.load(Ordering::Relaxed), 1);
        assert!(blocks.failure().is_none());
    }

    #[test]
    fn why_it_failed_is_not_lost_on_the_way() {
        let blocks = Blocks::new(9, |_| Err(Error::new(&falaj_base::code::UNAVAILABLE, "away")));
        assert!(blocks.read(0, 9).is_err());
        assert_eq!(blocks.failure().unwrap().message(), "away");
        assert!(blocks.failure().is_none());
    }
}
