//! Checkpoints: what was committed is moved from the write-ahead log into the database file, beside the
//! writer.
//!
//! SQLite would do it within the commit that makes the log long enough, and all who write wait for some
//! thousand pages and two fsyncs. Here another thread writes the pages while the writer goes on. What came
//! meanwhile, the writer then moves itself, between two commits, and waits for the fsync: that is half of
//! what it would wait otherwise. After it the log begins anew.
//!
//! Must hold: the log does not grow without end. Past [`MOST_PAGES`] the writer waits for the other thread,
//! and a moment for those who read what the log had before. (One who keeps an old snapshot for longer, as a
//! backup does, keeps the log from beginning anew, as ever with SQLite.)

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use falaj_base::{Error, Result};
use rusqlite::Connection;

use super::translate;

/// Pages in the log before they are moved: 16 MiB. A page that many commits touch is moved once for all of
/// them, and each move costs two more fsyncs.
const PAGES: usize = 4096;
/// Pages in the log that the writer does not go on beyond.
const MOST_PAGES: usize = 8 * PAGES;
/// After how many more it is tried again, if the log could not begin anew.
const AGAIN: usize = PAGES / 4;
/// How long readers are waited for then.
const PATIENCE: Duration = Duration::from_millis(50);

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
                move_now(&other, "PASSIVE");
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
            // Should the other thread be gone, it is over, too, and all of it is done here.
            let told = match pages {
                MOST_PAGES.. => self.done.recv().map_err(TryRecvError::from),
                _ => self.done.try_recv(),
            };
            if told != Err(TryRecvError::Empty) {
                self.under_way = false;
                self.finish(writer, pages);
            }
        } else if pages < PAGES {
            // It has begun anew.
            self.due = PAGES;
        } else if pages >= self.due {
            self.under_way = self.ask.send(()).is_ok();
            if !self.under_way {
                self.finish(writer, pages);
            }
        }
    }

    /// Moves the rest, while nobody writes.
    fn finish(&mut self, writer: &Connection, pages: usize) {
        move_now(writer, "PASSIVE");
        if pages >= MOST_PAGES {
            // From then on readers need the log no more; those who did before are waited for.
            let patient = |time| writer.busy_timeout(time).is_ok();
            if patient(PATIENCE) {
                move_now(writer, "RESTART");
                patient(super::BUSY);
            }
        }
        // If somebody still reads the log, it goes on from here.
        self.due = pages + AGAIN;
    }
}

/// How a checkpoint went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Yes,
    /// Somebody was in the way.
    Busy,
}

/// Moves the log as far, and in the way, that this kind of checkpoint does.
pub(super) fn run(connection: &Connection, kind: &str) -> rusqlite::Result<Moved> {
    let sql = format!("PRAGMA wal_checkpoint({kind})");
    let busy: bool = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    Ok(if busy { Moved::Busy } else { Moved::Yes })
}

fn move_now(connection: &Connection, kind: &str) {
    // It stays in the log, and the next one tries again.
    if let Err(error) = run(connection, kind) {
        tracing::warn!(%error, "the write-ahead log could not be moved into the database file");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;

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
        assert!(one < 2 * held && other < 2 * held, "{held}, {one}, {other} bytes");
    }

    /// Whoever empties the log must know that somebody was in the way.
    #[test]
    fn two_at_once_are_told() {
        let (folder, writer, _checkpoints) = world();
        let open = || connect(&folder.path().join("db"), Durability::Full).unwrap();
        let reader = open();
        reader.execute_batch("BEGIN; SELECT COUNT(*) FROM t").unwrap();
        writer.execute("INSERT INTO t (x) VALUES (1)", []).unwrap();
        let (waiting, late) = (open(), open());
        // It waits for the reader, and nobody else moves the log meanwhile.
        let first = thread::spawn(move || run(&waiting, "RESTART").unwrap());
        let told = (0..500).any(|_| {
            thread::sleep(Duration::from_millis(2));
            late.busy_timeout(Duration::ZERO).unwrap();
            run(&late, "PASSIVE").unwrap() == Moved::Busy
        });
        assert!(told, "the second was not told of the first");
        reader.execute_batch("COMMIT").unwrap();
        assert_eq!(first.join().unwrap(), Moved::Yes);
        assert_eq!(run(&late, "TRUNCATE").unwrap(), Moved::Yes);
        assert_eq!(log_size(&folder), 0);
    }
}
