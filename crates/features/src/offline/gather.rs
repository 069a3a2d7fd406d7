//! The values of the rows that answer.
//!
//! Numbers are put where they belong as soon as they are met, so that they take the room of the
//! result and no more. Values of different lengths are collected first and put in order in the end.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, new_null_array};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, BooleanBufferBuilder, NullBuffer};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat;
use arrow_select::take::take;
use falaj_base::{Error, Result};

use super::answered::Answered;
use super::latest::Answers;
use super::numbers::{Numbers, Pick};
use super::order::Wanted;

/// Picks rows out of a history that is read again, in the order in which it was read.
#[derive(Debug)]
pub struct Gathered {
    /// The rows that answer, in rising order, each with the moment that it answers.
    wanted: Vec<Wanted>,
    /// How many of those were found already.
    found: usize,
    rows: u64,
    moments: usize,
    /// Whether each column is one of numbers.
    are_numbers: Vec<bool>,
    numbers: Numbers,
    others: Vec<Pieces>,
    /// Which row of a batch answers which moment; kept for its memory.
    picks: Vec<Pick>,
    /// Bytes that the answers may still take, each counted as often as it answers.
    left: Option<usize>,
}

/// The most bytes that answers may take at a time: Arrow counts those of a column in 31 bits.
pub const MOST: usize = i32::MAX as usize;

/// The bytes that the answers to one moment take at least.
#[must_use]
pub fn least(kind: &DataType) -> usize {
    kind.primitive_width().unwrap_or(FIXED)
}

impl Gathered {
    /// Picks the rows of these answers, as long as they take no more than so many bytes; the
    /// batches will have this schema.
    #[must_use]
    pub fn new(answers: Answers, schema: SchemaRef, most: usize) -> Self {
        let moments = answers.moments();
        let kinds = || schema.fields().iter().map(|field| field.data_type());
        let least: usize = kinds().map(least).sum();
        let left = most.min(MOST).checked_sub(least.saturating_mul(moments));
        let (mut wanted, mut room) = (Vec::new(), 0);
        if left.is_some() {
            (wanted, room) = (answers.into_wanted(), moments);
        }
        let others = kinds().filter(|kind| !Numbers::are(kind));
        let others = others.map(|kind| Pieces { kind: kind.clone(), pieces: Vec::new() });
        Self {
            wanted,
            found: 0,
            rows: 0,
            moments,
            are_numbers: kinds().map(Numbers::are).collect(),
            numbers: Numbers::new(kinds(), room),
            others: others.collect(),
            picks: Vec::new(),
            left,
        }
    }

    /// Bytes that may still be taken; none if the answers take too many, and are not to be had.
    #[must_use]
    pub fn left(&self) -> Option<usize> {
        self.left
    }

