//! Files of this server that are mapped into memory, behind rows that are in none of them yet.
//!
//! The log of pushed rows lies in the metadata database and is what lasts; the files are made from
//! it. So rows are applied without waiting for the disk, and now and then everything is made to
//! last together with the position in the log that was reached. After a crash the store is as it was
//! then, and the log is applied from there on.
//!
//! Rows go into memory (`fresh.rs`), and many at once into a run of their own (`run.rs`), as does the
//! memory when it is full. Runs lie in levels, which are merged aside (`levels.rs`, `merge.rs`). What is
//! made to last is the runs that the manifest names (`manifest.rs`), and a tail of what came after them
//! (`tail.rs`).
//!
//! Must hold:
//! - Readers wait for no writer: they look into memory first, and then at the runs as they are by then.
//!   A run is among them before what it has is forgotten in memory.
//! - What is in memory is later than what is in a run, and what is in the tail than what the manifest
//!   names.
//! - Nothing is made to last while the lock of writers is held.

mod folder;
mod fresh;
mod index;
mod levels;
mod make;
mod manifest;
mod merge;
mod old;
mod record;
mod run;
mod tail;

use std::cmp::Ordering::{self, Greater, Less};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use falaj_base::{ByteSize, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::folder::{Folder, damaged};
use self::fresh::Fresh;
use self::levels::{Level, Levels};
use self::make::{Made, Maker};
use self::manifest::Manifest;
use self::record::Record;
use self::run::Run;
use self::tail::{Found, Tail};
use super::batch::Batch;
use super::home::{About, Home};
use super::{Position, spend};
use crate::key::{Key, Pattern};
use crate::row::{known, rank};

/// The file of a store of before, beside the folder.
const OLD: &str = "redb";
/// Rows that would take this part of the memory become a run of their own.
const MANY: usize = 8;
/// Bytes of rows that are applied on the thread that asks, and how many rows: each may have to be looked
/// for in files.
const LITTLE: (usize, usize) = (64 << 10, 500);
/// Levels at which whoever writes waits for them to be merged.
const MANY_LEVELS: usize = 24;

/// Memory of the embedded online store.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddedConfig {
    /// How much memory rows take that were applied not long ago and are in no file of their own yet.
    /// Those in files take none but what the kernel has to spare for its cache.
    pub rows: ByteSize,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self { rows: ByteSize::mib(64) }
    }
}

/// The embedded store. Cheap to clone.
#[derive(Clone)]
pub struct Embedded(Arc<Store>);

struct Store {
    inner: Arc<Inner>,
    merging: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Store {
    /// At an orderly end everything lasts, so that it need not be read from the log again.
    fn drop(&mut self) {
        self.inner.stop.store(true, Memory::Relaxed);
        let merging = self.merging.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(merging) = merging.take() {
            drop(merging.join());
        }
        if let Err(error) = self.inner.flush() {
            tracing::warn!(error = error.chain(), "rows of the online store are left to the log");
        }
    }
}

struct Inner {
    folder: Folder,
    seed: u64,
    /// The most bytes of rows in memory.
    most: usize,
    fresh: Fresh,
    levels: RwLock<Arc<Levels>>,
    /// Held by whoever makes something last; taken before the writer's.
    tail: Mutex<Tail>,
    writer: Mutex<Writer>,
    /// Whether the disk has failed to keep a run. The kernel says so once, and nothing of it may be there:
    /// a second try would be told that all is well.
    failed: AtomicBool,
    stop: AtomicBool,
}

#[derive(Default)]
struct Writer {
    about: About,
    /// Records of what was put into memory since something was made to last.
    pending: Vec<u8>,
    /// Whether the manifest says other than what is.
    dirty: bool,
    /// Whether what the tail has is in a run by now, so that another begins.
    renew: bool,
    /// Whether something could not be made to last: the tail is not trusted any more.
    broken: bool,
    /// Runs that have to be made to last.
    unsynced: Vec<Made>,
    /// Runs whose files can go as soon as the manifest does not name them.
    replaced: Vec<u64>,
}

/// What is to be made to last.
struct Work {
    writer: Writer,
    levels: Arc<Levels>,
}

impl Embedded {
    /// Opens the folder, or makes it. Only one process can have it open. A file of before that lies
    /// beside it is brought into it, and removed.
    pub fn open(path: &Path, config: &EmbeddedConfig) -> Result<Self> {
        let inner = Inner::open(Folder::open(path)?, config.rows.as_usize())?;
        let store = Self(Arc::new(Store { inner: Arc::new(inner), merging: Mutex::default() }));
        store.merge_aside();
        Ok(store)
    }

