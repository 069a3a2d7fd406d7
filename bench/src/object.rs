//! Sealed, hashed, durable objects against copying a file.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use falaj_base::{Error, HumanDuration, Name, TenantId};
use falaj_store::keys::{Keys, KeysConfig};
use falaj_store::objects::{Expected, Objects, ObjectsConfig};
use falaj_store::{keys, objects};
use falaj_testkit::Random;
use falaj_testkit::database::Database;
use futures::TryStreamExt;
use tokio_util::io::ReaderStream;

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
    for _ in 0..ROUNDS {
        copied = copied.max(copy(&source, &folder.path().join("copy"))?);
        let (wrote, blob) = write(&objects, tenant, &zone, &source, &db).await?;
        written = written.max(wrote);
        let began = Instant::now();
        let mut pieces = objects.blob(tenant, blob).await?.read();
        let mut target = File::create(folder.path().join("read"))?;
        while let Some(piece) = pieces.try_next().await? {
            target.write_all(&piece)?;
        }
        target.sync_all()?;
        read = read.max(speed(began));
        db.write(move |tx| Objects::detach(tx, blob, OWNER, &blob.to_string())).await?;
    }
    report.note("object: copying a file, with fsync", copied, "MB/s");
    report.note("object: writing", written, "MB/s");
    report.note("object: reading into a file, with fsync", read, "MB/s");
    report.goal("object: writing / copying", written / copied * 100.0, "%", Goal::AtLeast(70.0));
    report.goal("object: reading / copying", read / copied * 100.0, "%", Goal::AtLeast(70.0));
    Ok(())
}

async fn write(
    objects: &Objects,
    tenant: TenantId,
    zone: &Name,
    source: &Path,
    db: &falaj_store::db::Db,
) -> Result<(f64, falaj_base::BlobId)> {
    let began = Instant::now();
    // The copy replaces the file of the round before, so this replaces the object: otherwise it
    // alone would need new memory for the page cache.
    objects.collect().await?;
    let file = tokio::fs::File::open(source).await?;
    let content = ReaderStream::with_capacity(file, BLOCK).map_err(Error::internal);
    let staged = objects.upload(tenant, zone, content, Expected::default()).await?;
    let owner = staged.blob.to_string();
    let attached = db.write(move |tx| Objects::attach(tx, &staged, OWNER, &owner)).await?;
    Ok((speed(began), attached))
}

fn make(path: &Path) -> Result<()> {
    let mut random = Random::new(1);
    let mut file = File::create(path)?;
    for _ in 0..SIZE / BLOCK {
        file.write_all(&random.bytes(BLOCK))?;
    }
    Ok(file.sync_all()?)
}

fn copy(from: &Path, to: &Path) -> Result<f64> {
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