    /// Whether everything was found, so that the rest of the history need not be read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.found == self.wanted.len()
    }

    /// Whether one of the next so many rows is wanted.
    #[must_use]
    pub fn wants(&self, rows: u64) -> bool {
        self.wanted.get(self.found).is_some_and(|wanted| wanted.row < self.rows + rows)
    }

    /// Passes over rows of which none is.
    pub fn skip(&mut self, rows: u64) {
        self.rows += rows;
    }

    /// The values of the next batch.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let end = self.rows + batch.num_rows() as u64;
        let ahead = &self.wanted[self.found..];
        let here = &ahead[..ahead.partition_point(|wanted| wanted.row < end)];
        if !here.is_empty() {
            let pick = |wanted: &Wanted| {
                #[allow(clippy::cast_possible_truncation, reason = "a batch has at most 2^32 rows")]
                let row = (wanted.row - self.rows) as u32;
                Pick { row, moment: wanted.moment }
            };
            self.picks.clear();
            self.picks.extend(here.iter().map(pick));
            let columns = || self.are_numbers.iter().zip(batch.columns());
            let some = |numbers: bool| {
                columns().filter(move |(are, _)| **are == numbers).map(|(_, column)| column)
            };
            let size = |column: &ArrayRef| sizes(column, &self.picks);
            let size = some(false).map(size).fold(0, usize::saturating_add);
            self.left = self.left.and_then(|left| left.checked_sub(size));
            if self.left.is_none() {
                return Ok(());
            }
            self.numbers.add(&some(true).collect::<Vec<_>>(), &self.picks)?;
            for (taken, column) in self.others.iter_mut().zip(some(false)) {
                taken.add(column, &self.picks)?;
            }
        }
        self.found += here.len();
        self.rows = end;
        Ok(())
    }

    /// The values, moment by moment; nulls where nothing answers.
    pub fn finish(mut self) -> Result<Answered> {
        if !self.is_complete() || self.left.is_none() {
            return Err(Error::internal("a history that became shorter while it was read"));
        }
        let mut answered = BooleanBufferBuilder::new(self.moments);
        answered.append_n(self.moments, false);
        for wanted in &self.wanted {
            answered.set_bit(wanted.moment as usize, true);
        }
        let answered = answered.finish();
        self.numbers.finish(&answered);
        let places = self.are_numbers.iter().enumerate().filter(|(_, are)| !**are);
        let others = places
            .zip(&self.others)
            .map(|((place, _), pieces)| Ok((place, pieces.finish(&answered, &self.wanted)?)));
        let others = others.collect::<Result<_>>()?;
        Ok(Answered::new(self.numbers, others))
    }
}

/// Values of different lengths, one for each row that answers, in the order of those.
#[derive(Debug)]
struct Pieces {
    kind: DataType,
    pieces: Vec<ArrayRef>,
}

impl Pieces {
    fn add(&mut self, column: &ArrayRef, picks: &[Pick]) -> Result<()> {
        let once = picks.chunk_by(|one, other| one.row == other.row);
        let rows: UInt32Array = once.map(|same| same[0].row).collect();
        self.pieces.push(take(column, &rows, None).map_err(Error::internal)?);
        Ok(())
    }

    fn finish(&self, answered: &BooleanBuffer, wanted: &[Wanted]) -> Result<ArrayRef> {
        if self.pieces.is_empty() {
            return Ok(new_null_array(&self.kind, answered.len()));
        }
        let mut places = vec![0; answered.len()];
        let mut place = 0;
        for (at, Wanted { row, moment }) in wanted.iter().enumerate() {
            place += u32::from(at > 0 && wanted[at - 1].row != *row);
            places[*moment as usize] = place;
        }
        let pieces: Vec<_> = self.pieces.iter().map(|piece| &**piece).collect();
        let whole = concat(&pieces).map_err(Error::internal)?;
        let order = UInt32Array::new(places.into(), Some(NullBuffer::new(answered.clone())));
        take(&whole, &order, None).map_err(Error::internal)
    }
}

/// Bytes that some rows of a column take beyond what is taken from the beginning.
fn sizes(column: &dyn Array, picks: &[Pick]) -> usize {
    let size = |pick: &Pick| bytes(column, pick.row as usize, pick.row as usize + 1);
    picks.iter().map(size).fold(0, |sum, size| sum.saturating_add(size - FIXED))
}

/// What a value takes at least where its type does not say.
const FIXED: usize = 8;

