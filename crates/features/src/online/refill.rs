//! Pushes that are no longer in the log, brought again from the files that have them.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use falaj_base::{Error, Result, code};
use falaj_catalog::blob::BlobRanges;
use falaj_online::{Batch, Online};
use falaj_store::db::Tx;
use falaj_tables::{Limits, Part, Ranges, Table};
use tokio::sync::mpsc;

use super::rows::pack_all;
use super::shape::Shape;
use super::shelf::Shelf;
use crate::history::segment::{self, KNOWN, OfView, PLACE};
use crate::source::blocking;
use crate::transform::tiles;

/// Rows that are read at a time.
const ROWS: usize = 65_536;
/// Bytes of rows that are applied at a time, about.
const BYTES_AT_ONCE: usize = 16 << 20;

impl Shelf {
    /// Applies the rows of all files of pushes.
    pub(super) async fn refill(&self, store: &Online) -> Result<()> {
        let all = self.db().read(|tx: &mut Tx<'_>| segment::all(tx, None)).await?;
        tracing::info!(files = all.len(), "the online store is filled from files of pushes");
        for one in all {
            let view = one.view;
            match self.refill_from(store, one).await {
                Err(error) if is_of_the_file(&error) => {
                    // Others are not to wait for what nobody can read any more.
                    tracing::warn!(?view, error = error.chain(), "a file of pushes is left out");
                }
                done => done?,
            }
        }
        Ok(())
    }

    async fn refill_from(&self, store: &Online, one: OfView) -> Result<()> {
        let shape = self.by_number(one.view).await?;
        let blob = self.objects().blob(one.tenant, one.blob).await?;
        let ranges: Arc<dyn Ranges> = Arc::new(BlobRanges::new(blob));
        if shape.windows().is_some() {
            return add_windows(store, &shape, ranges).await;
        }
        let (give, mut take) = mpsc::channel(1);
        let reading = blocking(move || read(ranges, &shape, &give));
        let applying = async {
            while let Some(batch) = take.recv().await {
                store.apply(batch).await?;
            }
            Ok::<(), Error>(())
        };
        let (read, applied) = tokio::join!(reading, applying);
        applied.and(read)
    }
}

/// Whether a file cannot be read, now or later: its key is destroyed, or it is gone or damaged.
fn is_of_the_file(error: &Error) -> bool {
    [&code::ERASED, &code::NOT_FOUND, &code::INTEGRITY, &code::INVALID_INPUT]
        .contains(&error.code())
}

/// Adds the rows of a file to the tiles of a view, in their order.
async fn add_windows(store: &Online, shape: &Arc<Shape>, ranges: Arc<dyn Ranges>) -> Result<()> {
    let (give, mut take) = mpsc::channel::<RecordBatch>(1);
    let reading = blocking(move || {
        let table = Table::open(ranges, Limits::default())?;
        let part = Part { columns: None, groups: None, rows_at_once: ROWS };
        let gone = || Error::internal("nobody applies the rows");
        for records in table.records(&part)? {
            give.blocking_send(records?).map_err(|_| gone())?;
        }
        Ok(())
    });
    let applying = async {
        let mut last = (0, 0);
        while let Some(records) = take.recv().await {
            let stamps = stamps(&records, &mut last)?;
            tiles::follow(store, shape, records, stamps).await?;
        }
        Ok::<(), Error>(())
    };
    let (read, applied) = tokio::join!(reading, applying);
    applied.and(read)
}

/// Since when each row is known, where in the log it stood, and which row of its push it was.
fn stamps(records: &RecordBatch, last: &mut (u64, u32)) -> Result<Vec<(i64, u64, u32)>> {
    let unlike = || Error::new(&code::INTEGRITY, "a file of pushes tells no times");
    let known = records.column_by_name(KNOWN).ok_or_else(unlike)?;
    let known = known.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(unlike)?;
    let places = records.column_by_name(PLACE).and_then(|it| it.as_primitive_opt::<Int64Type>());
    let stamp = |row: usize| {
        let place = places.map_or(0, |places| places.value(row).cast_unsigned());
        let number = if place == last.0 { last.1 } else { 0 };
        *last = (place, number.saturating_add(1));
        (known.value(row), place, number)
    };
    Ok((0..records.num_rows()).map(stamp).collect())
}

/// Reads a file and hands its rows over, packed as they were when they were pushed.
fn read(ranges: Arc<dyn Ranges>, shape: &Shape, give: &mpsc::Sender<Batch>) -> Result<()> {
    let table = Table::open(ranges, Limits::default())?;
    let part = Part { columns: None, groups: None, rows_at_once: ROWS };
    let gone = || Error::internal("nobody applies the rows");
    let (mut batch, mut last) = (Batch::new(), (0, 0));
    for records in table.records(&part)? {
        add(shape, &records?, &mut last, &mut batch)?;
        if batch.bytes() >= BYTES_AT_ONCE {
            give.blocking_send(std::mem::take(&mut batch)).map_err(|_| gone())?;
        }
    }
    if batch.is_empty() { Ok(()) } else { give.blocking_send(batch).map_err(|_| gone()) }
}

/// Adds rows to a batch. `last` is the place of the last row, and how many of that place came.
fn add(
    shape: &Shape,
    records: &RecordBatch,
    last: &mut (u64, u32),
    batch: &mut Batch,
) -> Result<()> {
    let stamps = stamps(records, last)?;
    pack_all(shape, records, |row| Ok(stamps[row]), batch)
}
