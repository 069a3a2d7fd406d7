//! Reading a table that a stranger wrote: checked first, then in batches of bounded size.
//!
//! Must hold:
//! - Before the Parquet library sees the description at the end of the file it was walked through
//!   here: every list in it is as long as it says, and nesting is bounded.
//! - Before a row group is read, the headers of the pages of the wanted columns were walked
//!   through: no page unpacks to more than a limit, nor to more than it says, and no column has more
//!   values than a limit.
//! - A file whose bytes cannot be had is not taken for a damaged one: the error is that of the place.
//! - The Arrow schema that some writers put into a file is not read; Parquet's own says it all.
//! - The Parquet library asserts some things that only hold for a well-made file. Such an assertion
//!   is a fault of the file like any other, never the end of the thread that reads it.

mod blocks;
mod bounds;
mod footer;
mod pages;
mod source;
mod thrift;
mod unpack;

pub use blocks::Blocks;
pub use source::{Ranges, Source};

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use falaj_base::{Error, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;

use crate::arrow;
use crate::column::{Batch, Field, Item};
use crate::limits::Limits;

/// A file that can be read.
#[derive(Clone)]
pub struct Table {
    source: Source,
    metadata: ArrowReaderMetadata,
    fields: Vec<Field>,
    limits: Limits,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("fields", &self.fields).finish_non_exhaustive()
    }
}

/// Which part of a file is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Columns by name, in this order; none: all.
    pub columns: Option<Vec<String>>,
    /// Row groups by number; none: all.
    pub groups: Option<Vec<usize>>,
    /// Rows of a batch at most; fewer if they are large.
    pub rows_at_once: usize,
}

impl Table {
    pub fn open(source: impl Into<Source>, limits: Limits) -> Result<Self> {
        let source = source.into();
        let load = || {
            footer::check(&source, &limits)?;
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            guarded(|| ArrowReaderMetadata::load(&source, options).map_err(unreadable))
        };
        let metadata = load().map_err(|error| source.blamed(error))?;
        check_groups(&metadata, &limits)?;
        let fields = metadata.schema().fields().iter().map(|field| arrow::field(field)).collect();
        Ok(Self { source, metadata, fields, limits })
    }

    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// How many rows there are in all.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.groups().sum()
    }

    /// How many rows each row group has.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = u64> {
        let groups = self.metadata.metadata().row_groups();
        groups.iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0))
    }

    /// A note that the writer left.
    #[must_use]
    pub fn note(&self, key: &str) -> Option<&str> {
        let notes = self.metadata.metadata().file_metadata().key_value_metadata()?;
        notes.iter().find(|note| note.key == key)?.value.as_deref()
    }

    /// The columns, as Arrow has them.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// The rows of a part, batch by batch.
    pub fn read(&self, part: &Part) -> Result<Batches> {
        let columns = self.columns(part)?;
        for &column in &columns {
            if let Item::Other(what) = &self.fields[column].item {
                let name = format!("column {}", self.fields[column].name);
                let allowed = "numbers, booleans, text, bytes, times and lists of them";
                return Err(Error::invalid(name, what, allowed));
            }
        }
        self.records(part).map(Batches)
    }

    fn columns(&self, part: &Part) -> Result<Vec<usize>> {
        match &part.columns {
            None => Ok((0..self.fields.len()).collect()),
            Some(names) => names.iter().map(|name| self.place(name)).collect(),
        }
    }

    /// The same for those who compute on Arrow arrays, whatever types the file has.
    pub fn records(&self, part: &Part) -> Result<Records> {
        let columns = self.columns(part)?;
        let count = self.groups().len();
        let groups = part.groups.clone().unwrap_or_else(|| (0..count).collect());
        if let Some(beyond) = groups.iter().find(|group| **group >= count) {
            return Err(Error::invalid("row group", beyond, format!("below {count}")));
        }
        Ok(Records {
            table: self.clone(),
            columns,
            groups: groups.into(),
            rows_at_once: part.rows_at_once.max(1),
            current: None,
        })
    }

    fn place(&self, name: &str) -> Result<usize> {
        let place = self.fields.iter().position(|field| field.name == name);
        place.ok_or_else(|| {
            let names = self.fields.iter().map(|field| field.name.as_str());
            Error::invalid("column", name, names.take(50).collect::<Vec<_>>().join(", "))
        })
    }

    /// A reader of one row group, after its pages were looked at.
    fn group(
        &self,
        group: usize,
        columns: &[usize],
        rows: usize,
    ) -> Result<ParquetRecordBatchReader> {
        let metadata = self.metadata.metadata();
        let leaves = self.metadata.parquet_schema();
        let mask = ProjectionMask::roots(leaves, columns.iter().copied());
        let described = metadata.row_group(group);
        let mut found = pages::Found::default();
        for leaf in (0..leaves.num_columns()).filter(|&leaf| mask.leaf_included(leaf)) {
            let chunk = described.column(leaf);
            found.add(pages::check(&self.source, chunk, &self.limits)?);
        }
        let group_rows = usize::try_from(described.num_rows()).unwrap_or(0);
        let rows = rows.min(found.rows_at_once(group_rows, self.limits.batch)).max(1);
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
            self.source.clone(),
            self.metadata.clone(),
        );
        let reader =
            builder.with_row_groups(vec![group]).with_projection(mask).with_batch_size(rows);
        guarded(|| reader.build().map_err(unreadable))
    }
}

