//! The values of the rows that answer.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, UInt64Array, new_null_array};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat;
use arrow_select::take::take;
use falaj_base::{Error, Result};

use super::latest::Answers;

/// Picks rows out of a history that is read again, in the order in which it was read.
#[derive(Debug)]
pub struct Gathered {
    answers: Answers,
    /// The rows that answer something, in rising order, each once.
    wanted: Vec<u64>,
    /// How many of those were found already.
    found: usize,
    rows: u64,
    schema: SchemaRef,
    /// The picked values of each column, piece by piece.
    pieces: Vec<Vec<ArrayRef>>,
    /// How many moments each of the wanted rows answers.
    times: Vec<usize>,
    /// Bytes that the answers may still take, each counted as often as it answers.
    left: Option<usize>,
}

/// The most bytes that answers may take at a time: Arrow counts those of a column in 31 bits.
pub const MOST: usize = i32::MAX as usize;

impl Gathered {
    /// Picks the rows of these answers, as long as they take no more than so many bytes; the
    /// batches will have this schema.
    #[must_use]
    pub fn new(answers: Answers, schema: SchemaRef, most: usize) -> Self {
        let mut all: Vec<u64> = answers.rows().iter().flatten().copied().collect();
        all.sort_unstable();
        let (mut wanted, mut times) = (Vec::new(), Vec::new());
        for same in all.chunk_by(|a, b| a == b) {
            wanted.push(same[0]);
            times.push(same.len());
        }
        let pieces = vec![Vec::new(); schema.fields().len()];
        let left = Some(most.min(MOST));
        Self { answers, wanted, found: 0, rows: 0, schema, pieces, times, left }
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

    /// The values of the next batch.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let end = self.rows + batch.num_rows() as u64;
        let ahead = &self.wanted[self.found..];
        let here = &ahead[..ahead.partition_point(|row| *row < end)];
        if !here.is_empty() {
            #[allow(clippy::cast_possible_truncation, reason = "a batch has at most 2^32 rows")]
            let picked: UInt32Array = here.iter().map(|row| (row - self.rows) as u32).collect();
            let times = &self.times[self.found..];
            for column in batch.columns() {
                let taken =
                    picked.values().iter().zip(times).fold(0, |sum: usize, (row, times)| {
                        let row = *row as usize;
                        sum.saturating_add(times.saturating_mul(bytes(column, row, row + 1)))
                    });
                self.left = self.left.and_then(|left| left.checked_sub(taken));
            }
            if self.left.is_none() {
                return Ok(());
            }
            for (pieces, column) in self.pieces.iter_mut().zip(batch.columns()) {
                pieces.push(take(column, &picked, None).map_err(Error::internal)?);
            }
        }
        self.found += here.len();
        self.rows = end;
        Ok(())
    }

    /// The values, moment by moment; nulls where nothing answers.
    pub fn finish(self) -> Result<Vec<ArrayRef>> {
        if !self.is_complete() {
            return Err(Error::internal("a history that became shorter while it was read"));
        }
        let place = |row: &Option<u64>| {
            row.and_then(|row| self.wanted.binary_search(&row).ok()).map(|place| place as u64)
        };
        let order: UInt64Array = self.answers.rows().iter().map(place).collect();
        let columns = self.pieces.iter().zip(self.schema.fields());
        columns.map(|(pieces, field)| ordered(pieces, field.data_type(), &order)).collect()
    }
}

/// About how many bytes some rows of a column take, and never fewer than it has values below.
fn bytes(column: &dyn Array, from: usize, to: usize) -> usize {
    const FIXED: usize = 8;
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
        // The kinds of features are these and numbers.
        _ => own,
    }
}

fn ordered(pieces: &[ArrayRef], kind: &DataType, order: &UInt64Array) -> Result<ArrayRef> {
    if pieces.is_empty() {
        return Ok(new_null_array(kind, order.len()));
    }
    let pieces: Vec<_> = pieces.iter().map(|piece| &**piece).collect();
    let whole = concat(&pieces).map_err(Error::internal)?;
    take(&whole, order, None).map_err(Error::internal)
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
