//! The limits of the audit log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sealing, searching and exporting the audit log, and the queue of batched read entries.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// How many entries are added to the tree in one transaction at most.
    #[schemars(range(min = 1, max = 10000))]
    pub seal_batch: u32,
    /// How many entries of allowed reads wait in memory at most. What does not fit is counted,
    /// and the number is put on the log.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub read_queue: usize,
    /// How many of them are written in one transaction at most.
    #[schemars(range(min = 1, max = 10000))]
    pub read_batch: usize,
    /// How many of the latest entries are hashed again when the server starts.
    #[schemars(range(max = 10_000_000))]
    pub check_at_start: u32,
    /// How many rows one step of a search looks at. A search takes steps until its page is full.
    #[schemars(range(min = 100, max = 1_000_000))]
    pub search_rows: u32,
    /// How long a search goes on for one page, in milliseconds; then it returns what it has.
    #[schemars(range(min = 1, max = 60000))]
    pub search_ms: u32,
    /// How many entries an export reads at a time.
    #[schemars(range(min = 1, max = 1024))]
    pub export_chunk: u32,
    /// How many exports run at once.
    #[schemars(range(min = 1, max = 64))]
    pub exports: u32,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            seal_batch: 512,
            read_queue: 65_536,
            read_batch: 1024,
            check_at_start: 4096,
            search_rows: 20_000,
            search_ms: 500,
            export_chunk: 128,
            exports: 4,
        }
    }
}
