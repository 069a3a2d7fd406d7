//! The values of the rows that answer.
//!
//! Numbers are put where they belong as soon as they are met, so that they take the room of the
//! result and no more. Values of different lengths are collected first and put in order in the end.

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch, UInt32Array, new_null_array};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, BooleanBufferBuilder, NullBuffer};
use arrow_schema::{DataType, SchemaRef, TimeUnit};
use arrow_select::concat::concat;
use arrow_select::take::take;
use falaj_base::{Error, Result};

use super::latest::Answers;

/// Picks rows out of a history that is read again, in the order in which it was read.
#[derive(Debug)]
pub struct Gathered {
    /// The rows that answer, in rising order, each with the moment that it answers.
    wanted: Vec<(u64, u32)>,
    /// How many of those were found already.
    found: usize,
    rows: u64,
    moments: usize,
    columns: Vec<Box<dyn Column>>,
    /// Which row of a batch answers which moment; kept for its memory.
    picks: Vec<Pick>,
    /// Bytes that the answers may still take, each counted as often as it answers.
    left: Option<usize>,
}

/// A row of a batch, and the moment that it answers.
#[derive(Clone, Copy, Debug)]
struct Pick {
    row: u32,
    moment: u32,
}

/// The most bytes that answers may take at a time: Arrow counts those of a column in 31 bits.
pub const MOST: usize = i32::MAX as usize;

/// The bytes that the answers to one moment take at least.
#[must_use]
pub fn least(kind: &DataType) -> usize {
    kind.primitive_width().unwrap_or(FIXED)
}

/// The values of one column, on their way to where they belong.
trait Column: fmt::Debug + Send {
    /// Bytes that these rows of a batch take beyond what is taken from the beginning.
    fn size(&self, column: &dyn Array, picks: &[Pick]) -> usize;
    fn add(&mut self, column: &ArrayRef, picks: &[Pick]) -> Result<()>;
    /// The values, moment by moment; null where nothing answers.
    fn finish(self: Box<Self>, answered: &BooleanBuffer, wanted: &[(u64, u32)])
    -> Result<ArrayRef>;
}

impl Gathered {
    /// Picks the rows of these answers, as long as they take no more than so many bytes; the
    /// batches will have this schema.
    #[must_use]
    pub fn new(answers: Answers, schema: SchemaRef, most: usize) -> Self {
        let moments = answers.rows().len();
        let fields = schema.fields().iter();
        let least: usize = fields.clone().map(|field| least(field.data_type())).sum();
        let left = most.min(MOST).checked_sub(least.saturating_mul(moments));
        let (mut wanted, mut columns) = (Vec::new(), Vec::new());
        if left.is_some() {
            let answered = (0..).zip(answers.rows());
            wanted.extend(answered.filter_map(|(moment, row)| Some(((*row)?, moment))));
            wanted.sort_unstable();
            columns.extend(fields.map(|field| column(field.data_type(), moments)));
        }
        Self { wanted, found: 0, rows: 0, moments, columns, picks: Vec::new(), left }
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
        self.wanted.get(self.found).is_some_and(|(row, _)| *row < self.rows + rows)
    }

    /// Passes over rows of which none is.
    pub fn skip(&mut self, rows: u64) {
        self.rows += rows;
    }

    /// The values of the next batch.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let end = self.rows + batch.num_rows() as u64;
        let ahead = &self.wanted[self.found..];
        let here = &ahead[..ahead.partition_point(|(row, _)| *row < end)];
        if !here.is_empty() {
            let pick = |(row, moment): &(u64, u32)| {
                #[allow(clippy::cast_possible_truncation, reason = "a batch has at most 2^32 rows")]
                let row = (row - self.rows) as u32;
                Pick { row, moment: *moment }
            };
            self.picks.clear();
            self.picks.extend(here.iter().map(pick));
            for (taken, column) in self.columns.iter().zip(batch.columns()) {
                let size = taken.size(column, &self.picks);
                self.left = self.left.and_then(|left| left.checked_sub(size));
            }
            if self.left.is_none() {
                return Ok(());
            }
            for (taken, column) in self.columns.iter_mut().zip(batch.columns()) {
                taken.add(column, &self.picks)?;
            }
        }
        self.found += here.len();
        self.rows = end;
        Ok(())
    }

    /// The values, moment by moment; nulls where nothing answers.
    pub fn finish(self) -> Result<Vec<ArrayRef>> {
        if !self.is_complete() || self.left.is_none() {
            return Err(Error::internal("a history that became shorter while it was read"));
        }
        let mut answered = BooleanBufferBuilder::new(self.moments);
        answered.append_n(self.moments, false);
        for (_, moment) in &self.wanted {
            answered.set_bit(*moment as usize, true);
        }
        let answered = answered.finish();
        let columns = self.columns.into_iter();
        columns.map(|column| column.finish(&answered, &self.wanted)).collect()
    }
}

