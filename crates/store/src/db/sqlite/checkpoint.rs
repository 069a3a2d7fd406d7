//! Checkpoints: what was committed is moved from the write-ahead log into the database file, beside the
//! writer.
//!
//! SQLite would do it within the commit that makes the log long enough, and all who write wait for some
//! thousand pages and two fsyncs. Here another thread does it while the writer goes on. What was written
//! meanwhile, the writer then moves itself, between two commits: little, and after it the log begins anew.
//!
//! Must hold: the log does not grow without end. Past [`MOST_PAGES`] the writer waits for the other thread.
//! (A reader that keeps an old snapshot keeps the log from beginning anew all the same: reads are short.)

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use falaj_base::{Error, Result};
use rusqlite::Connection;

use super::translate;

/// Pages in the log before they are moved: 16 MiB. A page that many commits touch is moved once for all of
/// them, and each move costs two more fsyncs.
const PAGES: usize = 4096;
/// Pages in the log that the writer does not go on beyond.
const MOST_PAGES: usize = 8 * PAGES;

/// The writer's side.
pub(super) struct Checkpoints {
    /// The pages in the log after the last commit.
    pages: Arc<AtomicUsize>,
    /// With how many pages the next one is due.
    due: usize,
    ask: SyncSender<()>,
    done: Receiver<()>,
    under_way: bool,
}

impl Checkpoints {
    /// For the commits of `writer`; `other` is a connection of the same kind.
    pub(super) fn start(writer: &mut Connection, other: Connection) -> Result<Self> {
        let pages = Arc::<AtomicUsize>::default();
        let counted = pages.clone();
        let hook = move |_: &mut rusqlite::hooks::Wal, pages: i32| {
            counted.store(usize::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        };
        // In the place of SQLite's own.
        writer.wal_hook(Some(hook)).map_err(translate)?;
        let (ask, asked) = sync_channel(1);
        let (tell, done) = sync_channel(1);
        let work = move || {
            while asked.recv().is_ok() {
                checkpoint(&other);
                if tell.send(()).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("falaj-checkpoint".to_owned());
        thread.spawn(work).map_err(Error::internal)?;
        Ok(Self { pages, due: PAGES, ask, done, under_way: false })
    }

    /// To be called between two commits.
    pub(super) fn look(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if self.under_way {
            let ended = match pages {
                MOST_PAGES.. => self.done.recv().is_ok(),
                _ => self.done.try_recv().is_ok(),
            };
            if ended {
                self.under_way = false;
                // The rest, while nobody writes.
                checkpoint(writer);
                // If somebody still reads the log, it goes on from here.
                self.due = pages + PAGES;
            }
        } else if pages < PAGES {
            // It has begun anew.
            self.due = PAGES;
        } else if pages >= self.due {
            self.under_way = self.ask.send(()).is_ok();
        }
    }
}

/// Moves what nobody keeps from being moved, without waiting for anybody.
fn checkpoint(connection: &Connection) {
    let moved = connection
        .prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")
        .and_then(|mut pragma| pragma.query_row([], |_| Ok(())));
    // It stays in the log, and the next one tries again.
    if let Err(error) = moved {
        tracing::warn!(%error, "the write-ahead log could not be moved into the database file");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::super::connect;
    use super::*;
    use crate::db::config::Durability;

    /// Bytes of the longest log: each page has a head, and a last commit comes on top.
    const LONGEST: u64 = (MOST_PAGES as u64 + 1024) * (4096 + 24);

    fn world() -> (tempfile::TempDir, Connection, Checkpoints) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let mut writer = connect(&path, Durability::Full).unwrap();
        let other = connect(&path, Durability::Full).unwrap();
        let checkpoints = Checkpoints::start(&mut writer, other).unwrap();
        writer.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, x BLOB)").unwrap();
        (folder, writer, checkpoints)
    }

    fn log_size(folder: &tempfile::TempDir) -> u64 {
        fs::metadata(folder.path().join("db-wal")).unwrap().len()
    }

    #[test]
    fn the_log_begins_anew_while_it_is_written_to() {
        let (folder, writer, mut checkpoints) = world();
        for _ in 0..200 {
            // A megabyte each.
            writer.execute("INSERT INTO t (x) VALUES (randomblob(1000000))", []).unwrap();
            checkpoints.look(&writer);
        }
        let size = log_size(&folder);
        assert!(size < LONGEST, "{size} bytes");
        // What is in the file is what was written.
        drop((writer, checkpoints));
        let again = Connection::open(folder.path().join("db")).unwrap();
        let count: i64 = again.query_row("SELECT COUNT(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 200);
        let sound: String =
            again.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
    }

    #[test]
    fn a_reader_delays_it_and_no_more() {
        let (folder, writer, mut checkpoints) = world();
        let reader = Connection::open(folder.path().join("db")).unwrap();
        reader.execute_batch("BEGIN; SELECT COUNT(*) FROM t").unwrap();
        let write = |checkpoints: &mut Checkpoints| {
            for _ in 0..40 {
                writer.execute("INSERT INTO t (x) VALUES (randomblob(1000000))", []).unwrap();
                thread::sleep(Duration::from_millis(1));
                checkpoints.look(&writer);
            }
            log_size(&folder)
        };
        let held = write(&mut checkpoints);
        assert!(held > 40_000_000, "{held} bytes");
        reader.execute_batch("COMMIT").unwrap();
        let (one, other) = (write(&mut checkpoints), write(&mut checkpoints));
        // The file stays as long as it was, and is written from its beginning.
        assert!(one < 3 * held && other < 3 * held, "{held}, {one}, {other} bytes");
    }
}
