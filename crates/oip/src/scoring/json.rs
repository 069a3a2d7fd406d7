//! The four shapes of a JSON body.

use bytes::Bytes;
use falaj_base::{Error, Result};

use super::frame::Frame;
use super::grow::Cell;
use super::{Form, Scheme, Scored};
use crate::error::{Of, too_large};
use crate::json::{Cursor, Wants, read_data};
use crate::message::Limits;

const SHAPES: &[&str] = &["dataframe_split", "dataframe_records", "instances", "inputs"];
const ALLOWED: &str = "exactly one of dataframe_split, dataframe_records, instances, inputs";

pub(super) fn read(body: &Bytes, scheme: Scheme<'_>, limits: &Limits) -> Result<Scored> {
    let mut cursor = Cursor::of(body)?;
    let mut found: Option<(&str, usize)> = None;
    cursor.object("an object", |cursor, key| {
        cursor.peek();
        if let Some(shape) = SHAPES.iter().find(|shape| **shape == key)
            && let Some((earlier, _)) = found.replace((shape, cursor.at()))
        {
            return Err(Error::invalid("body", format!("{earlier} and {shape}"), ALLOWED));
        }
        cursor.skip().map(drop)
    })?;
    cursor.end()?;
    let Some((shape, at)) = found else {
        return Err(Error::invalid("body", "without data", ALLOWED));
    };
    let mut reader = Reader { cursor: cursor.moved(at), body, scheme, limits };
    match shape {
        "dataframe_split" => reader.split(),
        "dataframe_records" => reader.records("dataframe_records, a list of records,", true),
        _ if shape == "instances" && reader.holds_objects() => {
            reader.records("instances, a list,", false)
        }
        _ => reader.tensors(),
    }
}

/// A body, with the cursor at the value that holds the data.
struct Reader<'a> {
    cursor: Cursor<'a>,
    body: &'a Bytes,
    scheme: Scheme<'a>,
    limits: &'a Limits,
}

impl<'a> Reader<'a> {
    /// Whether a list is next whose first item is an object.
    fn holds_objects(&self) -> bool {
        let mut ahead = self.cursor.clone();
        ahead.take(b'[') && ahead.peek() == Some(b'{')
    }

    /// `{"columns": [...], "data": [[...], ...]}`, with `index` passed over.
    fn split(mut self) -> Result<Scored> {
        let (mut names, mut data) = (None, None);
        let limits = self.limits;
        self.cursor.object("dataframe_split, an object,", |cursor, key| {
            match &*key {
                "columns" if cursor.peek() == Some(b'[') => names = Some(columns(cursor, limits)?),
                "data" => {
                    cursor.peek();
                    data = Some(cursor.at());
                    cursor.skip()?;
                }
                _ => drop(cursor.skip()?),
            }
            Ok(())
        })?;
        let Some(data) = data else {
            return Err(Error::invalid("dataframe_split.data", "missing", "a list of rows"));
        };
        self.cursor = self.cursor.moved(data);
        let mut frame = names.map(|names| Frame::new(names, self.scheme)).transpose()?;
        let (body, scheme) = (self.body, self.scheme);
        let mut cells = Vec::new();
        self.cursor.list("dataframe_split.data, a list of rows,", |cursor| {
            cells.clear();
            cursor.list("a row, a list,", |cursor| {
                cells.push(cursor.clone());
                cursor.skip().map(drop)
            })?;
            let frame = match &mut frame {
                Some(frame) => frame,
                // Without names the first row says how many columns there are.
                None => frame.insert(Frame::new(numbered(cells.len()), scheme)?),
            };
            if cells.len() != frame.width() {
                let allowed = format!("{}, one for each column", frame.width());
                return Err(Error::invalid("dataframe_split.data", cells.len(), allowed));
            }
            frame.row(body, limits, |source| Cell::Json(cells[source].clone()))
        })?;
        let frame = match frame {
            Some(frame) => frame,
            None => Frame::new(Vec::new(), scheme)?,
        };
        frame.finish(Form::Frame)
    }

