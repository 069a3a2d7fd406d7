//! Writing a table: batches in, Parquet out, row group by row group.

mod suited;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{DataType, Schema, SchemaRef};
use falaj_base::{Error, Result};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::arrow;
use crate::column::{Batch, Field};
use suited::Suited;

/// How a file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rows of a row group at most.
    pub group_rows: usize,
    /// Bytes of a row group at most, give or take a batch: that much waits in memory.
    pub group_bytes: usize,
    /// How hard zstd tries, 1 to 22.
    pub level: i32,
}

impl Layout {
    pub const DEFAULT: Self = Self { group_rows: 131_072, group_bytes: 32 << 20, level: 3 };
}

impl Default for Layout {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A file that is being written, out of rows as Arrow has them.
pub struct RecordWriter<W: Write + Send> {
    inner: ArrowWriter<W>,
    layout: Layout,
    rows: u64,
}

impl<W: Write + Send> std::fmt::Debug for RecordWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordWriter").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl<W: Write + Send> RecordWriter<W> {
    pub fn new(out: W, schema: SchemaRef, layout: Layout) -> Result<Self> {
        Self::laid_out(out, schema, layout, Suited::default())
    }

    /// The same for rows of which some are at hand: columns are packed, and have a dictionary, if that is
    /// worth it for those.
    pub fn suited(out: W, sample: &RecordBatch, layout: Layout) -> Result<Self> {
        Self::laid_out(out, sample.schema(), layout, Suited::of(sample, layout.level))
    }

    fn laid_out(out: W, schema: SchemaRef, layout: Layout, suited: Suited) -> Result<Self> {
        let level = ZstdLevel::try_new(layout.level)
            .map_err(|_| Error::invalid("level", layout.level, "1 to 22"))?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            // As the format wants it: readers that cannot parse it do not trust the rest.
            .set_created_by(concat!("falaj version ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_max_row_group_row_count(Some(layout.group_rows.max(1)))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_statistics_truncate_length(Some(64));
        // What pages hold at least and at most nobody asks, nor what lists do: most of those are tensors.
        for column in lists(&schema) {
            properties = properties.set_column_statistics_enabled(column, EnabledStatistics::None);
        }
        for column in numbers(&schema).chain(suited.unlisted) {
            properties = properties.set_column_dictionary_enabled(column, false);
        }
        for column in suited.unpacked {
            properties = properties.set_column_compression(column, Compression::UNCOMPRESSED);
        }
        let properties = Some(properties.build());
        let inner = ArrowWriter::try_new(out, schema, properties).map_err(failed)?;
        Ok(Self { inner, layout, rows: 0 })
    }

    /// Adds rows; the columns must be those the file was begun with, in their order.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.inner.write(batch).map_err(failed)?;
        self.rows += batch.num_rows() as u64;
        if self.inner.in_progress_size() >= self.layout.group_bytes {
            self.end_group()?;
        }
        Ok(())
    }

    /// Ends the row group, so that what was written so far can be read on its own.
    pub fn end_group(&mut self) -> Result<()> {
        self.inner.flush().map_err(failed)
    }

    /// A note about the file that readers find by its key.
    pub fn note(&mut self, key: &str, value: impl Into<String>) {
        self.inner.append_key_value_metadata(KeyValue::new(key.to_owned(), value.into()));
    }

    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of it that are out already, and those that wait in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner.bytes_written() + self.inner.in_progress_size()
    }

    /// Writes what is left and the description at the end.
    pub fn close(self) -> Result<W> {
        self.inner.into_inner().map_err(failed)
    }
}

/// Columns of numbers and times. Looking each up in a dictionary costs more than all the rest of
/// writing, and what repeats among them is packed all the same; a dictionary is for what is long.
fn numbers(schema: &Schema) -> impl Iterator<Item = ColumnPath> {
    let is_number = |field: &&Arc<arrow_schema::Field>| {
        item(field).map_or(field.data_type(), |item| item.data_type()).is_primitive()
    };
    schema.fields().iter().filter(is_number).map(|field| path(field))
}

fn lists(schema: &Schema) -> impl Iterator<Item = ColumnPath> {
    schema.fields().iter().filter(|field| item(field).is_some()).map(|field| path(field))
}

/// What a column has lists of, if it has such.
fn item(field: &arrow_schema::Field) -> Option<&arrow_schema::Field> {
    match field.data_type() {
        DataType::List(item) | DataType::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}

/// Where the values of a column are, those of its lists if it has such.
fn path(field: &arrow_schema::Field) -> ColumnPath {
    let mut path = vec![field.name().clone()];
    if let Some(item) = item(field) {
        path.extend(["list".to_owned(), item.name().clone()]);
    }
    ColumnPath::new(path)
}

/// A file that is being written.
pub struct Writer<W: Write + Send> {
    inner: RecordWriter<W>,
    schema: SchemaRef,
    fields: Vec<Field>,
}

impl<W: Write + Send> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("rows", &self.rows()).finish_non_exhaustive()
    }
}

impl<W: Write + Send> Writer<W> {
    pub fn new(out: W, fields: Vec<Field>, layout: Layout) -> Result<Self> {
        let schema = arrow::schema(&fields)?;
        Ok(Self { inner: RecordWriter::new(out, schema.clone(), layout)?, schema, fields })
    }

