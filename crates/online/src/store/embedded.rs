//! A B-tree in a file of this server, behind rows in memory.
//!
//! The log of pushed rows lies in the metadata database and is what lasts; the B-tree is made from
//! it. So rows are applied without waiting for the disk, and now and then everything is made to
//! last together with the position in the log that was reached. After a crash the file is as it was
//! then, and the log is applied from there on.
//!
//! Must hold: readers wait for no writer. They share the last snapshot, which a writer replaces in
//! an instant after its commit.

use std::cmp::Ordering::{Greater, Less};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use falaj_base::{ByteSize, Error, Result, code};
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::batch::Batch;
use super::hot::Hot;
use super::{Position, spend};
use crate::key::Key;
use crate::row::rank;

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
const REACHED: TableDefinition<'_, (), (i64, i64)> = TableDefinition::new("reached");
/// After this many bytes without being made to last, rows are: pages that were replaced meanwhile
/// can only then be used again.
const UNSETTLED: usize = 64 << 20;

/// Memory of the embedded online store.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddedConfig {
    /// How much memory pages of the file take.
    pub pages: ByteSize,
    /// How much memory rows take that were asked for not long ago.
    pub rows: ByteSize,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self { pages: ByteSize::mib(256), rows: ByteSize::mib(256) }
    }
}

/// The embedded store. Cheap to clone.
#[derive(Clone)]
pub struct Embedded(Arc<Inner>);

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

struct Inner {
    db: Database,
    snapshot: RwLock<Arc<Rows>>,
    hot: Hot,
    writer: Mutex<Writer>,
}

struct Writer {
    settled: Position,
    /// Bytes applied since rows were made to last.
    unsettled: usize,
}

impl Embedded {
    /// Opens the file, or makes it. Only one process can have it open.
    pub fn open(path: &Path, config: &EmbeddedConfig) -> Result<Self> {
        let db = Database::builder()
            .set_cache_size(config.pages.as_usize())
            .create(path)
            .map_err(|error| unopened(path, error.into()))?;
        let settled = prepare(&db)?;
        let snapshot = RwLock::new(Arc::new(snapshot(&db)?));
        let writer = Mutex::new(Writer { settled, unsettled: 0 });
        Ok(Self(Arc::new(Inner { db, snapshot, hot: Hot::new(config.rows.as_usize()), writer })))
    }

    /// The row of each key, in the order asked; of no more than `most` bytes.
    pub fn read(&self, keys: &[Key], most: usize) -> Result<Vec<Option<Bytes>>> {
        let (mut missed, mut left) = (Vec::new(), most);
        let mut rows: Vec<_> = Vec::with_capacity(keys.len());
        for (place, key) in keys.iter().enumerate() {
            match self.0.hot.get(key.bytes()) {
                Ok(row) => {
                    spend(&mut left, &row, most)?;
                    rows.push(Some(row));
                }
                Err(age) => {
                    missed.push((place, age));
                    rows.push(None);
                }
            }
        }
        if missed.is_empty() {
            return Ok(rows);
        }
        // After the ages: an age that is still right then belongs to this snapshot.
        let snapshot = self.0.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone();
        for (place, age) in missed {
            let key = keys[place].bytes();
            if let Some(row) = snapshot.get(key).map_err(failed)? {
                let row = Bytes::copy_from_slice(row.value());
                spend(&mut left, &row, most)?;
                self.0.hot.keep(key, &row, age);
                rows[place] = Some(row);
            }
        }
        Ok(rows)
    }

