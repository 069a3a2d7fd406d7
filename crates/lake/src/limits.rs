//! How much of a stranger's table is believed.

use falaj_base::{Error, Result};

/// Bounds on what reading the description of one table may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file of the description.
    pub file: u64,
    /// Bytes of all files of the description that are read.
    pub total: u64,
    /// Names in one folder.
    pub listed: usize,
    /// Things that the description tells, one by one: files added and removed.
    pub actions: usize,
    /// Files of rows.
    pub files: usize,
    /// Columns.
    pub columns: usize,
    /// Bytes that deleted rows may take in memory.
    pub deletes: usize,
    /// Bounds on each Parquet file.
    pub tables: falaj_tables::Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file: 256 << 20,
            total: 512 << 20,
            listed: 200_000,
            actions: 1_000_000,
            files: 10_000,
            columns: 10_000,
            deletes: 256 << 20,
            tables: falaj_tables::Limits::default(),
        }
    }
}

/// What is left of the limits while a table is read.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    /// The table, as errors name it.
    table: String,
    bytes: u64,
    actions: usize,
    deletes: usize,
}

impl Budget {
    pub(crate) fn new(table: &str, limits: Limits) -> Self {
        let Limits { total, actions, deletes, .. } = limits;
        Self { limits, table: table.to_owned(), bytes: total, actions, deletes }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How large a file may be that is read next.
    pub(crate) fn file(&self) -> u64 {
        self.limits.file.min(self.bytes)
    }

    pub(crate) fn took(&mut self, bytes: u64) -> Result<()> {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.ok_or_else(|| {
            let allowed = format!("at most {} bytes of it", self.limits.total);
            Error::invalid(&self.table, "too long a description", allowed)
        })?;
        Ok(())
    }

    pub(crate) fn action(&mut self) -> Result<()> {
        let left = self.actions.checked_sub(1);
        self.actions = left.ok_or_else(|| {
            let allowed = format!("at most {}", self.limits.actions);
            Error::invalid(&self.table, "too many files added and removed", allowed)
        })?;
        Ok(())
    }

    /// Room for deleted rows.
    pub(crate) fn deletes(&mut self, bytes: usize) -> Result<()> {
        let left = self.deletes.checked_sub(bytes);
        self.deletes = left.ok_or_else(|| {
            let allowed = format!("deletes of at most {} bytes", self.limits.deletes);
            Error::invalid(&self.table, "too many deleted rows", allowed)
        })?;
        Ok(())
    }

    pub(crate) fn files(&self, count: usize) -> Result<()> {
        if count <= self.limits.files {
            return Ok(());
        }
        let allowed = format!("at most {} (`features.max_source_files`)", self.limits.files);
        Err(Error::invalid(&self.table, format!("{count} files"), allowed))
    }
}