fn check_groups(metadata: &ArrowReaderMetadata, limits: &Limits) -> Result<()> {
    let groups = metadata.metadata().row_groups();
    if groups.len() > limits.row_groups {
        let allowed = format!("at most {}", limits.row_groups);
        return Err(Error::invalid("row groups", groups.len(), allowed));
    }
    for group in groups {
        let rows = u64::try_from(group.num_rows()).ok();
        if rows.is_none_or(|rows| rows > limits.group_rows) {
            let allowed = format!("0 to {} in a row group", limits.group_rows);
            return Err(Error::invalid("rows", group.num_rows(), allowed));
        }
        if group.num_columns() != metadata.parquet_schema().num_columns() {
            let allowed = "as many as the file has";
            return Err(Error::invalid("columns of a row group", group.num_columns(), allowed));
        }
    }
    Ok(())
}

/// A fault of the file, in the library's words.
fn unreadable(error: impl Into<ParquetError>) -> Error {
    Error::invalid("file", error.into(), "a Parquet file")
}

/// Runs what may meet an assertion of the library. What it worked on is dropped after a panic, so
/// nobody sees it half done.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Error::invalid("file", text.unwrap_or("damaged"), "a Parquet file"))
    })
}

/// Rows of a part of a file as Arrow has them, as an iterator. After an error there is no more.
#[derive(Debug)]
pub struct Records {
    table: Table,
    columns: Vec<usize>,
    groups: VecDeque<usize>,
    rows_at_once: usize,
    current: Option<ParquetRecordBatchReader>,
}

impl Records {
    fn step(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(reader) = &mut self.current {
                match reader.next() {
                    Some(batch) => return self.ordered(&batch.map_err(unreadable)?).map(Some),
                    None => self.current = None,
                }
            }
            let Some(group) = self.groups.pop_front() else { return Ok(None) };
            self.current = Some(self.table.group(group, &self.columns, self.rows_at_once)?);
        }
    }

    /// The columns in the order in which they were asked for; the library gives them in the file's.
    fn ordered(&self, read: &RecordBatch) -> Result<RecordBatch> {
        let mut there = self.columns.clone();
        there.sort_unstable();
        there.dedup();
        let place = |column: &usize| there.binary_search(column).unwrap_or(usize::MAX);
        let order: Vec<usize> = self.columns.iter().map(place).collect();
        read.project(&order).map_err(|error| unreadable(ParquetError::from(error)))
    }
}

impl Iterator for Records {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = guarded(|| self.step()).map_err(|error| self.table.source.blamed(error));
        if step.is_err() {
            (self.current, self.groups) = (None, VecDeque::new());
        }
        step.transpose()
    }
}

/// Batches of a part of a file, as an iterator. After an error there is no more.
#[derive(Debug)]
pub struct Batches(Records);

impl Batches {
    fn batch(&self, read: &RecordBatch) -> Result<Batch> {
        let Records { table, columns, .. } = &self.0;
        let columns = columns.iter().zip(read.columns()).map(|(&place, array)| {
            let field = &table.fields[place];
            Ok((field.clone(), arrow::column(field, array.as_ref())?))
        });
        Batch::new(columns.collect::<Result<Vec<_>>>()?)
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.0.next()?;
        Some(read.and_then(|read| guarded(|| self.batch(&read))))
    }
}
