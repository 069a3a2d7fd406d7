//! A file's rows as the inputs of a model, and a model's outputs as columns.
//!
//! An input takes the column of its own name: one value for each row, or a list for each row under
//! the input's shape. One input of rows of numbers may instead be gathered from many columns.

mod cast;

use falaj_base::{Error, Result};
use falaj_inference::{Data, DataType, Tensor, ValueInfo};

use crate::column::{Batch, Column, Field, Item, Many};
use cast::{cast, interleaved};

/// Which columns make which input.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    inputs: Vec<(ValueInfo, From)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    Column(String),
    Gathered(Vec<String>),
}

impl Plan {
    /// Finds the columns of every input. `gathered` names those of an input that has no column of
    /// its own; if it is empty, all that fit are taken, in the order of the file.
    pub fn new(fields: &[Field], inputs: &[ValueInfo], gathered: &[String]) -> Result<Self> {
        let has_column = |input: &&ValueInfo| fields.iter().any(|field| field.name == input.name);
        let mut planned = Vec::with_capacity(inputs.len());
        for input in inputs {
            let from = if gathered.is_empty() && has_column(&input) {
                From::Column(input.name.clone())
            } else if inputs.iter().filter(|input| !has_column(input)).count() <= 1 {
                From::Gathered(gathered_for(fields, inputs, input, gathered)?)
            } else {
                let names: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
                let allowed = format!("a column of its own among {}", names.join(", "));
                return Err(Error::invalid(format!("input {}", input.name), "nothing", allowed));
            };
            planned.push((input.clone(), from));
        }
        Ok(Self { inputs: planned })
    }

