//! One input of a model, growing by a cell at a time.

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::{Data, Tensor, ValueInfo};

use crate::error::{Of, too_large};
use crate::json::{Cursor, Wants, append, read_data};
use crate::message::Limits;

/// A value of a frame, where it stands.
#[derive(Clone, Debug)]
pub(super) enum Cell<'a> {
    /// In JSON, with the cursor at it.
    Json(Cursor<'a>),
    /// In CSV.
    Text(&'a str),
    /// Nowhere.
    Missing,
}

#[derive(Debug)]
pub(super) struct Growing<'m> {
    info: &'m ValueInfo,
    data: Data,
    /// The shape of one cell, once there is one.
    item: Option<Vec<usize>>,
}

impl<'m> Growing<'m> {
    pub(super) fn new(info: &'m ValueInfo) -> Self {
        Self { info, data: Data::empty(info.data_type, 0), item: None }
    }

    pub(super) fn info(&self) -> &'m ValueInfo {
        self.info
    }

    /// Appends a cell of a single element; `at` names it.
    pub(super) fn scalar(
        &mut self,
        cell: Cell<'_>,
        body: &Bytes,
        at: &dyn Fn() -> String,
    ) -> Result<()> {
        match cell {
            Cell::Missing => self.missing(at),
            Cell::Text(text) => self.text(text, at),
            Cell::Json(mut cursor) => {
                let mut before = cursor.clone();
                append(&mut cursor, &mut self.data, body).or_else(|allowed| {
                    // Malformed JSON is told as that.
                    Err(Error::invalid(at(), before.skip()?, allowed))
                })
            }
        }
    }

    /// Appends a cell that may be a list, of the same shape in each row.
    pub(super) fn cell(
        &mut self,
        cell: Cell<'_>,
        body: &Bytes,
        limits: &Limits,
        at: &dyn Fn() -> String,
    ) -> Result<()> {
        let mut shape = Vec::new();
        match cell {
            Cell::Json(mut cursor) => {
                if cursor.peek() == Some(b'[') {
                    let of = Of("inputs", &self.info.name);
                    let wants = Wants::AtMost(limits.max_elements);
                    let kind = self.info.data_type;
                    let (data, lengths) = read_data(&mut cursor, kind, wants, of, body)?;
                    self.data.append(&data)?;
                    shape = lengths;
                } else {
                    self.scalar(Cell::Json(cursor), body, at)?;
                }
            }
            other => self.scalar(other, body, at)?,
        }
        match self.item.get_or_insert_with(|| shape.clone()) {
            first if *first == shape => Ok(()),
            first => {
                let allowed = format!("as in the first row: {first:?}");
                Err(Error::invalid(at(), format!("of shape {shape:?}"), allowed))
            }
        }
    }

    fn text(&mut self, text: &str, at: &dyn Fn() -> String) -> Result<()> {
        if let Data::Bytes(all) = &mut self.data {
            all.push(Bytes::copy_from_slice(text.as_bytes()));
            return Ok(());
        }
        let text = text.trim();
        // As pandas reads and writes what is not there, and Python what is true.
        let word = match text {
            "" | "nan" | "NaN" | "NA" | "null" => return self.missing(at),
            "True" | "TRUE" => "true",
            "False" | "FALSE" => "false",
            "inf" => "Infinity",
            "-inf" => "-Infinity",
            other => other,
        };
        let mut cursor = Cursor::new(word);
        let read = append(&mut cursor, &mut self.data, &Bytes::new());
        let whole = if cursor.peek().is_none() { Ok(()) } else { Err("one value") };
        read.and(whole).map_err(|allowed| Error::invalid(at(), text, allowed))
    }

    fn missing(&mut self, at: &dyn Fn() -> String) -> Result<()> {
        match &mut self.data {
            Data::F32(all) => all.push(f32::NAN),
            Data::F64(all) => all.push(f64::NAN),
            other => {
                let allowed =
                    format!("a value of {}: only floats can be missing", other.data_type());
                return Err(Error::invalid(at(), "missing", allowed));
            }
        }
        Ok(())
    }

    pub(super) fn within(&self, limits: &Limits) -> Result<()> {
        let strings = matches!(self.data, Data::Bytes(_));
        let most = if strings { limits.max_strings } else { limits.max_elements };
        if self.data.len() > most {
            return Err(too_large("elements", most, Of("inputs", &self.info.name).to_string()));
        }
        Ok(())
    }

    /// All columns side by side.
    pub(super) fn matrix(self, rows: usize, columns: usize) -> Result<(String, Tensor)> {
        Ok((self.info.name.clone(), Tensor::new(vec![rows, columns], self.data)?))
    }

    /// One column. A model may want a matrix of one column for it.
    pub(super) fn column(self, rows: usize) -> Result<(String, Tensor)> {
        let mut shape = vec![rows];
        shape.extend(self.item.unwrap_or_default());
        let rank = self.info.shape.as_ref().map(Vec::len);
        if shape.len() == 1 && rank == Some(2) {
            shape.push(1);
        }
        Ok((self.info.name.clone(), Tensor::new(shape, self.data)?))
    }
}
