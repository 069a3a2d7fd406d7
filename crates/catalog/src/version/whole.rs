//! Several files as one, made while it is read.

use std::io::Write;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_governance::tenancy::Project;
use falaj_tables::{Layout, Part, RecordWriter, Table};
use futures::Stream;
use tokio::runtime::Handle;

use super::open::Opened;
use super::version::VersionFile;
use crate::Datasets;
use crate::pipe::{Pipe, pipe};

/// Rows that are written at a time.
const ROWS: usize = 16_384;

/// The rows of all files of a version, in order, as a file of Parquet.
pub(crate) fn whole(
    datasets: &Datasets,
    project: &Project,
    opened: Opened,
) -> impl Stream<Item = Result<Bytes>> + Send + use<> {
    let (out, pieces) = pipe();
    let fail = out.failing();
    let (datasets, project, runtime) = (datasets.clone(), project.clone(), Handle::current());
    tokio::task::spawn_blocking(move || {
        let open = |file: &VersionFile| runtime.block_on(datasets.table(&project, file));
        // Whoever no longer reads ends it.
        write(&opened.files, open, out).unwrap_or_else(fail);
    });
    pieces
}

fn write(
    files: &[VersionFile],
    open: impl Fn(&VersionFile) -> Result<Table>,
    out: Pipe,
) -> Result<()> {
    let first = open(files.first().ok_or_else(|| Error::internal("a version without files"))?)?;
    let schema = nullable(first.schema());
    let names: Vec<String> = schema.fields().iter().map(|it| it.name().clone()).collect();
    let mut writer = RecordWriter::new(out, schema.clone(), Layout::default())?;
    let part = Part { columns: Some(names), groups: None, rows_at_once: ROWS };
    for file in files {
        for batch in open(file)?.records(&part)? {
            let batch = batch?.with_schema(schema.clone()).map_err(Error::internal)?;
            writer.write(&batch)?;
        }
    }
    writer.close()?.flush().map_err(Error::internal)
}

/// A column that one file always has may have gaps in another.
pub(crate) fn nullable(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|it| Field::clone(it).with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
