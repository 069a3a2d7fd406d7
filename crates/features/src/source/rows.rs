//! Whole rows of a history, for those who keep them elsewhere.

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, RecordBatch, TimestampMicrosecondArray};
use falaj_base::{Error, Result};

use super::fit::fit;
use super::history::{History, Piece, Stop};
use crate::schema::{self, moment};

impl History {
    /// Hands over all rows with the columns of [`schema::rows`], and since when each is known: with
    /// its event, if nothing tells. A gap among keys or times is refused by its place.
    pub(crate) fn rows(
        &self,
        stop: &Stop,
        mut each: impl FnMut(&RecordBatch, &TimestampMicrosecondArray) -> Result<()>,
    ) -> Result<()> {
        let wanted = schema::rows(&self.view);
        let names: Vec<String> = wanted.fields().iter().map(|it| it.name().clone()).collect();
        for piece in &self.pieces {
            let Piece::Table { name, table, known, .. } = piece else {
                Self::log(piece, stop, &mut |batch, at| {
                    let known = TimestampMicrosecondArray::from(vec![at; batch.num_rows()]);
                    each(&batch, &known)?;
                    Ok(true)
                })?;
                continue;
            };
            let mut columns = names.clone();
            columns.extend(known.clone());
            let mut first = 0;
            Self::table(name, table, columns, stop, &mut |batch| {
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
                each(&batch, known.as_primitive::<TimestampMicrosecondType>())?;
                Ok(true)
            })?;
        }
        Ok(())
    }
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