    /// The row of each key, in the order asked; of no more than `most` bytes.
    pub fn read(&self, keys: &[Key], most: usize) -> Result<Vec<Option<Bytes>>> {
        self.inner().read(keys, most)
    }

    /// Lets rows take their places; says how many have them now.
    pub fn apply(&self, mut batch: Batch) -> Result<usize> {
        if batch.is_empty() {
            return Ok(0);
        }
        batch.tidy();
        let placed = {
            let mut writer = self.inner().writer();
            self.inner().place(&mut writer, &batch)?
        };
        self.merge_aside();
        if self.inner().levels().0.len() >= MANY_LEVELS {
            self.wait_for_merging();
        }
        Ok(placed)
    }

    /// The same, if it takes microseconds; gives the batch back otherwise.
    pub(super) fn apply_at_once(&self, mut batch: Batch) -> Result<Result<usize>, Batch> {
        let inner = self.inner();
        let (bytes, rows) = LITTLE;
        if batch.bytes() > bytes || batch.len() > rows || inner.is_much(batch.bytes()) {
            return Err(batch);
        }
        batch.tidy();
        let mut writer = match inner.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(batch),
        };
        if inner.is_full(batch.bytes(), writer.pending.len()) {
            return Err(batch);
        }
        Ok(inner.place(&mut writer, &batch))
    }

    /// The position that survives a crash together with the rows applied before it.
    #[must_use]
    pub fn reached(&self) -> Position {
        self.inner().writer().about.reached
    }

    /// Makes everything applied so far last.
    pub fn flush(&self) -> Result<()> {
        self.inner().flush()?;
        self.merge_aside();
        Ok(())
    }

    /// Makes everything applied so far last, and remembers how far in the log that was.
    pub fn settle(&self, position: Position) -> Result<()> {
        {
            let mut tail = self.inner().tail();
            let writer = self.inner().writer();
            self.inner().make_last(&mut tail, writer, position)?;
        }
        self.merge_aside();
        Ok(())
    }

    /// What it remembers of itself.
    #[must_use]
    pub fn about(&self) -> About {
        self.inner().writer().about.clone()
    }

    /// Settles in, unless somebody has already.
    pub fn settle_in(&self, home: &Home, id: &str) -> Result<About> {
        let mut tail = self.inner().tail();
        let mut writer = self.inner().writer();
        if writer.about.home.is_none() {
            writer.about.home = Some(home.clone());
            writer.about.id = Some(id.to_owned());
            writer.dirty = true;
            let position = writer.about.reached;
            self.inner().make_last(&mut tail, writer, position)?;
        } else {
            drop(writer);
        }
        Ok(self.about())
    }

    /// Forgets everything.
    pub fn clear(&self) -> Result<()> {
        let inner = self.inner();
        let mut tail = inner.tail();
        let mut writer = inner.writer();
        let gone =
            std::mem::take(&mut *inner.levels.write().unwrap_or_else(PoisonError::into_inner));
        inner.fresh.clear();
        let mut replaced = std::mem::take(&mut writer.replaced);
        replaced.extend(gone.runs().map(|run| run.number()));
        *writer = Writer { dirty: true, renew: true, replaced, ..Writer::default() };
        inner.make_last(&mut tail, writer, Position::default())
    }

    /// Takes away the rows of some entities that were known at this time; says how many.
    pub fn erase(&self, pattern: &Pattern, until: i64) -> Result<u64> {
        let inner = self.inner();
        let mut tail = inner.tail();
        let mut writer = inner.writer();
        let mut count = 0;
        for key in inner.keys(pattern)? {
            let hash = inner.hash(&key);
            let there = inner.there(&inner.levels(), hash, &key, |row| {
                row.is_some_and(|row| known(row).is_none_or(|known| known <= until))
            });
            if there? {
                inner.put(&mut writer, hash, Record { key: &key, row: None })?;
                count += 1;
            }
        }
        let position = writer.about.reached;
        inner.make_last(&mut tail, writer, position)?;
        Ok(count)
    }

