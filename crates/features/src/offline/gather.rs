//! The values of the rows that answer.

use arrow_array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array, new_null_array};
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
}

impl Gathered {
    /// Picks the rows of these answers; the batches will have this schema.
    #[must_use]
    pub fn new(answers: Answers, schema: SchemaRef) -> Self {
        let mut wanted: Vec<u64> = answers.rows().iter().flatten().copied().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let pieces = vec![Vec::new(); schema.fields().len()];
        Self { answers, wanted, found: 0, rows: 0, schema, pieces }
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

fn ordered(pieces: &[ArrayRef], kind: &DataType, order: &UInt64Array) -> Result<ArrayRef> {
    if pieces.is_empty() {
        return Ok(new_null_array(kind, order.len()));
    }
    let pieces: Vec<_> = pieces.iter().map(|piece| &**piece).collect();
    let whole = concat(&pieces).map_err(Error::internal)?;
    take(&whole, order, None).map_err(Error::internal)
}
