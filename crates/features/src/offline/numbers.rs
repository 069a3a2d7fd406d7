//! Numbers of the rows that answer, each where it belongs.
//!
//! All numbers of a moment lie side by side: rows answer moments anywhere, so each of them is somewhere
//! else in memory, and it should be one place that is waited for and not one for each column. They
//! become columns when they are asked for.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer};
use arrow_schema::{DataType, TimeUnit};
use falaj_base::{Error, Result};

/// Rows that are taken together: what is kept of the moments that they answer, some dozens of
/// numbers each, fits into a processor's own memory.
const TOGETHER: usize = 256;

/// A row of a batch, and the moment that it answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick {
    pub(super) row: u32,
    pub(super) moment: u32,
}

/// The numbers of all moments.
#[derive(Debug)]
pub(super) struct Numbers {
    words: Vec<u32>,
    /// Words of a moment.
    each: usize,
    moments: usize,
    columns: Vec<Box<dyn Column>>,
}

impl Numbers {
    /// Numbers of those types that are kept here, for so many moments.
    pub(super) fn new<'a>(kinds: impl Iterator<Item = &'a DataType>, moments: usize) -> Self {
        let mut each = 0;
        let columns = kinds.filter_map(|kind| column(kind, &mut each)).collect();
        Self { words: vec![0; each * moments], each, moments, columns }
    }

    /// Whether numbers of a type are kept here.
    pub(super) fn are(kind: &DataType) -> bool {
        column(kind, &mut 0).is_some()
    }

    /// How many moments there are.
    pub(super) fn moments(&self) -> usize {
        self.moments
    }

    /// Takes some rows of a batch that has these columns.
    pub(super) fn add(&mut self, batch: &[&ArrayRef], picks: &[Pick]) -> Result<()> {
        for picks in picks.chunks(TOGETHER) {
            for (kept, column) in self.columns.iter_mut().zip(batch) {
                kept.add(column, picks, &mut self.words, self.each)?;
            }
        }
        Ok(())
    }

    /// No more come; here is which moments have an answer.
    pub(super) fn finish(&mut self, answered: &BooleanBuffer) {
        self.columns.iter_mut().for_each(|column| column.finish(answered));
    }

    /// The columns of some moments; null where nothing answers.
    pub(super) fn part(&self, moments: &Range<usize>) -> impl Iterator<Item = ArrayRef> {
        let words = &self.words[moments.start * self.each..moments.end * self.each];
        self.columns.iter().map(move |column| column.part(moments, words, self.each))
    }
}

/// A column of numbers among the words of moments, so many for each.
trait Column: fmt::Debug + Send {
    fn add(
        &mut self,
        column: &ArrayRef,
        picks: &[Pick],
        words: &mut [u32],
        each: usize,
    ) -> Result<()>;
    fn finish(&mut self, answered: &BooleanBuffer);
    fn part(&self, moments: &Range<usize>, words: &[u32], each: usize) -> ArrayRef;
}

/// A column of a type that is kept here, behind so many words of each moment.
fn column(kind: &DataType, before: &mut usize) -> Option<Box<dyn Column>> {
    fn made<T: ArrowPrimitiveType<Native: Word>>(
        kind: &DataType,
        before: &mut usize,
    ) -> Box<dyn Column> {
        let at = *before;
        *before += T::Native::WORDS;
        let (gaps, there) = (Vec::new(), BooleanBuffer::new_unset(0));
        Box::new(Kept::<T> { kind: kind.clone(), at, gaps, there, of: PhantomData })
    }
    Some(match kind {
        DataType::Int32 => made::<Int32Type>(kind, before),
        DataType::Int64 => made::<Int64Type>(kind, before),
        DataType::Float32 => made::<Float32Type>(kind, before),
        DataType::Float64 => made::<Float64Type>(kind, before),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            made::<TimestampMicrosecondType>(kind, before)
        }
        _ => return None,
    })
}

struct Kept<T> {
    kind: DataType,
    /// Its first word among those of a moment.
    at: usize,
    /// Moments whose answer has no value, until all are known.
    gaps: Vec<u32>,
    /// Moments that have a value, once all are known.
    there: BooleanBuffer,
    of: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<T: ArrowPrimitiveType<Native: Word>> Column for Kept<T> {
    fn add(
        &mut self,
        column: &ArrayRef,
        picks: &[Pick],
        words: &mut [u32],
        each: usize,
    ) -> Result<()> {
        let found = column.as_primitive_opt::<T>();
        let found = found.ok_or_else(|| Error::internal("a column of another type"))?;
        let values = found.values();
        for pick in picks {
            let place = pick.moment as usize * each + self.at;
            values[pick.row as usize].put(&mut words[place..place + T::Native::WORDS]);
        }
        if let Some(nulls) = found.nulls().filter(|nulls| nulls.null_count() > 0) {
            let gap = |pick: &&Pick| nulls.is_null(pick.row as usize);
            self.gaps.extend(picks.iter().filter(gap).map(|pick| pick.moment));
        }
        Ok(())
    }

    fn finish(&mut self, answered: &BooleanBuffer) {
        let gaps = std::mem::take(&mut self.gaps);
        self.there = if gaps.is_empty() {
            answered.clone()
        } else {
            let mut there = BooleanBufferBuilder::new(answered.len());
            there.append_buffer(answered);
            for gap in gaps {
                there.set_bit(gap as usize, false);
            }
            there.finish()
        };
    }

    fn part(&self, moments: &Range<usize>, words: &[u32], each: usize) -> ArrayRef {
        let value = |words: &[u32]| T::Native::get(&words[self.at..self.at + T::Native::WORDS]);
        let values = words.chunks_exact(each).map(value).collect::<Vec<_>>();
        let nulls = NullBuffer::new(self.there.slice(moments.start, moments.len()));
        let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        let column = PrimitiveArray::<T>::new(values.into(), nulls);
        Arc::new(column.with_data_type(self.kind.clone()))
    }
}

/// A number as words.
trait Word: Sized {
    const WORDS: usize;
    fn put(self, to: &mut [u32]);
    fn get(from: &[u32]) -> Self;
}

impl Word for i32 {
    const WORDS: usize = 1;

    fn put(self, to: &mut [u32]) {
        to[0] = self.cast_unsigned();
    }

    fn get(from: &[u32]) -> Self {
        from[0].cast_signed()
    }
}

impl Word for f32 {
    const WORDS: usize = 1;

    fn put(self, to: &mut [u32]) {
        to[0] = self.to_bits();
    }

    fn get(from: &[u32]) -> Self {
        Self::from_bits(from[0])
    }
}

impl Word for i64 {
    const WORDS: usize = 2;

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "both halves are kept"
    )]
    fn put(self, to: &mut [u32]) {
        (to[0], to[1]) = (self as u32, (self >> 32) as u32);
    }

    fn get(from: &[u32]) -> Self {
        (u64::from(from[1]) << 32 | u64::from(from[0])).cast_signed()
    }
}

impl Word for f64 {
    const WORDS: usize = 2;

    fn put(self, to: &mut [u32]) {
        self.to_bits().cast_signed().put(to);
    }

    fn get(from: &[u32]) -> Self {
        Self::from_bits(i64::get(from).cast_unsigned())
    }
}