    fn inner(&self) -> &Inner {
        &self.0.inner
    }

    /// Merges levels on a thread of its own, if they are due and nobody does.
    fn merge_aside(&self) {
        if self.inner().levels().due().is_none() {
            return;
        }
        let mut merging = self.0.merging.lock().unwrap_or_else(PoisonError::into_inner);
        if merging.as_ref().is_some_and(|merging| !merging.is_finished()) {
            return;
        }
        let inner = self.0.inner.clone();
        let begun = thread::Builder::new().name("online-merge".into()).spawn(move || inner.merge());
        match begun {
            Ok(begun) => *merging = Some(begun),
            Err(error) => tracing::warn!(%error, "files of the online store are not merged yet"),
        }
    }

    fn wait_for_merging(&self) {
        let mut merging = self.0.merging.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(merging) = merging.take() {
            drop(merging.join());
        }
    }
}

impl Inner {
    fn open(folder: Folder, most: usize) -> Result<Self> {
        let Some(manifest) = Manifest::read(&folder)? else { return Self::begin(folder, most) };
        // One that was brought over and could not be removed then: what is erased from now on would
        // still be in it.
        folder::forget(&folder.path().with_extension(OLD))?;
        folder.keep_only(|number| manifest.names(number))?;
        let seed = manifest.seed;
        let level = |numbers: &Vec<u64>| -> Result<Level> {
            let open = |number: &u64| Run::open(*number, folder.run(*number), seed).map(Arc::new);
            numbers.iter().map(open).collect::<Result<_>>().map(Arc::new)
        };
        let levels = Levels(manifest.levels.iter().map(level).collect::<Result<_>>()?);
        let found = Tail::open(&folder, manifest.tail)
            .map_err(|error| damaged(folder.path()).caused_by(error))?;
        let fresh = Fresh::default();
        for record in found.records() {
            fresh.put(xxh3_64_with_seed(record.key, seed), record);
        }
        let Found { tail, position, .. } = found;
        // It had one before the manifest named it.
        let reached = position.ok_or_else(|| damaged(folder.path()))?;
        let about = About { home: manifest.home(), id: manifest.id.clone(), reached };
        Ok(Self::of(folder, seed, most, (fresh, levels), (tail, about)))
    }

    /// A new store, with what one of before had.
    fn begin(folder: Folder, most: usize) -> Result<Self> {
        let old = folder.path().with_extension(OLD);
        let upgraded = old.is_file();
        if !upgraded && folder.has_rows()? {
            return Err(damaged(folder.path()));
        }
        // What an attempt that was stopped has left.
        folder.keep_only(|_| false)?;
        let seed = RandomState::new().hash_one(folder.path());
        let (made, about) = if upgraded {
            old::bring(&old, Maker::new(&folder, seed))?
        } else {
            (Vec::new(), About::default())
        };
        let runs: Level = Arc::new(made.iter().map(|made| made.run.clone()).collect());
        let levels = Levels(if runs.is_empty() { Vec::new() } else { vec![runs] });
        let tail = Tail::create(&folder)?;
        let position = about.reached;
        let writer = Writer { dirty: true, renew: true, unsynced: made, ..Writer::default() };
        let store = Self::of(folder, seed, most, (Fresh::default(), levels), (tail, about));
        let about = store.writer().about.clone();
        *store.writer() = Writer { about, ..writer };
        store.make_last(&mut store.tail(), store.writer(), position)?;
        folder::forget(&old)?;
        Ok(store)
    }