fn column(kind: &DataType, moments: usize) -> Box<dyn Column> {
    fn fixed<T: ArrowPrimitiveType>(kind: &DataType, moments: usize) -> Box<dyn Column> {
        let values = vec![T::Native::default(); moments];
        Box::new(Fixed::<T> { kind: kind.clone(), values, gaps: Vec::new() })
    }
    match kind {
        DataType::Int32 => fixed::<Int32Type>(kind, moments),
        DataType::Int64 => fixed::<Int64Type>(kind, moments),
        DataType::Float32 => fixed::<Float32Type>(kind, moments),
        DataType::Float64 => fixed::<Float64Type>(kind, moments),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            fixed::<TimestampMicrosecondType>(kind, moments)
        }
        _ => Box::new(Pieces { kind: kind.clone(), pieces: Vec::new() }),
    }
}

/// Numbers, each where it belongs.
struct Fixed<T: ArrowPrimitiveType> {
    kind: DataType,
    values: Vec<T::Native>,
    /// Moments whose answer has no value.
    gaps: Vec<u32>,
}

impl<T: ArrowPrimitiveType> fmt::Debug for Fixed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixed").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<T: ArrowPrimitiveType> Column for Fixed<T> {
    fn size(&self, _: &dyn Array, _: &[Pick]) -> usize {
        0
    }

    fn add(&mut self, column: &ArrayRef, picks: &[Pick]) -> Result<()> {
        let found = column.as_primitive_opt::<T>();
        let found = found.ok_or_else(|| Error::internal("a column of another type"))?;
        let values = found.values();
        for pick in picks {
            self.values[pick.moment as usize] = values[pick.row as usize];
        }
        if let Some(nulls) = found.nulls().filter(|nulls| nulls.null_count() > 0) {
            let gap = |pick: &&Pick| nulls.is_null(pick.row as usize);
            self.gaps.extend(picks.iter().filter(gap).map(|pick| pick.moment));
        }
        Ok(())
    }

    fn finish(self: Box<Self>, answered: &BooleanBuffer, _: &[(u64, u32)]) -> Result<ArrayRef> {
        let nulls = if self.gaps.is_empty() {
            NullBuffer::new(answered.clone())
        } else {
            let mut there = BooleanBufferBuilder::new(answered.len());
            there.append_buffer(answered);
            for gap in &self.gaps {
                there.set_bit(*gap as usize, false);
            }
            NullBuffer::new(there.finish())
        };
        let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        let column = PrimitiveArray::<T>::new(self.values.into(), nulls);
        Ok(Arc::new(column.with_data_type(self.kind)))
    }
}

/// Values of different lengths, one for each row that answers, in the order of those.
#[derive(Debug)]
struct Pieces {
    kind: DataType,
    pieces: Vec<ArrayRef>,
}

impl Column for Pieces {
    fn size(&self, column: &dyn Array, picks: &[Pick]) -> usize {
        let size = |pick: &Pick| bytes(column, pick.row as usize, pick.row as usize + 1);
        picks.iter().map(size).fold(0, |sum, size| sum.saturating_add(size - FIXED))
    }

    fn add(&mut self, column: &ArrayRef, picks: &[Pick]) -> Result<()> {
        let once = picks.chunk_by(|one, other| one.row == other.row);
        let rows: UInt32Array = once.map(|same| same[0].row).collect();
        self.pieces.push(take(column, &rows, None).map_err(Error::internal)?);
        Ok(())
    }

    fn finish(
        self: Box<Self>,
        answered: &BooleanBuffer,
        wanted: &[(u64, u32)],
    ) -> Result<ArrayRef> {
        if self.pieces.is_empty() {
            return Ok(new_null_array(&self.kind, answered.len()));
        }
        let mut places = vec![0; answered.len()];
        let mut place = 0;
        for (at, (row, moment)) in wanted.iter().enumerate() {
            place += u32::from(at > 0 && wanted[at - 1].0 != *row);
            places[*moment as usize] = place;
        }
        let pieces: Vec<_> = self.pieces.iter().map(|piece| &**piece).collect();
        let whole = concat(&pieces).map_err(Error::internal)?;
        let order = UInt32Array::new(places.into(), Some(NullBuffer::new(answered.clone())));
        take(&whole, &order, None).map_err(Error::internal)
    }
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
    use arrow_array::{BinaryArray, Int64Array, ListArray, StringArray};

    use super::*;

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
