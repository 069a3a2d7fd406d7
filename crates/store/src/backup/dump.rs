//! Taking a backup.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use falaj_base::{BlobId, Error, Name, Result, TenantId, Timestamp, code};
use futures::StreamExt;
use tokio::sync::mpsc;

use super::frame::{BlobStart, Frame, TableStart};
use super::header::{Header, KEY_NAME};
use super::{Summary, TRANSIENT};
use crate::db::{Db, Row, Tx, params};
use crate::keys::Keys;
use crate::lease::{Lease, Leases};
use crate::objects::{DELETION_LEASE, Objects};
use crate::seal::{Buffer, DataKey, Sealer};

/// How long the collector is kept away at a time; renewed while the backup runs.
const HOLD: Duration = Duration::from_mins(2);
/// How long to wait for the collector's current run to end.
const PATIENCE: Duration = Duration::from_mins(1);
/// How many blobs are looked up at a time.
const BLOBS: u32 = 500;

/// A column whose PostgreSQL values mean nothing elsewhere (transaction numbers), and what to write
/// in its place: table, column, expression.
pub type Renumber = (&'static str, &'static str, &'static str);

/// The store's own such columns: the logs are numbered anew in the same order.
const RENUMBERED: &[Renumber] = &[
    ("event", "tx", "CAST(0 AS BIGINT)"),
    ("event", "seq", "row_number() OVER (ORDER BY tx, seq)"),
    ("audit_entry", "tx", "CAST(0 AS BIGINT)"),
    ("audit_entry", "seq", "row_number() OVER (ORDER BY tx, seq)"),
    ("subscription", "tx", "CAST(0 AS BIGINT)"),
    (
        "subscription",
        "seq",
        "(SELECT COUNT(*) FROM event e WHERE e.tx < subscription.tx
          OR (e.tx = subscription.tx AND e.seq <= subscription.seq))",
    ),
];

/// A backup about to be taken.
#[derive(Debug)]
pub struct Dump {
    pub db: Db,
    pub keys: Keys,
    pub objects: Objects,
    /// For the header: the version of the binary.
    pub version: &'static str,
    /// More columns to number anew, of tables that are not the store's.
    pub renumber: Vec<Renumber>,
}

impl Dump {
    /// Writes the backup into `sink`, piece by piece. The rows are spooled, sealed, to a file in
    /// `folder` first: a slow receiver must not hold the database's snapshot.
    pub async fn run(self, folder: &Path, sink: mpsc::Sender<Bytes>) -> Result<Summary> {
        let leases = Leases::new(self.db.clone(), format!("backup-{}", uuid::Uuid::now_v7()));
        let hold = hold_collector(&leases).await?;
        let result = tokio::select! {
            result = self.run_held(folder, &sink) => result,
            lost = leases.keep(&hold, HOLD) => Err(lost),
        };
        leases.release(&hold).await?;
        result
    }

    async fn run_held(&self, folder: &Path, sink: &mpsc::Sender<Bytes>) -> Result<Summary> {
        let key = DataKey::generate()?;
        let wrapped = self.keys.wrap(KEY_NAME, &key).await?;
        let header = Header::new(self.db.now(), self.version, &wrapped).encode()?;
        let sealer = Sealer::new(&key, &header)?;
        send(sink, header.into()).await?;

        let mut writer = self.spool_rows(folder, sealer).await?;
        // Read after the snapshot: every blob its rows refer to is older than this.
        let taken_at = self.db.now();
        for piece in writer.take_spooled()? {
            send(sink, piece?).await?;
        }
        let mut after = String::new();
        loop {
            let blobs = self.blobs_after(&after, taken_at).await?;
            let Some(last) = blobs.last() else { break };
            after = last.blob.to_string();
            for blob in blobs {
                self.copy_blob(blob, &mut writer, sink).await?;
            }
        }
        let summary = writer.summary.clone();
        writer.write(&Frame::End(summary.clone()))?;
        send(sink, writer.finish()?).await?;
        Ok(summary)
    }

    /// Seals all rows of one snapshot into a spool file.
    async fn spool_rows(&self, folder: &Path, sealer: Sealer) -> Result<Writer> {
        let spool = tempfile::tempfile_in(folder).map_err(no_room)?;
        let renumber: Vec<Renumber> = match self.db.engine_name() {
            "postgresql" => RENUMBERED.iter().chain(&self.renumber).copied().collect(),
            _ => Vec::new(),
        };
        self.db
            .read(move |tx| {
                let mut writer = Writer::new(sealer, spool);
                for table in tx.tables()? {
                    if !TRANSIENT.contains(&table.as_str()) {
                        dump_table(tx, table, &renumber, &mut writer)?;
                    }
                }
                Ok(writer)
            })
            .await
    }

