//! A folder with a table in it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int64Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use falaj_base::{Error, Result};
use falaj_lake::{Folder, Hashes, Limits, Place, Rows, Snapshot};
use falaj_tables::{Layout, Part, RecordWriter};

pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn place(&self) -> Folder {
        Folder::open("lake", self.folder.path(), Hashes::default()).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    pub(crate) fn text(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A file with the columns `id` and `name`, in groups of three rows.
    pub(crate) fn rows(&self, name: &str, ids: impl IntoIterator<Item = i64>) {
        let ids: Vec<i64> = ids.into_iter().collect();
        let names: Vec<String> = ids.iter().map(|id| format!("n{id}")).collect();
        self.batch(
            name,
            &RecordBatch::try_from_iter([
                ("id", Arc::new(Int64Array::from(ids)) as ArrayRef),
                ("name", Arc::new(StringArray::from(names))),
            ])
            .unwrap(),
        );
    }

    pub(crate) fn batch(&self, name: &str, batch: &RecordBatch) {
        let layout = Layout { group_rows: 3, ..Layout::default() };
        let file = fs::File::create(self.path(name)).unwrap();
        let mut writer = RecordWriter::new(file, batch.schema(), layout).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
    }

    /// Some columns of all rows, as text.
    pub(crate) fn read(&self, snapshot: &Snapshot, columns: &[&str]) -> Result<Vec<String>> {
        let (place, limits) = (self.place(), Limits::default());
        let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
        let mut found = Vec::new();
        for data in &snapshot.files {
            let file =
                place.open(&data.path)?.ok_or_else(|| Error::not_found("file", &data.path))?;
            let rows = Rows::open(snapshot, data, &file, &limits)?;
            let part = Part { columns: Some(columns.clone()), groups: None, rows_at_once: 2 };
            for batch in rows.records(&part)? {
                let batch = batch?;
                for row in 0..batch.num_rows() {
                    let values: Vec<String> =
                        batch.columns().iter().map(|column| shown(column, row)).collect();
                    found.push(values.join(" "));
                }
            }
        }
        Ok(found)
    }
}

fn shown(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "-".to_owned();
    }
    if let Some(decimals) = column.as_primitive_opt::<Decimal128Type>() {
        return decimals.value_as_string(row);
    }
    if let Some(days) = column.as_primitive_opt::<Date32Type>() {
        return days.value(row).to_string();
    }
    match column.as_primitive_opt::<Int64Type>() {
        Some(numbers) => numbers.value(row).to_string(),
        None => column.as_string::<i32>().value(row).to_owned(),
    }
}
