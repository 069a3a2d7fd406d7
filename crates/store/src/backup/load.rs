//! Restoring a backup into an empty place.

use bytes::Bytes;
use falaj_base::{Error, Result, code};
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

use super::frame::{Frame, Frames, TableStart};
use super::header::{Header, KEY_NAME, MAX_HEADER};
use super::{Summary, damaged};
use crate::db::{Db, ModuleMigrations, Tx, Value, params};
use crate::keys::KeyManager;
use crate::objects::SealedRoots;
use crate::seal::{Buffer, Opener};

/// How many frames may wait for the database.
const QUEUE: usize = 256;
/// How often the waiting transaction is touched, so that the server does not end it as idle.
const TICK: std::time::Duration = std::time::Duration::from_secs(10);

/// Where to restore to: nothing may be there yet.
#[derive(Debug)]
pub struct Empty<'a> {
    pub db: Db,
    pub roots: &'a SealedRoots,
    /// Every migration this binary knows; a backup with one it does not know is refused.
    pub migrations: Vec<ModuleMigrations>,
}

/// What the thread that owns the transaction is told.
enum Step {
    Table(TableStart),
    Row(Vec<Value>),
    /// Blobs are being copied; keep the transaction alive.
    Tick,
    Commit(Summary),
}

/// Reads a whole backup and commits it if, and only if, all of it is sound.
pub async fn restore(
    mut input: impl Stream<Item = Result<Bytes>> + Unpin,
    root_key: &dyn KeyManager,
    place: Empty<'_>,
) -> Result<Summary> {
    let (header, header_bytes, rest) = read_header(&mut input).await?;
    let key = root_key.unwrap(KEY_NAME, &header.wrapped()?).await?;
    let opener = Opener::new(&key, &header_bytes);

    let (steps, told) = mpsc::channel(QUEUE);
    let (db, migrations) = (place.db.clone(), place.migrations.clone());
    let rows = tokio::spawn(async move {
        db.write(move |tx| Rows { tx, table: None, migrations }.run(told)).await
    });
    let copied = copy(input, rest, opener, place.roots, &steps).await;
    drop(steps);
    // If both failed, the database's reason comes first in time: the copier only saw it go.
    let committed = rows.await.map_err(Error::internal)?;
    match (copied, committed) {
        (_, Err(error)) | (Err(error), Ok(())) => Err(error),
        (Ok(summary), Ok(())) => Ok(summary),
    }
}

async fn read_header(
    input: &mut (impl Stream<Item = Result<Bytes>> + Unpin),
) -> Result<(Header, Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some((header, length)) = Header::decode(&bytes[..bytes.len().min(MAX_HEADER)])? {
            let rest = bytes.split_off(length);
            return Ok((header, bytes, rest));
        }
        let piece = input.next().await.ok_or_else(|| damaged("it has no header"))??;
        bytes.extend_from_slice(&piece);
    }
}

/// Opens the stream, hands rows to the database and blobs to their roots.
async fn copy(
    mut input: impl Stream<Item = Result<Bytes>> + Unpin,
    first: Vec<u8>,
    mut opener: Opener,
    roots: &SealedRoots,
    steps: &mpsc::Sender<Step>,
) -> Result<Summary> {
    let mut sorter = Sorter {
        frames: Frames::default(),
        roots,
        steps,
        blob: None,
        seen: Summary::default(),
        end: None,
        ticked: tokio::time::Instant::now(),
    };
    let mut plain = Buffer::default();
    opener.push(&first, &mut plain)?;
    loop {
        sorter.take(&plain).await?;
        plain.clear();
        let Some(piece) = input.next().await else { break };
        opener.push(&piece?, &mut plain)?;
    }
    opener.finish(&mut plain)?;
    sorter.take(&plain).await?;
    sorter.finish().await
}

struct Sorter<'a> {
    frames: Frames,
    roots: &'a SealedRoots,
    steps: &'a mpsc::Sender<Step>,
    blob: Option<crate::objects::SealedWriter>,
    seen: Summary,
    end: Option<Summary>,
    ticked: tokio::time::Instant,
}