    /// Lets rows take their places; says how many have them now.
    pub fn apply(&self, batch: Batch) -> Result<usize> {
        if batch.is_empty() {
            return Ok(0);
        }
        let bytes = batch.bytes();
        let rows = batch.sorted();
        let mut writer = self.writer();
        let mut transaction = self.0.db.begin_write().map_err(failed)?;
        transaction.set_durability(Durability::None).map_err(failed)?;
        let (mut placed, mut changed) = (0, Vec::new());
        {
            let mut table = transaction.open_table(ROWS).map_err(failed)?;
            for (key, row) in &rows {
                let there = table.get(key.bytes()).map_err(failed)?;
                let order = there.map_or(Greater, |there| rank(row).cmp(&rank(there.value())));
                if order == Greater {
                    table.insert(key.bytes(), &row[..]).map_err(failed)?;
                    changed.push(key);
                }
                placed += usize::from(order != Less);
            }
        }
        transaction.commit().map_err(failed)?;
        self.renew()?;
        for key in &changed {
            self.0.hot.forget(key.bytes());
        }
        writer.unsettled += bytes;
        if writer.unsettled > UNSETTLED {
            let position = writer.settled;
            self.commit(&mut writer, position)?;
        }
        Ok(placed)
    }

    /// The position that survives a crash together with the rows applied before it.
    #[must_use]
    pub fn reached(&self) -> Position {
        self.writer().settled
    }

    /// Makes everything applied so far last, and remembers how far in the log that was.
    pub fn settle(&self, position: Position) -> Result<()> {
        let mut writer = self.writer();
        if writer.settled == position && writer.unsettled == 0 {
            return Ok(());
        }
        self.commit(&mut writer, position)
    }

    fn commit(&self, writer: &mut Writer, position: Position) -> Result<()> {
        let mut transaction = self.0.db.begin_write().map_err(failed)?;
        // Otherwise the whole file is read after a crash before anything is answered.
        transaction.set_quick_repair(true);
        {
            let mut table = transaction.open_table(REACHED).map_err(failed)?;
            table.insert((), (position.tx, position.seq)).map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        *writer = Writer { settled: position, unsettled: 0 };
        // The old snapshot would keep the pages that were just replaced.
        self.renew()
    }

    fn renew(&self) -> Result<()> {
        let fresh = Arc::new(snapshot(&self.0.db)?);
        let mut shared = self.0.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *shared, fresh);
        drop(shared);
        drop(old);
        Ok(())
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the tables of a new file; says how far the log was applied.
fn prepare(db: &Database) -> Result<Position> {
    let transaction = db.begin_write().map_err(failed)?;
    transaction.open_table(ROWS).map_err(failed)?;
    let position = {
        let table = transaction.open_table(REACHED).map_err(failed)?;
        let found = table.get(()).map_err(failed)?;
        found
            .map(|found| found.value())
            .map_or(Position::default(), |(tx, seq)| Position { tx, seq })
    };
    transaction.commit().map_err(failed)?;
    Ok(position)
}

fn snapshot(db: &Database) -> Result<Rows> {
    db.begin_read().map_err(failed)?.open_table(ROWS).map_err(failed)
}

#[cold]
fn unopened(path: &Path, error: redb::Error) -> Error {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    let path = path.display();
    let text = match error {
        redb::Error::DatabaseAlreadyOpen => {
            format!("the online store {path} is in use by another process")
        }
        redb::Error::Io(ref io) if !matches!(io.kind(), InvalidData | UnexpectedEof) => {
            format!("the online store {path} could not be opened")
        }
        // What was pushed is in the log; what was materialised is where it came from.
        _ => format!(
            "the online store {path} is damaged: move it away, and rows that were pushed are \
             restored at the next start; materialise the other views again"
        ),
    };
    Error::new(&code::INTEGRITY, text).caused_by(error)
}

#[cold]
fn failed(error: impl Into<redb::Error>) -> Error {
    let error = error.into();
    match &error {
        redb::Error::Io(io) if io.kind() == std::io::ErrorKind::StorageFull => {
            Error::new(&code::STORAGE_FULL, "the disk of the online store is full").caused_by(error)
        }
        _ => Error::internal(error),
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("reached", &self.reached()).finish_non_exhaustive()
    }
}
