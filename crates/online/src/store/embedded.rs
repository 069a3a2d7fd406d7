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
use super::home::{About, Home};
use super::hot::Hot;
use super::{Position, spend};
use crate::key::{Key, Pattern};
use crate::row::{known, rank};

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
const REACHED: TableDefinition<'_, (), (i64, i64)> = TableDefinition::new("reached");
/// Whose the rows are, and what the store is called.
const ABOUT: TableDefinition<'_, &str, &str> = TableDefinition::new("about");
const HOME: &str = "home";
const ID: &str = "id";
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
    home: Option<Home>,
    id: Option<String>,
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
        let About { home, id, reached } = prepare(&db)?;
        let snapshot = RwLock::new(Arc::new(snapshot(&db)?));
        let writer = Mutex::new(Writer { settled: reached, home, id, unsettled: 0 });
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
    pub fn apply(&self, mut batch: Batch) -> Result<usize> {
        if batch.is_empty() {
            return Ok(0);
        }
        batch.tidy();
        let mut writer = self.writer();
        let mut transaction = self.0.db.begin_write().map_err(failed)?;
        transaction.set_durability(Durability::None).map_err(failed)?;
        let (mut placed, mut changed) = (0, Vec::new());
        {
            let mut table = transaction.open_table(ROWS).map_err(failed)?;
            for (key, row) in batch.rows() {
                // Nearly always the newcomer is greater. It takes the place at once, since to look
                // first is half of the work, and where it is not what was there is put back.
                let there = table.insert(key, row).map_err(failed)?;
                let order = there.as_ref().map_or(Greater, |it| rank(row).cmp(&rank(it.value())));
                let back = there.filter(|_| order != Greater).map(|it| it.value().to_vec());
                match back {
                    Some(back) => drop(table.insert(key, &back[..]).map_err(failed)?),
                    None => changed.push(key),
                }
                placed += usize::from(order != Less);
            }
        }
        transaction.commit().map_err(failed)?;
        self.renew()?;
        self.0.hot.forget_all(changed.into_iter());
        writer.unsettled += batch.bytes();
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

    /// Makes everything applied so far last.
    pub fn flush(&self) -> Result<()> {
        let mut writer = self.writer();
        if writer.unsettled == 0 {
            return Ok(());
        }
        let position = writer.settled;
        self.commit(&mut writer, position)
    }

    /// Makes everything applied so far last, and remembers how far in the log that was.
    pub fn settle(&self, position: Position) -> Result<()> {
        let mut writer = self.writer();
        if writer.settled == position && writer.unsettled == 0 {
            return Ok(());
        }
        self.commit(&mut writer, position)
    }

    /// What it remembers of itself.
    #[must_use]
    pub fn about(&self) -> About {
        let writer = self.writer();
        About { home: writer.home.clone(), id: writer.id.clone(), reached: writer.settled }
    }

    /// Settles in, unless somebody has already.
    pub fn settle_in(&self, home: &Home, id: &str) -> Result<About> {
        let mut writer = self.writer();
        if writer.home.is_none() {
            let transaction = self.0.db.begin_write().map_err(failed)?;
            {
                let mut table = transaction.open_table(ABOUT).map_err(failed)?;
                table.insert(HOME, home.to_string().as_str()).map_err(failed)?;
                table.insert(ID, id).map_err(failed)?;
            }
            transaction.commit().map_err(failed)?;
            (writer.home, writer.id) = (Some(home.clone()), Some(id.to_owned()));
        }
        Ok(About { home: writer.home.clone(), id: writer.id.clone(), reached: writer.settled })
    }

    /// Forgets everything.
    pub fn clear(&self) -> Result<()> {
        let mut writer = self.writer();
        let mut transaction = self.0.db.begin_write().map_err(failed)?;
        transaction.set_quick_repair(true);
        transaction.delete_table(ROWS).map_err(failed)?;
        transaction.delete_table(REACHED).map_err(failed)?;
        transaction.delete_table(ABOUT).map_err(failed)?;
        transaction.open_table(ROWS).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        *writer = Writer { settled: Position::default(), home: None, id: None, unsettled: 0 };
        self.renew()?;
        self.0.hot.clear();
        Ok(())
    }

    /// Takes away the rows of some entities that were known at this time; says how many.
    pub fn erase(&self, pattern: &Pattern, until: i64) -> Result<u64> {
        let mut writer = self.writer();
        let mut transaction = self.0.db.begin_write().map_err(failed)?;
        transaction.set_quick_repair(true);
        let mut gone: Vec<Box<[u8]>> = Vec::new();
        {
            let mut table = transaction.open_table(ROWS).map_err(failed)?;
            let is_known = |row: &[u8]| known(row).is_none_or(|known| known <= until);
            if let Some(key) = pattern.exact() {
                let there = table.get(key.bytes()).map_err(failed)?;
                if there.is_some_and(|row| is_known(row.value())) {
                    gone.push(key.bytes().into());
                }
            } else {
                let beginning = pattern.beginning();
                for entry in table.range(&beginning[..]..).map_err(failed)? {
                    let (key, row) = entry.map_err(failed)?;
                    if !key.value().starts_with(&beginning) {
                        break;
                    }
                    if pattern.fits(key.value()) && is_known(row.value()) {
                        gone.push(key.value().into());
                    }
                }
            }
            for key in &gone {
                table.remove(&key[..]).map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)?;
        // A commit that lasts makes what was applied before it last as well.
        writer.unsettled = 0;
        self.renew()?;
        for key in &gone {
            self.0.hot.forget(key);
        }
        Ok(gone.len() as u64)
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
        (writer.settled, writer.unsettled) = (position, 0);
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

/// Makes the tables of a new file; says what is remembered in one that is there.
fn prepare(db: &Database) -> Result<About> {
    let transaction = db.begin_write().map_err(failed)?;
    transaction.open_table(ROWS).map_err(failed)?;
    let reached = {
        let table = transaction.open_table(REACHED).map_err(failed)?;
        let found = table.get(()).map_err(failed)?;
        found
            .map(|found| found.value())
            .map_or(Position::default(), |(tx, seq)| Position { tx, seq })
    };
    let (home, id) = {
        let table = transaction.open_table(ABOUT).map_err(failed)?;
        let text = |name: &str| -> Result<Option<String>> {
            Ok(table.get(name).map_err(failed)?.map(|found| found.value().to_owned()))
        };
        (text(HOME)?.as_deref().map(Home::read), text(ID)?)
    };
    transaction.commit().map_err(failed)?;
    Ok(About { home, id, reached })
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