impl Sorter<'_> {
    async fn take(&mut self, plain: &[u8]) -> Result<()> {
        self.frames.push(plain);
        while let Some(frame) = self.frames.next()? {
            if self.end.is_some() {
                return Err(damaged("something follows its end"));
            }
            self.sort(frame).await?;
        }
        Ok(())
    }

    async fn sort(&mut self, frame: Frame) -> Result<()> {
        match (frame, self.blob.take()) {
            (Frame::Table(table), None) => {
                self.seen.tables.insert(table.name.clone(), 0);
                self.tell(Step::Table(table)).await
            }
            (Frame::Row(row), None) => self.tell(Step::Row(row)).await,
            (Frame::Blob(start), None) => {
                self.blob = Some(self.roots.writer(start.tenant, start.blob, &start.root)?);
                Ok(())
            }
            (Frame::BlobBytes(bytes), Some(writer)) => {
                self.seen.bytes += bytes.len() as u64;
                self.blob = Some(writer.write(&bytes).await?);
                self.tick().await
            }
            (Frame::BlobEnd, Some(writer)) => {
                self.seen.blobs += 1;
                writer.finish().await?;
                self.tick().await
            }
            (Frame::End(summary), None) => {
                self.end = Some(summary);
                Ok(())
            }
            _ => Err(damaged("its pieces are out of order")),
        }
    }

    async fn tick(&mut self) -> Result<()> {
        if self.ticked.elapsed() < TICK {
            return Ok(());
        }
        self.ticked = tokio::time::Instant::now();
        self.tell(Step::Tick).await
    }

    async fn tell(&self, step: Step) -> Result<()> {
        let gone = |_| Error::new(&code::UNAVAILABLE, "the database gave up");
        self.steps.send(step).await.map_err(gone)
    }

    /// Everything has arrived and was authentic; the database compares its counts and commits.
    async fn finish(self) -> Result<Summary> {
        let summary = self.end.clone().ok_or_else(|| damaged("it has no end"))?;
        if !self.frames.is_empty() || self.blob.is_some() {
            return Err(damaged("it stops in the middle"));
        }
        if (summary.blobs, summary.bytes) != (self.seen.blobs, self.seen.bytes) {
            return Err(damaged("its blobs are not those it lists"));
        }
        self.tell(Step::Commit(summary.clone())).await?;
        Ok(summary)
    }
}

/// The transaction that takes all rows.
struct Rows<'a, 'b> {
    tx: &'a mut Tx<'b>,
    table: Option<(String, u64)>,
    migrations: Vec<ModuleMigrations>,
}

impl Rows<'_, '_> {
    fn run(mut self, mut steps: mpsc::Receiver<Step>) -> Result<()> {
        if !self.tx.tables()?.is_empty() {
            let text = "the database is not empty; a restore needs an empty one";
            return Err(Error::new(&code::CONFLICT, text).at("database-url"));
        }
        let mut counts = Summary::default();
        let mut insert = String::new();
        while let Some(step) = steps.blocking_recv() {
            match step {
                Step::Table(table) => {
                    counts.tables.insert(table.name.clone(), 0);
                    insert = self.begin_table(&table)?;
                    self.table = Some((table.name, 0));
                }
                Step::Row(row) => {
                    let (name, count) =
                        self.table.as_mut().ok_or_else(|| damaged("a row without a table"))?;
                    *count += 1;
                    counts.tables.insert(name.clone(), *count);
                    self.tx.execute(&insert, &row)?;
                }
                Step::Tick => drop(self.tx.query("SELECT 1 AS alive", &[])?),
                Step::Commit(summary) if summary.tables == counts.tables => return Ok(()),
                Step::Commit(_) => return Err(damaged("its rows are not those it lists")),
            }
        }
        Err(damaged("it ended early"))
    }

    /// The schema is the first table of a backup: it tells how far to migrate before the rest.
    fn begin_table(&mut self, table: &TableStart) -> Result<String> {
        if self.table.as_ref().is_some_and(|(name, _)| name == "schema_version") {
            self.tx.migrate_as_recorded(&self.migrations)?;
        } else if self.table.is_none() {
            if table.name != "schema_version" {
                return Err(damaged("its schema does not come first"));
            }
            self.tx.make_schema_table()?;
        }
        let plain = |name: &String| {
            let letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            name.bytes().next().is_some_and(letter)
                && name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
        };
        if !plain(&table.name) || !table.columns.iter().all(plain) {
            return Err(damaged("a name in its schema"));
        }
        // What the migrations put there is in the backup too.
        if table.name != "schema_version" {
            self.tx.execute(&format!("DELETE FROM {}", table.name), &params![])?;
        }
        let places: Vec<String> = (1..=table.columns.len()).map(|n| format!("${n}")).collect();
        let (columns, places) = (table.columns.join(", "), places.join(", "));
        Ok(format!("INSERT INTO {} ({columns}) VALUES ({places})", table.name))
    }
}
