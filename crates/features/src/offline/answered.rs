//! The values that answer, to be had part by part.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use falaj_base::{Error, Result};

use super::numbers::Numbers;

/// Columns with a value, or none, for each moment.
#[derive(Debug)]
pub struct Answered {
    numbers: Option<Numbers>,
    /// The columns that are no numbers, by their places among all.
    others: Vec<(usize, ArrayRef)>,
}

impl Answered {
    pub(super) fn new(numbers: Numbers, others: Vec<(usize, ArrayRef)>) -> Self {
        Self { numbers: Some(numbers), others }
    }

    /// Columns that are there already.
    #[must_use]
    pub fn of(columns: Vec<ArrayRef>) -> Self {
        Self { numbers: None, others: columns.into_iter().enumerate().collect() }
    }

    /// The columns of some moments, in their order.
    pub fn part(&self, moments: Range<usize>) -> Result<Vec<ArrayRef>> {
        if self.numbers.as_ref().is_some_and(|numbers| moments.end > numbers.moments()) {
            return Err(Error::internal("an answer that is not there"));
        }
        let mut columns: Vec<ArrayRef> =
            self.numbers.iter().flat_map(|numbers| numbers.part(&moments)).collect();
        for (place, column) in &self.others {
            if moments.end > column.len() || *place > columns.len() {
                return Err(Error::internal("an answer that is not there"));
            }
            columns.insert(*place, column.slice(moments.start, moments.len()));
        }
        Ok(columns)
    }
}
