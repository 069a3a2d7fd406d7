//! Rows to be applied together, one for each key.
//!
//! They lie one after the other in large pieces of memory: to ask for a million small ones, and to give
//! them back, takes longer than to fill them. Which of several rows of a key stays is found out when
//! they are put in order.

use std::cmp::Ordering;

use falaj_base::{Error, Result, code};

use crate::key::{Key, prefix};
use crate::row::rank;

/// How large a piece of memory is.
const PIECE: usize = 1 << 20;
/// A row begins in a piece that has this much room. A longer one makes its piece larger.
const ROOM: usize = 4 << 10;

/// Rows by key: of several for one key the greatest stays, and of equal ones the first.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    rows: Pieces,
    places: Vec<Place>,
    bytes: usize,
    /// Whether the places are in the order of their keys, each key once.
    tidy: bool,
}

/// Keys and rows.
#[derive(Clone, Debug, Default)]
struct Pieces(Vec<Vec<u8>>);

/// Where a key lies, and its row behind it.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The beginning of the key, as a number that sorts like it.
    prefix: u128,
    piece: u32,
    at: u32,
    /// How long the row is.
    row: u32,
    /// How long the key is: see [`crate::key::MAX_BYTES`].
    key: u16,
}

impl Pieces {
    /// The piece that the next row begins in, and its number.
    fn last(&mut self) -> (usize, &mut Vec<u8>) {
        if self.0.last().is_none_or(|last| last.len() + ROOM > PIECE) {
            self.0.push(Vec::with_capacity(PIECE));
        }
        let last = self.0.len() - 1;
        (last, &mut self.0[last])
    }

    fn key(&self, place: &Place) -> &[u8] {
        &self.0[place.piece as usize][place.at as usize..][..usize::from(place.key)]
    }

    fn row(&self, place: &Place) -> &[u8] {
        let at = place.at as usize + usize::from(place.key);
        &self.0[place.piece as usize][at..][..place.row as usize]
    }

    fn by_key(&self, one: &Place, other: &Place) -> Ordering {
        // Only what goes on behind the prefix has to be looked at.
        one.prefix.cmp(&other.prefix).then_with(|| self.key(one).cmp(self.key(other)))
    }

    /// By key, and of one key the one that stays first.
    fn in_order(&self, one: &Place, other: &Place) -> Ordering {
        self.by_key(one, other)
            .then_with(|| rank(self.row(other)).cmp(&rank(self.row(one))))
            .then_with(|| (one.piece, one.at).cmp(&(other.piece, other.at)))
    }
}

impl Batch {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a packed row.
    pub fn put(&mut self, key: &Key, row: &[u8]) -> Result<()> {
        let copy = |from: &[u8], to: &mut Vec<u8>| {
            to.extend_from_slice(from);
            Ok(())
        };
        self.put_with(|to| copy(key.bytes(), to), |to| copy(row, to))
    }

    /// Adds a row whose key and values are written where they will lie. Nothing is added if either
    /// fails.
    pub fn put_with(
        &mut self,
        key: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        row: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let (number, piece) = self.rows.last();
        let at = piece.len();
        let mut behind = at;
        let written = key(piece).and_then(|()| {
            behind = piece.len();
            row(piece)
        });
        let place = written.and_then(|()| {
            let (key, row) = (&piece[at..behind], piece.len() - behind);
            let numbers = (u32::try_from(number), u32::try_from(at), u32::try_from(row));
            let ((Ok(number), Ok(at), Ok(row)), Ok(length)) = (numbers, u16::try_from(key.len()))
            else {
                return Err(too_long());
            };
            Ok(Place { prefix: prefix(key), piece: number, at, row, key: length })
        });
        match place {
            Ok(place) => {
                self.bytes += piece.len() - at;
                self.places.push(place);
                self.tidy = false;
                Ok(())
            }
            Err(error) => {
                piece.truncate(at);
                Err(error)
            }
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many rows there are, those that others have taken the place of included until they are let go.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The size of keys and rows together, those that others have taken the place of included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts rows in the order of their keys and lets go of those that do not stay.
    pub fn tidy(&mut self) {
        if self.tidy {
            return;
        }
        let rows = &self.rows;
        self.places.sort_unstable_by(|one, other| rows.in_order(one, other));
        self.places.dedup_by(|later, stays| rows.by_key(later, stays).is_eq());
        self.tidy = true;
        let live: usize =
            self.places.iter().map(|place| usize::from(place.key) + place.row as usize).sum();
        // Copying is worth it where a good part of it is nobody's any more.
        if live < self.bytes / 4 * 3 {
            self.gather();
            self.bytes = live;
        }
    }

    fn gather(&mut self) {
        let mut rows = Pieces::default();
        for place in &mut self.places {
            let (number, piece) = rows.last();
            let at = piece.len();
            piece.extend_from_slice(self.rows.key(place));
            piece.extend_from_slice(self.rows.row(place));
            // No longer than where they come from, and so neither are their numbers.
            (place.at, place.piece) = (narrow(at), narrow(number));
        }
        self.rows = rows;
    }

    /// The rows in the order of their keys, if they were put in order.
    pub(super) fn rows(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        debug_assert!(self.tidy || self.places.is_empty(), "rows are put in order first");
        self.places.iter().map(|place| (self.rows.key(place), self.rows.row(place)))
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cold]
fn too_long() -> Error {
    Error::new(&code::TOO_LARGE, "a row of features is over 4 GiB")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::row::{Layout, Stamp};
    use crate::value::{Kind, Scalar, Value};

    proptest! {
        /// Keys of few texts, some longer than what is compared at once, in any order.
        #[test]
        fn of_each_key_the_greatest_stays(
            puts in proptest::collection::vec((0_usize..6, 0_i64..4), 0..60),
            tidied in 0_usize..60,
        ) {
            let texts = ["", "a", "a\0", "abcdefghijkl", "abcdefghijklm", "abcdefghijklmnopqrstuvwx"];
            let layout = Layout::new(&[Kind::One(Scalar::Int64)]);
            let (mut batch, mut expected) = (Batch::new(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
            for (place, (text, event)) in puts.into_iter().enumerate() {
                let text = Value::String(texts[text].to_owned());
                let key = Key::new(1, [("k", &text)]).unwrap();
                let stamp = Stamp { event, ..Stamp::default() };
                let number = Value::Int64(i64::try_from(place).unwrap());
                let row = layout.pack(stamp, &[number]).unwrap().into_vec();
                if place == tidied {
                    batch.tidy();
                }
                batch.put(&key, &row).unwrap();
                let there = expected.entry(key.bytes().to_vec()).or_insert_with(|| row.clone());
                if rank(&row) > rank(there) {
                    *there = row;
                }
            }
            batch.tidy();
            let found: Vec<_> = batch.rows().map(|(key, row)| (key.to_vec(), row.to_vec())).collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_fails_leaves_nothing() {
        let mut batch = Batch::new();
        let fails = || Err(Error::internal("no"));
        let written = batch.put_with(
            |to| {
                to.push(1);
                Ok(())
            },
            |to| {
                to.push(2);
                fails()
            },
        );
        assert!(written.is_err() && batch.is_empty() && batch.bytes() == 0);
    }
}