/// About how many bytes some rows of a column take, and never fewer than it has values below.
fn bytes(column: &dyn Array, from: usize, to: usize) -> usize {
    let between = |offsets: &[i32]| (offsets[from].as_usize(), offsets[to].as_usize());
    let own = FIXED * (to - from);
    match column.data_type() {
        DataType::Utf8 => {
            let (from, to) = between(column.as_string::<i32>().value_offsets());
            own + to - from
        }
        DataType::Binary => {
            let (from, to) = between(column.as_binary::<i32>().value_offsets());
            own + to - from
        }
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let (from, to) = between(list.value_offsets());
            own + bytes(list.values(), from, to)
        }
        DataType::Decimal128(..) => 2 * own,
        // The kinds of features are these and numbers.
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Float32Type;
    use arrow_array::{
        BinaryArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray, StringArray,
        TimestampMicrosecondArray,
    };
    use arrow_schema::Schema;

    use super::*;
    use crate::offline::{Latest, Moments, Rules};

    #[test]
    fn columns_of_every_width_come_back_in_their_order_part_by_part() {
        let times = TimestampMicrosecondArray::from(vec![Some(i64::MIN), None, Some(-1)]);
        let texts = StringArray::from(vec![Some("a"), Some(""), None]);
        let columns: [(&str, ArrayRef); 6] = [
            ("float", Arc::new(Float32Array::from(vec![Some(-0.5), None, Some(f32::MAX)]))),
            ("text", Arc::new(texts)),
            ("wide", Arc::new(Int64Array::from(vec![Some(i64::MAX), Some(-2), None]))),
            ("double", Arc::new(Float64Array::from(vec![1e300, -0.0, 3.5]))),
            ("time", Arc::new(times.with_timezone("UTC"))),
            ("narrow", Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(7)]))),
        ];
        let columns = columns.map(|(name, column)| (name, column, true));
        let history = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        // Row 2 answers twice, row 1 once, and nothing answers the moment between them.
        let numbers = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
        let (keys, at) = (numbers(vec![2, 9, 1, 2]), numbers(vec![5; 4]));
        let moments = Moments::new(&[("key", keys)], ("at", &*at)).unwrap();
        let mut latest = Latest::new(&moments, Rules::default());
        let (keys, event) = (numbers(vec![0, 1, 2]), numbers(vec![1; 3]));
        latest.add(&[("key", keys)], ("event", &*event), None).unwrap();
        let schema = Arc::new(Schema::clone(history.schema_ref()));
        let mut gathered = Gathered::new(latest.finish(), schema, usize::MAX);
        // A part of a batch has its own first row.
        gathered.add(&history.slice(0, 1)).unwrap();
        gathered.add(&history.slice(1, 2)).unwrap();
        let found = gathered.finish().unwrap();
        let expected = UInt32Array::from(vec![Some(2), None, Some(1), Some(2)]);
        for part in [0..4, 0..0, 0..1, 1..3, 3..4] {
            let places = expected.slice(part.start, part.len());
            let found = found.part(part.clone()).unwrap();
            assert_eq!(found.len(), 6);
            for (found, column) in found.iter().zip(history.columns()) {
                assert_eq!(found, &take(column, &places, None).unwrap(), "{part:?}");
            }
        }
        assert!(found.part(0..5).is_err());
    }

    #[test]
    fn rows_count_with_what_hangs_on_them() {
        let numbers = |count: usize| Some(vec![Some(0.5); count]);
        let lists = [numbers(3), None, numbers(0), numbers(100)];
        let columns: [(ArrayRef, [usize; 4]); 4] = [
            (Arc::new(Int64Array::from(vec![1, 2, 3, 4])), [8, 8, 8, 8]),
            (Arc::new(StringArray::from(vec!["a", "", "bcd", "e"])), [9, 8, 11, 9]),
            (Arc::new(BinaryArray::from_vec(vec![b"a", b"", b"bcd", b"e"])), [9, 8, 11, 9]),
            (Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(lists)), [32, 8, 8, 808]),
        ];
        for (column, expected) in columns {
            let found: Vec<_> = (0..4).map(|row| bytes(&column, row, row + 1)).collect();
            assert_eq!(found, expected);
            assert_eq!(bytes(&column, 0, 4), expected.iter().sum::<usize>());
            // A part of a column counts as itself.
            assert_eq!(bytes(&column.slice(2, 2), 0, 1), expected[2]);
        }
    }
}
