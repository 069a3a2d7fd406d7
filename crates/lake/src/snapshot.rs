//! Which files make up a table at a moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use roaring::RoaringTreemap;

use crate::column::Column;
use crate::equal::Equal;

/// A table at a moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What the table calls this moment: the number of a version, or the id of a snapshot.
    pub version: String,
    /// Its columns, in order.
    pub(crate) columns: Arc<[Column]>,
    /// The files with its rows: those that were added earlier come first.
    pub files: Vec<DataFile>,
    /// Other files that decide which rows there are.
    pub evidence: Vec<Evidence>,
}

/// A file with deletes that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// As people know it.
    pub name: String,
    pub blake3: String,
}

/// A file with rows of a table, and what the table says about them.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Below the root of the place.
    pub path: String,
    /// Values that all rows have in common, by the number of the column.
    pub(crate) constants: BTreeMap<usize, ArrayRef>,
    /// Rows that are gone, by their place in the file.
    pub(crate) deleted: Option<Arc<RoaringTreemap>>,
    /// Rows that are gone, by their values.
    pub(crate) equals: Vec<Arc<Equal>>,
}
