//! Rows on their way into a view's history: checked, and written as they are kept.

use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_select::filter::filter_record_batch;
use falaj_base::{ByteSize, Error, Result, code};

use crate::config::FeaturesConfig;
use crate::definition::{VersionId, ViewVersion};
use crate::schema;

/// Rows of one version of a view, ready to be appended.
#[derive(Clone, Debug)]
pub struct Rows {
    /// What they are kept under.
    view: VersionId,
    batch: RecordBatch,
    bytes: Vec<u8>,
}

impl Rows {
    /// Takes a batch that has exactly the columns of [`schema::rows`]. A gap among keys or event
    /// times is refused by its row.
    pub fn new(view: &ViewVersion, batch: RecordBatch, config: &FeaturesConfig) -> Result<Self> {
        let wanted = schema::rows(view.form());
        for field in wanted.fields() {
            let Some(column) = batch.column_by_name(field.name()) else {
                let allowed = format!("a column of the type {}", field.data_type());
                return Err(Error::invalid(field.name(), "absent", allowed));
            };
            if column.data_type() != field.data_type() {
                return Err(Error::invalid(field.name(), column.data_type(), field.data_type()));
            }
            let gap = (!field.is_nullable()).then(|| first_null(column)).flatten();
            if let Some(row) = gap {
                let field = format!("{}[{row}]", field.name());
                return Err(Error::invalid(field, "null", "a value in every row"));
            }
        }
        if let Some(more) =
            batch.schema_ref().fields().iter().find(|it| wanted.index_of(it.name()).is_err())
        {
            let names: Vec<_> = wanted.fields().iter().map(|it| it.name().as_str()).collect();
            return Err(Error::invalid("columns", more.name(), names.join(", ")));
        }
        let rows = batch.num_rows();
        if rows == 0 || rows > config.max_push_rows {
            let allowed = format!("1 to {} (`features.max_push_rows`)", config.max_push_rows);
            return Err(Error::invalid("rows", rows, allowed));
        }
        let columns = wanted.fields().iter().filter_map(|it| batch.column_by_name(it.name()));
        let batch = RecordBatch::try_new(wanted.clone(), columns.cloned().collect())
            .map_err(Error::internal)?;
        let bytes = encode(&batch)?;
        if bytes.len() as u64 > config.max_push_size.bytes() {
            let (found, most) = (ByteSize::from_bytes(bytes.len() as u64), config.max_push_size);
            let text = format!("the rows take {found}; allowed: {most} (`features.max_push_size`)");
            return Err(Error::new(&code::TOO_LARGE, text).at("rows"));
        }
        Ok(Self { view: view.rows(), batch, bytes })
    }

    #[must_use]
    pub fn view(&self) -> VersionId {
        self.view
    }

    #[must_use]
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn first_null(column: &dyn Array) -> Option<usize> {
    (column.null_count() > 0).then(|| (0..column.len()).find(|row| column.is_null(*row))).flatten()
}

/// The rows that are kept, of those that were; none if all are.
pub(super) fn filtered(batch: &RecordBatch, keep: &BooleanArray) -> Result<Option<Vec<u8>>> {
    if keep.true_count() == batch.num_rows() {
        return Ok(None);
    }
    encode(&filter_record_batch(batch, keep).map_err(Error::internal)?).map(Some)
}

/// A batch as a stream of Arrow's own format, which outlives versions of this program.
pub(super) fn encode(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // A push is often one row of many columns: with room for 64 bytes in each, as is usual, most of what
    // is written would be padding.
    let options =
        IpcWriteOptions::try_new(8, false, MetadataVersion::V5).map_err(Error::internal)?;
    let mut writer = StreamWriter::try_new_with_options(&mut bytes, batch.schema_ref(), options)
        .map_err(Error::internal)?;
    writer.write(batch).map_err(Error::internal)?;
    writer.finish().map_err(Error::internal)?;
    drop(writer);
    Ok(bytes)
}

/// What was encoded; it comes from our own database, and is checked all the same.
pub(super) fn decode(bytes: &[u8]) -> Result<RecordBatch> {
    let damaged =
        |error| Error::new(&code::INTEGRITY, "pushed rows cannot be read back").caused_by(error);
    let mut reader = StreamReader::try_new(bytes, None).map_err(damaged)?;
    let batch = reader.next().transpose().map_err(damaged)?;
    batch.ok_or_else(|| Error::new(&code::INTEGRITY, "pushed rows are not there"))
}