    /// The columns that have to be read.
    #[must_use]
    pub fn columns(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (_, from) in &self.inputs {
            let these = match from {
                From::Column(name) => std::slice::from_ref(name),
                From::Gathered(names) => names,
            };
            for name in these {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        names
    }

    /// How many rows the model takes at a time, if it takes no other number.
    #[must_use]
    pub fn fixed_rows(&self) -> Option<usize> {
        let first = |input: &ValueInfo| usize::try_from(*input.shape.as_ref()?.first()?).ok();
        self.inputs.iter().find_map(|(input, _)| first(input))
    }

    /// The inputs that a batch holds.
    pub fn inputs(&self, batch: &Batch) -> Result<Vec<(String, Tensor)>> {
        let tensor = |(input, from): &(ValueInfo, From)| {
            let tensor = match from {
                From::Column(name) => single(batch, name, input),
                From::Gathered(names) => gathered(batch, names, input),
            };
            tensor.map(|tensor| (input.name.clone(), tensor))
        };
        self.inputs.iter().map(tensor).collect()
    }
}

fn gathered_for(
    fields: &[Field],
    inputs: &[ValueInfo],
    input: &ValueInfo,
    chosen: &[String],
) -> Result<Vec<String>> {
    let refused = |value: String, allowed: String| {
        Err(Error::invalid(format!("input {}", input.name), value, allowed))
    };
    let wanted = match input.shape.as_deref() {
        None => None,
        // None where the width varies.
        Some([_, width]) => usize::try_from(*width).ok(),
        Some(shape) => {
            let allowed = "a column of its name: only rows of numbers are gathered";
            return refused(format!("of shape {shape:?}"), allowed.to_owned());
        }
    };
    let text = input.data_type == DataType::Bytes;
    let fits = |field: &&Field| {
        let kind = match field.item {
            Item::Text => text,
            Item::Element(kind) => text == (kind == DataType::Bytes),
            Item::Time | Item::Other(_) => false,
        };
        let taken = inputs.iter().any(|other| other.name == field.name);
        kind && field.many == Many::One && !taken
    };
    let found: Vec<String> = if chosen.is_empty() {
        fields.iter().filter(fits).map(|field| field.name.clone()).collect()
    } else {
        chosen.to_vec()
    };
    for name in &found {
        if !fields.iter().any(|field| field.name == *name) {
            let names: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
            return Err(Error::invalid("column", name, names.join(", ")));
        }
    }
    match wanted {
        Some(wanted) if wanted != found.len() => refused(
            format!("{} columns ({})", found.len(), found.join(", ")),
            format!("{wanted} columns; name those that are meant"),
        ),
        _ if found.is_empty() => refused("nothing".to_owned(), "at least one column".to_owned()),
        _ => Ok(found),
    }
}

/// One column with one value, or one list, for each row.
fn single(batch: &Batch, name: &str, input: &ValueInfo) -> Result<Tensor> {
    let (field, column) = batch.column(name)?;
    let rows = batch.rows();
    let data = cast(field, column, input.data_type)?;
    let inner = match column.ends.as_ref() {
        None => data.len() / rows.max(1),
        Some(ends) => even(field, column, ends)?,
    };
    let mut shape = vec![rows];
    match input.shape.as_deref() {
        // Without a shape: a list is a row, and a single value stands for itself.
        None => shape.extend((field.many != Many::One).then_some(inner)),
        Some([] | [_]) if inner == 1 && field.many == Many::One => {}
        Some([_, rest @ ..]) if !rest.is_empty() => {
            shape.extend(inner_shape(rest, inner).ok_or_else(|| {
                let value = format!("{inner} values in a row");
                Error::invalid(format!("column {name}"), value, format!("rows of {rest:?}"))
            })?);
        }
        Some(wanted) => {
            let value = format!("{inner} values in a row");
            let allowed = format!("what fits into {wanted:?}");
            return Err(Error::invalid(format!("column {name}"), value, allowed));
        }
    }
    Tensor::new(shape, data)
}

/// The dimensions behind the rows, the one that varies worked out from the others.
fn inner_shape(wanted: &[i64], inner: usize) -> Option<Vec<usize>> {
    let mut known = 1_usize;
    for dimension in wanted.iter().filter_map(|dimension| usize::try_from(*dimension).ok()) {
        known = known.checked_mul(dimension)?;
    }
    let open = wanted.iter().filter(|dimension| **dimension < 0).count();
    let rest = match open {
        0 => (known == inner).then_some(1)?,
        1 => (known > 0 && inner.is_multiple_of(known)).then(|| inner / known)?,
        _ => return None,
    };
    Some(wanted.iter().map(|dimension| usize::try_from(*dimension).unwrap_or(rest)).collect())
}

/// How many values every row has; refused if they differ.
fn even(field: &Field, column: &Column, ends: &[usize]) -> Result<usize> {
    let width = ends.first().copied().unwrap_or(0);
    for (row, end) in ends.iter().enumerate() {
        if column.is_missing(row) || *end != (row + 1) * width {
            let begin = row.checked_sub(1).map_or(0, |before| ends[before]);
            let value = format!("{} values in row {row} of the batch", end - begin);
            let allowed = format!("{width}, like the first row; or one row at once");
            return Err(Error::invalid(format!("column {}", field.name), value, allowed));
        }
    }
    Ok(width)
}

fn gathered(batch: &Batch, names: &[String], input: &ValueInfo) -> Result<Tensor> {
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let (field, column) = batch.column(name)?;
        if field.many != Many::One {
            let allowed = "single values, to be gathered";
            return Err(Error::invalid(format!("column {name}"), "lists", allowed));
        }
        columns.push((field, column));
    }
    let data = interleaved(&columns, input.data_type)?;
    Tensor::new(vec![batch.rows(), names.len()], data)
}

/// A model's outputs as columns. `infos` says which outputs have rows of varying length: those
/// become lists of any length, so that all batches have columns of one type.
pub fn columns_of(outputs: Vec<(String, Tensor)>, infos: &[ValueInfo]) -> Result<Batch> {
    let mut columns = Vec::with_capacity(outputs.len());
    for (name, tensor) in outputs {
        let (shape, data) = tensor.into_parts();
        let Some((&rows, inner)) = shape.split_first() else {
            return Err(Error::invalid(format!("output {name}"), "a single value", "rows"));
        };
        let info = infos.iter().find(|info| info.name == name);
        let declared = info.and_then(|info| info.shape.as_deref());
        let varies = declared.is_none_or(|shape| shape.iter().skip(1).any(|size| *size < 0));
        let data = match data {
            Data::Bf16(all) => Data::F32(all.into_iter().map(cast::from_bf16).collect()),
            other => other,
        };
        let item = match data.data_type() {
            DataType::Bytes => Item::Text,
            kind => Item::Element(kind),
        };
        let width: usize = inner.iter().product();
        let field = Field::one(name, item);
        columns.push(match inner {
            [] | [1] => (field, Column::of(data)),
            _ if varies || width == 0 => {
                let ends = (1..=rows).map(|row| row * width).collect();
                (field.many(Many::Varied), Column::lists(data, ends))
            }
            _ => (field.many(Many::Fixed(inner.to_vec())), Column::of(data)),
        });
    }
    Batch::new(columns)
}

#[cfg(test)]
mod tests;
