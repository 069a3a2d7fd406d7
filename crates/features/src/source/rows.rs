//! Whole rows of a history, for those who keep them elsewhere.

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, RecordBatch, TimestampMicrosecondArray};
use falaj_base::{Error, Result};

use super::fit::fit;
use super::history::{History, Piece, Stop};
use crate::history::segment::KNOWN;
use crate::schema::{self, moment};

impl History {
    /// Hands over the rows that lie in sources, and not those that were pushed.
    pub(crate) fn brought_rows(
        &self,
        stop: &Stop,
        each: impl FnMut(&RecordBatch, &TimestampMicrosecondArray) -> Result<()>,
    ) -> Result<()> {
        let brought = |piece: &Piece| match piece {
            Piece::Table { known, .. } => known.as_deref() != Some(KNOWN),
            Piece::Log { .. } => false,
        };
        self.rows_of(&brought, 0, stop, each)
    }

    /// Hands over rows with the columns of [`schema::rows`], all but so many of the first, and since
    /// when each is known: with its event, if nothing tells. A gap among keys or times is refused by
    /// its place.
    pub(crate) fn rows_from(
        &self,
        skipped: u64,
        stop: &Stop,
        each: impl FnMut(&RecordBatch, &TimestampMicrosecondArray) -> Result<()>,
    ) -> Result<()> {
        self.rows_of(&|_| true, skipped, stop, each)
    }

    /// The same of some pieces.
    fn rows_of(
        &self,
        which: &dyn Fn(&Piece) -> bool,
        skipped: u64,
        stop: &Stop,
        mut each: impl FnMut(&RecordBatch, &TimestampMicrosecondArray) -> Result<()>,
    ) -> Result<()> {
        let wanted = schema::rows(&self.view);
        let names: Vec<String> = wanted.fields().iter().map(|it| it.name().clone()).collect();
        let mut left = skipped;
        let mut each = |left: &mut u64, batch: &RecordBatch, known: &TimestampMicrosecondArray| {
            let rows = batch.num_rows();
            let skip = usize::try_from(*left).unwrap_or(usize::MAX).min(rows);
            *left -= skip as u64;
            match skip {
                0 => each(batch, known),
                all if all == rows => Ok(()),
                some => each(&batch.slice(some, rows - some), &known.slice(some, rows - some)),
            }
        };
        for piece in self.pieces.iter().filter(|piece| which(piece)) {
            let Piece::Table { name, table, known, .. } = piece else {
                Self::log(piece, stop, &mut |batch, at| {
                    let known = TimestampMicrosecondArray::from(vec![at; batch.num_rows()]);
                    each(&mut left, &batch, &known)?;
                    Ok(true)
                })?;
                continue;
            };
            // Files and groups of rows that nothing is wanted of are not even opened.
            let (mut groups, mut before) = (None, 0);
            if let Some(sizes) = table.sizes() {
                let wanted = groups_from(&sizes, &mut left);
                let Some(next) = wanted.first() else { continue };
                before = sizes[..*next].iter().sum();
                groups = Some(wanted);
            }
            let mut columns = names.clone();
            columns.extend(known.clone());
            let mut first = usize::try_from(before).unwrap_or(usize::MAX);
            Self::table(piece, columns, groups, stop, &mut |batch| {
                let place = |column: &str| format!("{}.{column} in {name}", self.view.name);
                let mut fitted = Vec::with_capacity(names.len());
                for (field, column) in wanted.fields().iter().zip(batch.columns()) {
                    let column = fit(&place(field.name()), column, field.data_type())?;
                    if !field.is_nullable() {
                        whole(&column, first, || place(field.name()))?;
                    }
                    fitted.push(column);
                }
                let event = fitted.last().ok_or_else(|| Error::internal("no columns"))?.clone();
                let known = match (known, batch.columns().get(names.len())) {
                    (Some(called), Some(column)) => {
                        let column = fit(&place(called), column, &moment())?;
                        whole(&column, first, || place(called))?;
                        column
                    }
                    _ => event,
                };
                let batch =
                    RecordBatch::try_new(wanted.clone(), fitted).map_err(Error::internal)?;
                first += batch.num_rows();
                each(&mut left, &batch, known.as_primitive::<TimestampMicrosecondType>())?;
                Ok(true)
            })?;
        }
        Ok(())
    }
}

/// The groups of rows that are left after so many rows; what is left then is within the first.
fn groups_from(sizes: &[u64], left: &mut u64) -> Vec<usize> {
    let mut groups = Vec::new();
    for (number, rows) in sizes.iter().enumerate() {
        if groups.is_empty() && *rows <= *left {
            *left -= *rows;
        } else {
            groups.push(number);
        }
    }
    groups
}

fn whole(column: &ArrayRef, first: usize, place: impl Fn() -> String) -> Result<()> {
    let gap = (column.null_count() > 0).then(|| (0..column.len()).find(|row| column.is_null(*row)));
    match gap.flatten() {
        Some(row) => {
            let field = format!("{} row {}", place(), first + row);
            Err(Error::invalid(field, "null", "a value in every row"))
        }
        None => Ok(()),
    }
}
