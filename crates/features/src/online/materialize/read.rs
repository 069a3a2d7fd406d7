//! Reading a view's history, and handing over what is within the window.

use arrow_array::{RecordBatch, TimestampMicrosecondArray};
use aws_lc_rs::digest::{Context, SHA256};
use falaj_base::{Error, Result, hex};
use falaj_online::Batch;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::online::rows::{Within, pack_some};
use crate::online::shape::Shape;
use crate::source::{History, SourceRead, Stop};
use crate::transform::bring;

/// Bytes of rows that are applied at a time, about: the more, the more of them meet in a page.
const BYTES_AT_ONCE: usize = 32 << 20;
/// Rows after which something is handed over, although nothing of them was within the window: it
/// shows how far the reading is.
const ROWS_AT_ONCE: u64 = 1 << 20;

/// Rows to be applied, and how far the history was read with them.
pub(super) struct Handed {
    pub(super) batch: Batch,
    /// Rows of the history that were read, from its beginning.
    pub(super) read: u64,
    /// Those that were within the window, since this reading began.
    pub(super) rows: u64,
}

/// Reads a history from a row on, and hands over what is within the window.
pub(super) fn read(
    history: &History,
    shape: &Shape,
    within: Within,
    from: u64,
    stop: &Stop,
    give: &mpsc::Sender<Handed>,
) -> Result<()> {
    let gone = || Error::internal("nobody applies the rows");
    if let Some(ready) = shape.windows() {
        // Windows are brought whole: nothing of them counts as read before everything is.
        let which = bring::Which { end: within.end, now: within.now, place: within.log };
        let handed = |batch: Batch, rows: u64| {
            give.blocking_send(Handed { batch, read: 0, rows }).map_err(|_| gone())
        };
        let (read, rows) = bring::read(history, shape, ready, which, stop, handed)?;
        let last = Handed { batch: Batch::new(), read, rows };
        return give.blocking_send(last).map_err(|_| gone());
    }
    let mut so_far = Handed { batch: Batch::new(), read: from, rows: 0 };
    let mut handed = from;
    history.rows_from(from, stop, |records: &RecordBatch, known: &TimestampMicrosecondArray| {
        let first = so_far.read;
        so_far.rows += pack_some(shape, records, known, within, first, &mut so_far.batch)?;
        so_far.read += records.num_rows() as u64;
        if is_full(&mut so_far.batch) || so_far.read - handed >= ROWS_AT_ONCE {
            handed = so_far.read;
            let batch = std::mem::take(&mut so_far.batch);
            let Handed { read, rows, .. } = so_far;
            give.blocking_send(Handed { batch, read, rows }).map_err(|_| gone())?;
            // Two are in memory at a time: one that is applied, and one that is made meanwhile.
            Handle::current().block_on(give.reserve()).map(drop).map_err(|_| gone())?;
        }
        Ok(())
    })?;
    history.unchanged()?;
    give.blocking_send(so_far).map_err(|_| gone())
}

/// Whether a batch is to be handed over. One in which many rows are of the same keys has room again once
/// only the last of each is kept.
fn is_full(batch: &mut Batch) -> bool {
    if batch.bytes() < BYTES_AT_ONCE {
        return false;
    }
    batch.tidy();
    batch.bytes() >= BYTES_AT_ONCE / 2
}

/// What is found to be read: files that stay as they are, and after them what may grow.
pub(super) struct Plan {
    /// The SHA-256 of the files.
    pub(super) digest: String,
    /// The rows of each part.
    parts: Vec<u64>,
    /// How many rows the files have.
    fixed: u64,
}

impl Plan {
    pub(super) fn of(parts: &[SourceRead]) -> Self {
        let mut context = Context::new(&SHA256);
        let mut fixed = 0;
        for part in parts {
            let Some(hash) = part.hash() else { continue };
            for text in [part.name.as_str(), hash] {
                context.update(&(text.len() as u64).to_be_bytes());
                context.update(text.as_bytes());
            }
            fixed += part.rows;
        }
        let digest = hex(context.finish().as_ref());
        Self { digest, parts: parts.iter().map(|part| part.rows).collect(), fixed }
    }

    pub(super) fn total(&self) -> u64 {
        self.parts.iter().sum()
    }

    /// Where to go on after so many rows. What is in no file is read from its beginning: other rows
    /// may stand there by now.
    pub(super) fn resume(&self, read: u64) -> u64 {
        read.min(self.fixed)
    }

    /// The number of the file that is read after so many rows, counted from one, and of how many.
    pub(super) fn file(&self, read: u64) -> (u64, u64) {
        let mut end = 0;
        let passed = self.parts.iter().take_while(|rows| {
            end += **rows;
            end <= read
        });
        let (passed, all) = (passed.count() as u64, self.parts.len() as u64);
        ((passed + 1).min(all), all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, sha256: Option<&str>, rows: u64) -> SourceRead {
        let sha256 = sha256.map(ToOwned::to_owned);
        let (view, name) = ("v".to_owned(), name.to_owned());
        SourceRead { view, name, version: None, sha256, blake3: None, rows }
    }

    #[test]
    fn a_plan_goes_on_over_the_same_files_only() {
        let parts = [part("a", Some("1"), 10), part("b", Some("2"), 5), part("log", None, 3)];
        let plan = Plan::of(&parts);
        assert_eq!(plan.total(), 18);
        for (read, file) in [(0, 1), (9, 1), (10, 2), (14, 2), (15, 3), (18, 3)] {
            assert_eq!(plan.file(read), (file, 3), "{read}");
        }
        assert_eq!([plan.resume(4), plan.resume(15), plan.resume(17)], [4, 15, 15]);
        let longer = [parts[0].clone(), parts[1].clone(), part("log", None, 9)];
        assert_eq!(Plan::of(&longer).digest, plan.digest);
        for other in [
            vec![part("a", Some("1"), 10), part("b", Some("3"), 5)],
            vec![part("a", Some("1"), 10)],
            vec![part("b", Some("2"), 5), part("a", Some("1"), 10)],
            vec![part("a1", Some(""), 10), part("b", Some("2"), 5)],
        ] {
            assert_ne!(Plan::of(&other).digest, plan.digest);
        }
        assert_eq!(Plan::of(&[]).file(0), (0, 0));
    }
}
