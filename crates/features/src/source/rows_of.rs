//! Rows of one file: a Parquet file as it is, or one of a table that says more about it.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use falaj_base::Result;
use falaj_tables::{Part, Table};

/// Whatever has columns and rows.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for each file")]
pub(crate) enum RowsOf {
    File(Table),
    Lake(falaj_lake::Rows),
}

impl RowsOf {
    pub(crate) fn schema(&self) -> &SchemaRef {
        match self {
            Self::File(table) => table.schema(),
            Self::Lake(rows) => rows.schema(),
        }
    }

    /// How many rows the file has.
    pub(crate) fn rows(&self) -> u64 {
        match self {
            Self::File(table) => table.rows(),
            Self::Lake(rows) => rows.rows(),
        }
    }

    /// How many rows each group of rows has, if that is known before they are read: what a table
    /// deleted by value is not.
    pub(crate) fn sizes(&self) -> Option<Vec<u64>> {
        match self {
            Self::File(table) => Some(table.groups().collect()),
            Self::Lake(rows) => rows.sizes(),
        }
    }

    /// The earliest and the latest time of a column in each group of rows, where that is known
    /// before they are read and none is missing.
    pub(crate) fn times(&self, column: &str) -> Vec<Option<(i64, i64)>> {
        match self {
            Self::File(table) => table.times(column),
            Self::Lake(_) => Vec::new(),
        }
    }

    pub(crate) fn records(
        &self,
        part: &Part,
    ) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>>>> {
        Ok(match self {
            Self::File(table) => Box::new(table.records(part)?),
            Self::Lake(rows) => Box::new(rows.records(part)?),
        })
    }
}
