//! Named, typed columns: what files are made of, without anything of Arrow in it.

use falaj_base::{Error, Result};
use falaj_inference::{Data, DataType};

/// What one value of a column is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An element as tensors have them; BYTES are bytes of any kind.
    Element(DataType),
    /// Text, held as BYTES that are valid UTF-8.
    Text,
    /// A moment, held as INT64: microseconds since 1970, UTC.
    Time,
    /// Something that files have and this crate does not read, in its own words.
    Other(String),
}

impl Item {
    /// The type that values of this kind are held as.
    #[must_use]
    pub fn held(&self) -> Option<DataType> {
        match self {
            Self::Element(kind) => Some(*kind),
            Self::Text => Some(DataType::Bytes),
            Self::Time => Some(DataType::I64),
            Self::Other(_) => None,
        }
    }
}

/// How many values a row has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Many {
    One,
    /// A list of as many values in every row, under a shape that multiplies up to it.
    Fixed(Vec<usize>),
    /// A list of any length.
    Varied,
}

/// A column's name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub item: Item,
    pub many: Many,
    /// Whether a row may have no value at all.
    pub optional: bool,
}

impl Field {
    /// One value in every row.
    #[must_use]
    pub fn one(name: impl Into<String>, item: Item) -> Self {
        Self { name: name.into(), item, many: Many::One, optional: false }
    }

    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    #[must_use]
    pub fn many(mut self, many: Many) -> Self {
        self.many = many;
        self
    }
}

/// The values of a column for some rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The values of all rows, one after another. A row without a value has a place here too
    /// (NaN, zero or nothing), unless it is a list of any length.
    pub items: Data,
    /// Where each row's values end, for lists of any length.
    pub ends: Option<Vec<usize>>,
    /// Rows without a value; none if all have one.
    pub missing: Option<Vec<bool>>,
}

impl Column {
    /// One value for each row, or a fixed number of them.
    #[must_use]
    pub fn of(items: Data) -> Self {
        Self { items, ends: None, missing: None }
    }

    #[must_use]
    pub fn lists(items: Data, ends: Vec<usize>) -> Self {
        Self { ends: Some(ends), ..Self::of(items) }
    }

    /// Text that some rows have.
    #[must_use]
    pub fn optional_texts<'a>(texts: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let (mut items, mut missing) = (Vec::new(), Vec::new());
        for text in texts {
            items.push(bytes::Bytes::copy_from_slice(text.unwrap_or_default().as_bytes()));
            missing.push(text.is_none());
        }
        Self { missing: Some(missing), ..Self::of(Data::Bytes(items)) }
    }

    #[must_use]
    pub fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let copy = |text: &str| bytes::Bytes::copy_from_slice(text.as_bytes());
        Self::of(Data::Bytes(texts.into_iter().map(copy).collect()))
    }

    /// How many rows these are, if they are those of this field.
    pub(crate) fn rows(&self, field: &Field) -> Result<usize> {
        let refused = |value: String, allowed: &str| {
            Err(Error::invalid(format!("column {}", field.name), value, allowed))
        };
        let Some(held) = field.item.held() else {
            return refused(format!("{:?}", field.item), "a type that can be written");
        };
        if self.items.data_type() != held {
            return refused(self.items.data_type().to_string(), held.name());
        }
        let rows = match (&field.many, &self.ends) {
            (Many::One, None) => self.items.len(),
            (Many::Fixed(shape), None) => {
                let width = falaj_inference::tensor::count(shape)?;
                match self.missing.as_ref().map(Vec::len) {
                    // Without elements only the list of what is missing could say how many.
                    _ if width == 0 => return refused(format!("{shape:?}"), "no empty lists"),
                    _ if !self.items.len().is_multiple_of(width) => {
                        return refused(self.items.len().to_string(), "whole lists");
                    }
                    _ => self.items.len() / width,
                }
            }
            (Many::Varied, Some(ends)) => {
                let grows = ends.iter().try_fold(0, |at, &end| (end >= at).then_some(end));
                if grows != Some(self.items.len()) {
                    return refused(format!("{grows:?}"), "ends that grow up to the last value");
                }
                ends.len()
            }
            _ => return refused(format!("{:?}", field.many), "ends for lists that vary, only"),
        };
        if self.missing.as_ref().is_some_and(|missing| missing.len() != rows) {
            return refused(format!("{rows} rows"), "as many as are told to be there or missing");
        }
        if !field.optional && self.is_missing_any() {
            return refused("rows without a value".to_owned(), "a value in every row");
        }
        Ok(rows)
    }

    #[must_use]
    pub fn is_missing(&self, row: usize) -> bool {
        self.missing.as_ref().is_some_and(|missing| missing.get(row) == Some(&true))
    }

    fn is_missing_any(&self) -> bool {
        self.missing.as_ref().is_some_and(|missing| missing.contains(&true))
    }
}

/// Columns of the same rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    columns: Vec<(Field, Column)>,
    rows: usize,
}

impl Batch {
    /// Columns that all have the same number of rows, each under its own name.
    pub fn new(columns: Vec<(Field, Column)>) -> Result<Self> {
        let mut rows = None;
        for (place, (field, column)) in columns.iter().enumerate() {
            let these = column.rows(field)?;
            if *rows.get_or_insert(these) != these {
                let allowed = format!("{} rows, like the first column", rows.unwrap_or(0));
                let name = format!("column {}", field.name);
                return Err(Error::invalid(name, format!("{these} rows"), allowed));
            }
            if columns[..place].iter().any(|(other, _)| other.name == field.name) {
                return Err(Error::invalid("columns", &field.name, "each name once"));
            }
        }
        Ok(Self { columns, rows: rows.unwrap_or(0) })
    }

    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    #[must_use]
    pub fn columns(&self) -> &[(Field, Column)] {
        &self.columns
    }

    /// A column by its name.
    pub fn column(&self, name: &str) -> Result<&(Field, Column)> {
        let found = self.columns.iter().find(|(field, _)| field.name == name);
        found.ok_or_else(|| {
            let names: Vec<_> = self.columns.iter().map(|(field, _)| field.name.as_str()).collect();
            Error::invalid("column", name, names.join(", "))
        })
    }

    #[must_use]
    pub fn into_columns(self) -> Vec<(Field, Column)> {
        self.columns
    }
}