    /// `[{"a": 1, "b": 2}, ...]`; the first says which columns there are.
    fn records(&mut self, what: &str, is_frame: bool) -> Result<Scored> {
        let mut frame: Option<Frame<'_>> = None;
        let mut cells: Vec<Option<Cursor<'a>>> = Vec::new();
        let mut set: Vec<usize> = Vec::new();
        let (body, limits, scheme) = (self.body, self.limits, self.scheme);
        self.cursor.list(what, |cursor| {
            // Only what the last record set: it may have had few of many columns.
            for place in set.drain(..) {
                cells[place] = None;
            }
            let mut names = Vec::new();
            let mut next = 0;
            cursor.object("a record, an object,", |cursor, key| {
                let place = match &frame {
                    None => {
                        names.push(key.into_owned());
                        cells.push(None);
                        names.len() - 1
                    }
                    // Records mostly have the same order.
                    Some(frame) => frame.column(&key, next).ok_or_else(|| {
                        Error::invalid("columns", &key, "those of the first record")
                    })?,
                };
                next = place + 1;
                set.push(place);
                cells[place] = Some(cursor.clone());
                cursor.skip().map(drop)
            })?;
            let frame = match &mut frame {
                Some(frame) => frame,
                None if is_frame => frame.insert(Frame::new(names, scheme)?),
                None => frame.insert(Frame::by_name(names, scheme.metadata)?),
            };
            frame.row(body, limits, |source| match &cells[source] {
                Some(cursor) => Cell::Json(cursor.clone()),
                None => Cell::Missing,
            })
        })?;
        match frame {
            Some(frame) => frame.finish(if is_frame { Form::Frame } else { Form::Tensors }),
            None => Err(Error::invalid("body", "without a record", "one record at least")),
        }
    }

    /// A list for the only input, or an object with a list for each.
    fn tensors(&mut self) -> Result<Scored> {
        let known = &self.scheme.metadata.inputs;
        let names = || known.iter().map(|info| info.name.as_str()).collect::<Vec<_>>().join(", ");
        let mut inputs = Vec::with_capacity(known.len());
        let mut left = self.limits.max_elements;
        let (body, limits) = (self.body, self.limits);
        let mut tensor = |cursor: &mut Cursor<'a>, info: &falaj_inference::ValueInfo| {
            let of = Of("inputs", &info.name);
            let wants = Wants::AtMost(left);
            let (data, shape) = read_data(cursor, info.data_type, wants, of, body)?;
            left -= data.len();
            if info.data_type == falaj_inference::DataType::Bytes && data.len() > limits.max_strings
            {
                return Err(too_large("strings", limits.max_strings, of.to_string()));
            }
            Ok((info.name.clone(), falaj_inference::Tensor::new(shape, data)?))
        };
        if self.cursor.peek() == Some(b'{') {
            self.cursor.object("inputs", |cursor, key| {
                let Some(info) = known.iter().find(|info| info.name == key) else {
                    return Err(Error::invalid("inputs", key, names()));
                };
                let input = tensor(cursor, info)?;
                if inputs.iter().any(|(earlier, _)| *earlier == input.0) {
                    return Err(Error::invalid("inputs", key, "each input once"));
                }
                inputs.push(input);
                Ok(())
            })?;
        } else {
            let [only] = &known[..] else {
                let allowed = format!("an object with a list for each of {}", names());
                return Err(Error::invalid("inputs", "a list", allowed));
            };
            inputs.push(tensor(&mut self.cursor, only)?);
        }
        Ok(Scored { inputs, form: Form::Tensors })
    }
}

/// Names of columns; numbers are names too.
fn columns(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Vec<String>> {
    let mut names = Vec::new();
    cursor.list("columns, a list,", |cursor| {
        let name = match cursor.peek() {
            Some(b'"') => cursor.string("a name")?.into_owned(),
            _ => cursor.skip()?.to_owned(),
        };
        if name.len() > limits.max_name {
            let allowed = format!("at most {} bytes", limits.max_name);
            return Err(Error::invalid("columns", name, allowed));
        }
        names.push(name);
        Ok(())
    })?;
    Ok(names)
}

/// The names that pandas gives to columns without one.
fn numbered(columns: usize) -> Vec<String> {
    (0..columns).map(|column| column.to_string()).collect()
}
