//! Sealed, hashed, durable objects against copying a file.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use bytes::Bytes;
use falaj_base::{BlobId, Error, HumanDuration, Name, TenantId};
use falaj_store::keys::{Keys, KeysConfig};
use falaj_store::objects::{Expected, Objects, ObjectsConfig};
use falaj_store::{keys, objects};
use falaj_testkit::Random;
use falaj_testkit::database::Database;
use futures::{Stream, TryStreamExt};

use crate::report::{Goal, Report};

const SIZE: usize = 512 << 20;
const BLOCK: usize = 1 << 20;
const ROUNDS: usize = 5;
/// How the objects are referred to.
const OWNER: &str = "object";

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("falaj-bench-").tempdir()?;
    let source = folder.path().join("source");
    make(&source)?;
    let place = Database::sqlite()?;
    let db = place.open().await?;
    let mut modules = falaj_store::migrations();
    modules.extend([("keys", keys::MIGRATIONS), ("objects", objects::MIGRATIONS)]);
    db.migrate(&modules).await?;
    let keys = Keys::open(&KeysConfig::default(), folder.path(), db.clone()).await?;
    let tenant = TenantId::new();
    let zone = Name::new("local")?;
    let key = keys.prepare(tenant, &zone).await?;
    db.write(move |tx| Keys::install(tx, &key)).await?;
    let no_grace = HumanDuration::from_secs(0);
    let config = ObjectsConfig { unused_grace: no_grace, ..ObjectsConfig::default() };
    let objects = Objects::open(&config, folder.path(), db.clone(), keys)?;

    // In turns, the best of each: what the disk can do, not what it did once.
    let (mut copied, mut written, mut read) = (0.0_f64, 0.0_f64, 0.0_f64);
    let copy = folder.path().join("copy");
    for _ in 0..ROUNDS {
        copied = copied.max(copying(&source, &copy)?);
        std::fs::remove_file(&copy)?;
        let (wrote, blob) = writing(&objects, tenant, &zone, &source, &db).await?;
        written = written.max(wrote);
        read = read.max(reading(&objects, tenant, blob).await?);
        db.write(move |tx| Objects::detach(tx, blob, OWNER, &blob.to_string())).await?;
        objects.collect().await?;
    }
    report.note("object: copying a file, with fsync", copied, "MB/s");
    report.note("object: writing", written, "MB/s");
    report.note("object: reading", read, "MB/s");
    report.goal("object: writing / copying", written / copied * 100.0, "%", Goal::AtLeast(70.0));
    report.goal("object: reading / copying", read / copied * 100.0, "%", Goal::AtLeast(70.0));
    Ok(())
}

async fn writing(
    objects: &Objects,
    tenant: TenantId,
    zone: &Name,
    source: &Path,
    db: &falaj_store::db::Db,
) -> Result<(f64, BlobId)> {
    let began = Instant::now();
    let content = blocks(File::open(source)?);
    let staged = objects.upload(tenant, zone, content, Expected::default()).await?;
    let owner = staged.blob.to_string();
    let attached = db.write(move |tx| Objects::attach(tx, &staged, OWNER, &owner)).await?;
    Ok((speed(began), attached))
}

/// Opens, authenticates and hashes every byte and hands it over.
async fn reading(objects: &Objects, tenant: TenantId, blob: BlobId) -> Result<f64> {
    let began = Instant::now();
    let mut pieces = objects.blob(tenant, blob).await?.read();
    let mut length = 0;
    while let Some(piece) = pieces.try_next().await? {
        length += piece.len();
    }
    ensure!(length == SIZE, "{length} of {SIZE} bytes were read");
    Ok(speed(began))
}

/// A file as a stream, read by a thread of its own: what the bytes of a socket cost is not measured
/// here.
fn blocks(file: File) -> impl Stream<Item = falaj_base::Result<Bytes>> + Send {
    let (sender, receiver) = tokio::sync::mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        loop {
            let mut block = Vec::with_capacity(BLOCK);
            let read = (&file).take(BLOCK as u64).read_to_end(&mut block);
            let read = read.map_err(Error::internal).map(|_| Bytes::from(block));
            let done = read.as_ref().map_or(true, Bytes::is_empty);
            if sender.blocking_send(read).is_err() || done {
                break;
            }
        }
    });
    futures::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|block| (block, receiver))
    })
}

fn make(path: &Path) -> Result<()> {
    let mut random = Random::new(1);
    let mut file = File::create(path)?;
    for _ in 0..SIZE / BLOCK {
        file.write_all(&random.bytes(BLOCK))?;
    }
    Ok(file.sync_all()?)
}

fn copying(from: &Path, to: &Path) -> Result<f64> {
    let began = Instant::now();
    let (mut from, mut to) = (File::open(from)?, File::create(to)?);
    let mut block = vec![0; BLOCK];
    loop {
        let length = from.read(&mut block)?;
        if length == 0 {
            break;
        }
        to.write_all(&block[..length])?;
    }
    to.sync_all()?;
    Ok(speed(began))
}

#[allow(clippy::cast_precision_loss, reason = "half a gigabyte is far below 2^52")]
fn speed(began: Instant) -> f64 {
    SIZE as f64 / 1e6 / began.elapsed().as_secs_f64()
}
