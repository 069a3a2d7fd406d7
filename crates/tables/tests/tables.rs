//! Files written, read back, read by others and forged.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a helper that cannot go on fails its test, and what was skipped is said aloud"
)]

#[path = "tables/hostile.rs"]
mod hostile;
#[path = "tables/pyarrow.rs"]
mod pyarrow;
#[path = "tables/roundtrip.rs"]
mod roundtrip;

use bytes::Bytes;
use falaj_tables::{Batch, Layout, Limits, Part, Table, Writer};

fn written(batches: &[Batch], layout: Layout) -> Bytes {
    let fields = batches[0].columns().iter().map(|(field, _)| field.clone()).collect();
    let mut writer = Writer::new(Vec::new(), fields, layout).unwrap();
    for batch in batches {
        writer.write(batch.clone()).unwrap();
    }
    writer.close().unwrap().into()
}

fn open(bytes: Bytes) -> Table {
    Table::open(bytes, Limits::default()).unwrap()
}

fn all(rows_at_once: usize) -> Part {
    Part { columns: None, groups: None, rows_at_once }
}