    async fn blobs_after(&self, after: &str, taken_at: Timestamp) -> Result<Vec<BlobStart>> {
        let after = after.to_owned();
        self.db
            .read(move |tx| {
                let rows = tx.query(
                    "SELECT id, tenant, root FROM blob WHERE state IN ('ready', 'unused')
                     AND created_at <= $1 AND id > $2 ORDER BY id LIMIT $3",
                    &params![taken_at, after, BLOBS],
                )?;
                rows.iter().map(blob).collect()
            })
            .await
    }

    async fn copy_blob(
        &self,
        blob: BlobStart,
        writer: &mut Writer,
        sink: &mpsc::Sender<Bytes>,
    ) -> Result<()> {
        let mut sealed = self.objects.sealed_bytes(blob.tenant, blob.blob, &blob.root).await?;
        writer.write(&Frame::Blob(blob))?;
        while let Some(piece) = sealed.next().await {
            let piece = piece?;
            writer.summary.bytes += piece.len() as u64;
            writer.write(&Frame::BlobBytes(piece.to_vec()))?;
            if let Some(sealed) = writer.take() {
                send(sink, sealed).await?;
            }
        }
        writer.summary.blobs += 1;
        writer.write(&Frame::BlobEnd)
    }
}

fn blob(row: &Row) -> Result<BlobStart> {
    let (tenant, blob): (TenantId, BlobId) = (row.get("tenant")?, row.get("id")?);
    let root: Name = row.get("root")?;
    Ok(BlobStart { tenant, blob, root })
}

fn dump_table(
    tx: &mut Tx<'_>,
    name: String,
    renumber: &[Renumber],
    writer: &mut Writer,
) -> Result<()> {
    let columns = tx.columns(&name)?;
    let expression = |column: &String| {
        let changed = renumber.iter().find(|(table, of, _)| *table == name && of == column);
        changed.map_or_else(|| column.clone(), |(_, _, sql)| format!("{sql} AS {column}"))
    };
    let list: Vec<String> = columns.iter().map(expression).collect();
    let sql = format!("SELECT {} FROM {name}", list.join(", "));
    writer.write(&Frame::Table(TableStart { name: name.clone(), columns }))?;
    let mut rows = 0;
    tx.scan(&sql, &[], |row| {
        rows += 1;
        writer.write(&Frame::Row(row.into_values()))?;
        writer.spill()
    })?;
    writer.summary.tables.insert(name, rows);
    Ok(())
}

/// Seals frames; what is sealed waits in memory, or in the spool file while there is one.
struct Writer {
    sealer: Sealer,
    spool: Option<File>,
    ready: Buffer,
    summary: Summary,
}

/// How the spool is handed on: in pieces of this length.
const SPOOL_PIECE: usize = 256 << 10;

impl Writer {
    fn new(sealer: Sealer, spool: File) -> Self {
        Self { sealer, spool: Some(spool), ready: Buffer::default(), summary: Summary::default() }
    }

    fn write(&mut self, frame: &Frame) -> Result<()> {
        self.sealer.push(&frame.encode()?, &mut self.ready)
    }

    /// What is ready to be sent, if anything is.
    fn take(&mut self) -> Option<Bytes> {
        let ready = std::mem::take(&mut self.ready);
        (!ready.is_empty()).then(|| ready.into())
    }

    /// Moves what is sealed to the spool file.
    fn spill(&mut self) -> Result<()> {
        let Some(spool) = &mut self.spool else { return Ok(()) };
        spool.write_all(&self.ready).map_err(no_room)?;
        self.ready.clear();
        Ok(())
    }

    /// Ends the spool and gives its contents, from the beginning.
    fn take_spooled(&mut self) -> Result<impl Iterator<Item = Result<Bytes>> + use<>> {
        self.spill()?;
        let mut spool = self.spool.take().ok_or_else(|| Error::internal("the spool is gone"))?;
        spool.seek(SeekFrom::Start(0)).map_err(no_room)?;
        Ok(std::iter::from_fn(move || {
            let mut piece = vec![0; SPOOL_PIECE];
            match spool.read(&mut piece) {
                Ok(0) => None,
                Ok(length) => {
                    piece.truncate(length);
                    Some(Ok(piece.into()))
                }
                Err(error) => Some(Err(no_room(error))),
            }
        }))
    }

    fn finish(mut self) -> Result<Bytes> {
        self.sealer.finish(&mut self.ready)?;
        Ok(self.ready.into())
    }
}

/// Keeps the collector of unreferenced blobs away until the backup has read them.
async fn hold_collector(leases: &Leases) -> Result<Lease> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(lease) = leases.acquire(DELETION_LEASE, HOLD).await? {
            return Ok(lease);
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(Error::new(&code::UNAVAILABLE, "another backup or collection is running")
                .retry_after(PATIENCE));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn send(sink: &mpsc::Sender<Bytes>, piece: Bytes) -> Result<()> {
    let gone = |_| Error::new(&code::UNAVAILABLE, "the receiver of the backup has gone");
    sink.send(piece).await.map_err(gone)
}

fn no_room(error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::StorageFull {
        Error::new(&code::STORAGE_FULL, "there is no room to spool the backup").caused_by(error)
    } else {
        Error::internal(error)
    }
}