    fn of(
        folder: Folder,
        seed: u64,
        most: usize,
        (fresh, levels): (Fresh, Levels),
        (tail, about): (Tail, About),
    ) -> Self {
        Self {
            folder,
            seed,
            most,
            fresh,
            levels: RwLock::new(Arc::new(levels)),
            tail: Mutex::new(tail),
            writer: Mutex::new(Writer { about, ..Writer::default() }),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    fn levels(&self) -> Arc<Levels> {
        self.levels.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, keys: &[Key], most: usize) -> Result<Vec<Option<Bytes>>> {
        let mut fresh = Vec::new();
        if !self.fresh.is_empty() {
            let of = |key: &Key| self.fresh.get(self.hash(key.bytes()), key.bytes());
            fresh = keys.iter().map(of).collect();
        }
        // After memory: what is no longer there is in one of these.
        let levels = self.levels();
        let (mut rows, mut left) = (Vec::with_capacity(keys.len()), most);
        for (place, key) in keys.iter().enumerate() {
            let row = if let Some(known) = fresh.get_mut(place).and_then(Option::take) {
                known.0
            } else {
                let key = key.bytes();
                let found = levels.get(self.hash(key), key)?;
                found.and_then(|found| found.row).map(Bytes::copy_from_slice)
            };
            if let Some(row) = &row {
                spend(&mut left, row, most)?;
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// Looks at the row of a key. Only for the writer: others may miss what moves meanwhile.
    fn there<T>(
        &self,
        levels: &Levels,
        hash: u64,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T> {
        if let Some(known) = self.fresh.get(hash, key) {
            return Ok(look(known.0.as_deref()));
        }
        Ok(look(levels.get(hash, key)?.and_then(|found| found.row)))
    }

    /// Whether rows of so many bytes become a run of their own.
    fn is_much(&self, bytes: usize) -> bool {
        bytes > self.most / MANY
    }

    /// Whether there is no room in memory for so much more.
    fn is_full(&self, more: usize, pending: usize) -> bool {
        self.fresh.bytes().max(pending) + more > self.most
    }

    fn place(&self, writer: &mut Writer, batch: &Batch) -> Result<usize> {
        let many = self.is_much(batch.bytes());
        if many {
            // A run is earlier than what is in memory.
            self.write_fresh(writer)?;
        }
        let (mut levels, mut placed) = (self.levels(), 0);
        let mut maker = Maker::new(&self.folder, self.seed);
        for (key, row) in batch.rows() {
            let hash = self.hash(key);
            let order: Ordering = self.there(&levels, hash, key, |there| {
                there.map_or(Greater, |there| rank(row).cmp(&rank(there)))
            })?;
            placed += usize::from(order != Less);
            if order != Greater {
                continue;
            }
            let record = Record { key, row: Some(row) };
            if many {
                maker.add_hashed(hash, record)?;
            } else if self.put(writer, hash, record)? {
                levels = self.levels();
            }
        }
        self.add(writer, maker.finish()?);
        Ok(placed)
    }

    /// Puts a record into memory; says whether that was written as a run.
    fn put(&self, writer: &mut Writer, hash: u64, record: Record<'_>) -> Result<bool> {
        record.write(&mut writer.pending)?;
        self.fresh.put(hash, record);
        let full = self.is_full(0, writer.pending.len());
        if full {
            self.write_fresh(writer)?;
        }
        Ok(full)
    }

    /// Writes what is in memory as a run.
    fn write_fresh(&self, writer: &mut Writer) -> Result<()> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        let mut maker = Maker::new(&self.folder, self.seed);
        for (hash, key, row) in self.fresh.in_order() {
            maker.add_hashed(hash, Record { key: &key, row: row.as_deref() })?;
        }
        self.add(writer, maker.finish()?);
        writer.pending = Vec::new();
        writer.renew = true;
        self.fresh.clear();
        Ok(())
    }

    /// Lets runs be read before all others.
    fn add(&self, writer: &mut Writer, made: Vec<Made>) {
        if made.is_empty() {
            return;
        }
        let level = made.iter().map(|made| made.run.clone()).collect();
        self.publish(self.levels().with(Arc::new(level)));
        writer.unsynced.extend(made);
        writer.dirty = true;
    }

    fn publish(&self, levels: Levels) {
        let mut shared = self.levels.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *shared, Arc::new(levels));
        drop(shared);
        drop(old);
    }

    /// The keys that fit a pattern, each once.
    fn keys(&self, pattern: &Pattern) -> Result<Vec<Box<[u8]>>> {
        if let Some(key) = pattern.exact() {
            return Ok(vec![key.bytes().into()]);
        }
        let beginning = pattern.beginning();
        let mut found = self.fresh.beginning_with(&beginning);
        found.retain(|key| pattern.fits(key));
        for run in self.levels().runs() {
            if run.range().1 < &beginning[..] {
                continue;
            }
            for record in run.from(&beginning) {
                let record = record?;
                if !record.key.starts_with(&beginning) {
                    break;
                }
                if record.row.is_some() && pattern.fits(record.key) {
                    found.push(record.key.into());
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    fn flush(&self) -> Result<()> {
        let mut tail = self.tail();
        let writer = self.writer();
        let position = writer.about.reached;
        self.make_last(&mut tail, writer, position)
    }

    /// Makes everything applied so far last, with how far in the log it is.
    fn make_last(
        &self,
        tail: &mut Tail,
        mut writer: MutexGuard<'_, Writer>,
        position: Position,
    ) -> Result<()> {
        let same = writer.about.reached == position;
        if same && writer.pending.is_empty() && !writer.dirty {
            return Ok(());
        }
        // A tail is read whole at the start.
        if writer.broken || tail.length > self.most as u64 {
            self.write_fresh(&mut writer)?;
            (writer.renew, writer.broken) = (true, false);
        }
        let about = writer.about.clone();
        let taken = std::mem::replace(&mut *writer, Writer { about, ..Writer::default() });
        let work = Work { writer: taken, levels: self.levels() };
        // Others go on meanwhile.
        drop(writer);
        let done = self.write_down(tail, &work, position);
        let mut writer = self.writer();
        if done.is_ok() {
            writer.about.reached = position;
        } else {
            let Writer { unsynced, replaced, .. } = work.writer;
            writer.unsynced.extend(unsynced);
            writer.replaced.extend(replaced);
            (writer.dirty, writer.broken) = (true, true);
        }
        done
    }

    fn write_down(&self, tail: &mut Tail, work: &Work, position: Position) -> Result<()> {
        let Work { writer, levels } = work;
        if self.failed.load(Memory::Relaxed) {
            return Err(folder::unkept(self.folder.path(), "it was not kept before"));
        }
        if !writer.dirty && !writer.renew {
            return tail.add(&writer.pending, position);
        }
        for made in writer.unsynced.iter().filter(|made| levels.has(made.run.number())) {
            made.file.sync_all().map_err(|error| {
                self.failed.store(true, Memory::Relaxed);
                folder::unkept(self.folder.path(), error)
            })?;
        }
        let About { home, id, reached } = &writer.about;
        let manifest = |tail: u64, reached: Position| {
            Manifest::new(self.seed, levels.numbers(), tail, reached)
                .of(home.as_ref(), id.as_deref())
        };
        if writer.renew {
            let mut new = Tail::create(&self.folder)?;
            new.add(&writer.pending, position)?;
            self.folder.sync()?;
            manifest(new.number, position).write(&self.folder)?;
            let old = std::mem::replace(tail, new);
            self.folder.remove_tail(old.number);
        } else {
            self.folder.sync()?;
            // First the runs, and then how far they go.
            manifest(tail.number, *reached).write(&self.folder)?;
            tail.add(&writer.pending, position)?;
        }
        writer.replaced.iter().for_each(|number| self.folder.remove_run(*number));
        Ok(())
    }

    /// Merges levels for as long as some are due.
    fn merge(&self) {
        while !self.stop.load(Memory::Relaxed) {
            let levels = self.levels();
            let Some(count) = levels.due() else { return };
            let (old, lowest) = (&levels.0[..count], count == levels.0.len());
            match merge::merge((&self.folder, self.seed), old, lowest, &self.stop) {
                Ok(Some(merged)) => self.merged(old, merged),
                Ok(None) => return,
                Err(error) => {
                    // The runs are still there, and it is tried again with the next.
                    let error = error.chain();
                    tracing::error!(error, "files of the online store could not be merged");
                    return;
                }
            }
        }
    }

    fn merged(&self, old: &[Level], merged: merge::Merged) {
        let mut writer = self.writer();
        let Some(levels) = self.levels().replaced(old, merged.level) else {
            // The store was cleared meanwhile.
            drop(writer);
            merged.made.iter().for_each(|made| self.folder.remove_run(made.run.number()));
            return;
        };
        self.publish(levels);
        writer.unsynced.extend(merged.made);
        writer.replaced.extend(merged.replaced);
        writer.dirty = true;
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("reached", &self.reached()).finish_non_exhaustive()
    }
}
