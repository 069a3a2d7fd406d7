//! Limits: memory however long the object, and a disk that is full.

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use falaj_base::{ByteSize, TenantId, code};
use falaj_store::keys::{Keys, KeysConfig};
use falaj_store::objects::{Expected, Objects, ObjectsConfig};
use falaj_testkit::database::Database;
use futures::{StreamExt, stream};

use super::world::{name, open};

/// The most memory this process has ever used, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_does_not_grow_with_the_object() {
    const PIECE: usize = 64 << 10;
    const PIECES: u64 = 8192;
    let database = Database::sqlite().unwrap();
    let (db, _) = open(&database).await;
    let folder = tempfile::tempdir().unwrap();
    let keys = Keys::open(&KeysConfig::default(), folder.path(), db.clone()).await.unwrap();
    let config = ObjectsConfig::default();
    let objects = Objects::open(&config, folder.path(), db.clone(), keys).unwrap();
    let tenant = TenantId::new();
    let before = peak_memory();
    let piece = |number: u64| {
        let mut piece = vec![0; PIECE];
        piece[..8].copy_from_slice(&number.to_le_bytes());
        Ok(Bytes::from(piece))
    };
    let staged = objects
        .upload(tenant, &name("local"), stream::iter((0..PIECES).map(piece)), Expected::default())
        .await
        .unwrap();
    assert_eq!(staged.size, PIECES * PIECE as u64);
    let id = db.write(move |tx| Objects::attach(tx, &staged, "test", "long")).await.unwrap();
    let mut read = objects.blob(tenant, id).await.unwrap().read();
    let mut total = 0;
    while let Some(piece) = read.next().await {
        total += piece.unwrap().len() as u64;
    }
    assert_eq!(total, PIECES * PIECE as u64);
    let used = peak_memory() - before;
    assert!(used < 48 << 10, "512 MiB took {used} KiB of memory");
}

/// A file system of a few MiB.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(place: &Path) -> Option<Self> {
        std::fs::create_dir_all(place).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
            .arg(place)
            .status()
            .is_ok_and(|status| status.success());
        mounted.then(|| Self(place.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let database = Database::sqlite().unwrap();
    let (db, clock) = open(&database).await;
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(&folder.path().join("objects")) else {
        eprintln!("--- disk full SKIPPED: mounting takes root");
        return;
    };
    let keys = Keys::open(&KeysConfig::default(), folder.path(), db.clone()).await.unwrap();
    let config = ObjectsConfig { local_part: ByteSize::kib(256), ..ObjectsConfig::default() };
    let objects = Objects::open(&config, folder.path(), db.clone(), keys).unwrap();
    let (tenant, local) = (TenantId::new(), name("local"));
    let put = async |len: usize, byte: u8| {
        let content = stream::iter([Ok(Bytes::from(vec![byte; len]))]);
        let staged = objects.upload(tenant, &local, content, Expected::default()).await?;
        db.write(move |tx| Objects::attach(tx, &staged, "test", &byte.to_string())).await
    };
    let kept = put(2 << 20, 1).await.unwrap();
    for len in [3 << 20, 2_300_000] {
        let refused = put(len, 2).await.unwrap_err();
        assert_eq!(refused.code(), &code::STORAGE_FULL, "{refused:?}");
    }
    let read = super::world::collect(objects.blob(tenant, kept).await.unwrap().read());
    assert_eq!(read.await.unwrap().len(), 2 << 20);
    db.write(move |tx| Objects::detach(tx, kept, "test", "1")).await.unwrap();
    clock.advance(std::time::Duration::from_hours(2));
    objects.collect().await.unwrap();
    put(3 << 20, 3).await.expect("space has returned");
}
