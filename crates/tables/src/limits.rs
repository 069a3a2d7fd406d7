//! How much of a stranger's file is believed.

/// Bounds on what reading one file may need. A file beyond one is refused before its data is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the description at the end of the file.
    pub footer: usize,
    /// Columns, counting every leaf of what is nested.
    pub columns: usize,
    /// Levels of nesting.
    pub depth: usize,
    pub row_groups: usize,
    /// Rows of one row group.
    pub group_rows: u64,
    /// Elements of one column in one row group, which for lists are more than rows.
    pub group_values: u64,
    /// Bytes of one page as it is in memory.
    pub page: usize,
    /// Bytes that a batch should stay under; it gets fewer rows if they are large.
    pub batch: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            footer: 32 << 20,
            columns: 10_000,
            depth: 16,
            row_groups: 100_000,
            group_rows: 100_000_000,
            group_values: 100_000_000,
            page: 256 << 20,
            batch: 256 << 20,
        }
    }
}