    /// A file that begins with these rows and is suited for more like them, see [`RecordWriter::suited`].
    pub fn suited(out: W, first: Batch, layout: Layout) -> Result<Self> {
        let fields: Vec<_> = first.columns().iter().map(|(field, _)| field.clone()).collect();
        let schema = arrow::schema(&fields)?;
        let rows = arrow::record_batch(&schema, first)?;
        let mut inner = RecordWriter::suited(out, &rows, layout)?;
        inner.write(&rows)?;
        Ok(Self { inner, schema, fields })
    }

    /// Adds rows; the columns must be those the file was begun with, in their order.
    pub fn write(&mut self, batch: Batch) -> Result<()> {
        let same = batch.columns().iter().map(|(field, _)| field).eq(&self.fields);
        if !same {
            let names: Vec<_> = self.fields.iter().map(|field| field.name.as_str()).collect();
            let found: Vec<_> = batch.columns().iter().map(|(field, _)| &*field.name).collect();
            return Err(Error::invalid("columns", found.join(", "), names.join(", ")));
        }
        self.inner.write(&arrow::record_batch(&self.schema, batch)?)
    }

    /// Ends the row group, so that what was written so far can be read on its own.
    pub fn end_group(&mut self) -> Result<()> {
        self.inner.end_group()
    }

    /// A note about the file that readers find by its key.
    pub fn note(&mut self, key: &str, value: impl Into<String>) {
        self.inner.note(key, value);
    }

    #[must_use]
    pub fn rows(&self) -> u64 {
        self.inner.rows()
    }

    /// Bytes of it that are out already, and those that wait in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner.bytes()
    }

    /// Writes what is left and the description at the end.
    pub fn close(self) -> Result<W> {
        self.inner.close()
    }
}

/// The first column whose type a file cannot have: whatever the library does not convert.
#[must_use]
pub fn unwritable(schema: &Schema) -> Option<&arrow_schema::Field> {
    let taken = |fields: &mut dyn Iterator<Item = &arrow_schema::Field>| {
        // A row of nulls meets everything that depends on types alone.
        let fields: Vec<_> = fields.map(|field| field.clone().with_nullable(true)).collect();
        let try_row = || {
            let columns = fields.iter().map(|field| new_null_array(field.data_type(), 1)).collect();
            let schema = Arc::new(Schema::new(fields.clone()));
            let row = RecordBatch::try_new(schema.clone(), columns).map_err(Error::internal)?;
            let mut writer = RecordWriter::new(std::io::sink(), schema, Layout::default())?;
            writer.write(&row)?;
            writer.close().map(drop)
        };
        // For types that it has never met, the library may give up rather than refuse.
        matches!(catch_unwind(AssertUnwindSafe(try_row)), Ok(Ok(())))
    };
    let mut fields = schema.fields().iter().map(|field| &**field);
    if taken(&mut fields.clone()) {
        return None;
    }
    fields.find(|field| !taken(&mut [*field].into_iter()))
}

/// Writing fails only where the bytes go, or by a fault of ours.
fn failed(error: parquet::errors::ParquetError) -> Error {
    Error::internal(error)
}

#[cfg(test)]
mod tests {
    use arrow_schema::{Field as Column, IntervalUnit, UnionFields, UnionMode};

    use super::*;

    #[test]
    fn the_first_column_that_a_file_cannot_have_is_found() {
        let list = DataType::List(Arc::new(Column::new("item", DataType::Utf8, false)));
        let coded = DataType::Dictionary(DataType::Int8.into(), DataType::Utf8.into());
        let good = [DataType::Int64, DataType::Binary, list, coded, DataType::Float16];
        let empty = DataType::Union(UnionFields::empty(), UnionMode::Sparse);
        let inner = DataType::List(Arc::new(Column::new("item", empty.clone(), true)));
        let field = |(at, kind): (usize, DataType)| Column::new(format!("c{at}"), kind, false);
        let schema = |more: &[DataType]| {
            let kinds = good.iter().chain(more).cloned();
            Schema::new(kinds.enumerate().map(field).collect::<Vec<_>>())
        };
        assert_eq!(unwritable(&schema(&[])), None);
        for bad in [empty, inner] {
            let schema = schema(&[DataType::Int8, bad, DataType::Int8]);
            assert_eq!(unwritable(&schema).unwrap().name(), "c6");
        }
        // Whatever it says about a type, writing agrees.
        let spans = DataType::Interval(IntervalUnit::MonthDayNano);
        for kind in [spans, DataType::Utf8View, DataType::Null] {
            let schema = Arc::new(Schema::new(vec![Column::new("c", kind.clone(), true)]));
            let row = RecordBatch::try_new(schema.clone(), vec![new_null_array(&kind, 2)]).unwrap();
            let mut writer = RecordWriter::new(Vec::new(), schema.clone(), Layout::default());
            let written = writer.as_mut().is_ok_and(|writer| writer.write(&row).is_ok());
            assert_eq!(unwritable(&schema).is_none(), written, "{kind}");
        }
    }
}
