//! What the suites stand on: a database, keys, a root of each kind, a clock that is turned by hand.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use falaj_base::{BlobId, Clock, Name, Result, Secret, TenantId, Timestamp};
use falaj_store::db::{DatabaseConfig, Db, ModuleMigrations};
use falaj_store::keys::{self, Keys, KeysConfig};
use falaj_store::objects::{self, Expected, Objects, ObjectsConfig, RootConfig, Staged};
use falaj_testkit::Random;
use falaj_testkit::database::{Database, each_place};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

pub(crate) struct World {
    pub(crate) db: Db,
    pub(crate) keys: Keys,
    pub(crate) objects: Objects,
    pub(crate) clock: Clock,
    pub(crate) tenant: TenantId,
    /// The root as an intruder sees it: the bytes themselves.
    pub(crate) raw: Arc<dyn ObjectStore>,
    /// Where the raw bytes of this world begin.
    pub(crate) prefix: Option<Path>,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn modules() -> Vec<ModuleMigrations> {
    let mut modules = falaj_store::migrations();
    for module in [("keys", keys::MIGRATIONS), ("objects", objects::MIGRATIONS)] {
        if !modules.iter().any(|(name, _)| *name == module.0) {
            modules.push(module);
        }
    }
    modules
}

/// Opens a database with a clock that stands still.
pub(crate) async fn open(database: &Database) -> (Db, Clock) {
    let clock = Clock::manual(Timestamp::from_micros(1_750_000_000_000_000));
    let db = database.open_with(&DatabaseConfig::default(), clock.clone()).await.unwrap();
    db.migrate(&modules()).await.unwrap();
    (db, clock)
}

/// Small parts and chunks, so that a short object already has many.
pub(crate) fn small_config(roots: Vec<RootConfig>) -> ObjectsConfig {
    ObjectsConfig {
        roots,
        local_part: falaj_base::ByteSize::kib(100),
        read_chunk: falaj_base::ByteSize::kib(128),
        collect_batch: 3,
        ..ObjectsConfig::default()
    }
}

impl World {
    pub(crate) async fn local(database: &Database) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let objects = folder.path().join("objects");
        std::fs::create_dir(&objects).unwrap();
        let raw = Arc::new(LocalFileSystem::new_with_prefix(&objects).unwrap());
        Self::build(database, RootConfig::default(), raw, None, folder).await
    }

    /// `None` where no S3 server was given.
    pub(crate) async fn s3(database: &Database) -> Option<Self> {
        let Ok(endpoint) = std::env::var("FALAJ_TEST_S3_ENDPOINT") else {
            eprintln!("--- root: S3 SKIPPED: FALAJ_TEST_S3_ENDPOINT is not set (make test)");
            return None;
        };
        let bucket = std::env::var("FALAJ_TEST_S3_BUCKET").unwrap_or_else(|_| "falaj".to_owned());
        let prefix = format!("test-{}", uuid::Uuid::now_v7().simple());
        let raw = AmazonS3Builder::new()
            .with_endpoint(&endpoint)
            .with_bucket_name(&bucket)
            .with_region("us-east-1")
            .with_access_key_id("test")
            .with_secret_access_key("test")
            .with_allow_http(true)
            .build()
            .unwrap();
        let root = RootConfig {
            url: format!("s3://{bucket}/{prefix}"),
            endpoint,
            access_key: "test".to_owned(),
            secret_key: Secret::new("test"),
            allow_http: true,
            ..RootConfig::default()
        };
        let folder = tempfile::tempdir().unwrap();
        Some(Self::build(database, root, Arc::new(raw), Some(Path::from(prefix)), folder).await)
    }

    async fn build(
        database: &Database,
        root: RootConfig,
        raw: Arc<dyn ObjectStore>,
        prefix: Option<Path>,
        folder: tempfile::TempDir,
    ) -> Self {
        let (db, clock) = open(database).await;
        let config = KeysConfig::default();
        let keys = Keys::open(&config, folder.path(), db.clone()).await.unwrap();
        let config = small_config(vec![root]);
        let objects = Objects::open(&config, folder.path(), db.clone(), keys.clone()).unwrap();
        let tenant = TenantId::new();
        Self { db, keys, objects, clock, tenant, raw, prefix, folder }
    }

    pub(crate) async fn upload(&self, content: &[u8]) -> Result<Staged> {
        self.upload_expecting(content, Expected::default()).await
    }

    pub(crate) async fn upload_expecting(
        &self,
        content: &[u8],
        expected: Expected,
    ) -> Result<Staged> {
        let content = pieces(content.to_vec(), 10_000);
        self.objects.upload(self.tenant, &name("local"), content, expected).await
    }

    pub(crate) async fn attach(&self, staged: &Staged, owner: &str) -> Result<BlobId> {
        let (staged, owner) = (staged.clone(), owner.to_owned());
        self.db.write(move |tx| Objects::attach(tx, &staged, "test", &owner)).await
    }

    pub(crate) async fn detach(&self, blob: BlobId, owner: &str) {
        let owner = owner.to_owned();
        self.db.write(move |tx| Objects::detach(tx, blob, "test", &owner)).await.unwrap();
    }

    pub(crate) async fn put(&self, content: &[u8], owner: &str) -> BlobId {
        let staged = self.upload(content).await.unwrap();
        self.attach(&staged, owner).await.unwrap()
    }

    pub(crate) async fn get(&self, blob: BlobId) -> Result<Vec<u8>> {
        collect(self.objects.blob(self.tenant, blob).await?.read()).await
    }

    /// Everything that lies in the root.
    pub(crate) async fn stored(&self) -> Vec<Path> {
        let list = self.raw.list(self.prefix.as_ref());
        let mut found: Vec<_> = list.map_ok(|meta| meta.location).try_collect().await.unwrap();
        found.sort();
        found
    }

    pub(crate) async fn stored_at(&self, blob: BlobId) -> Path {
        let wanted = blob.as_uuid().simple().to_string();
        let stored = self.stored().await;
        stored.into_iter().find(|path| path.filename() == Some(&wanted)).expect("the blob's bytes")
    }

    /// Replaces the bytes behind a blob.
    pub(crate) async fn overwrite(&self, blob: BlobId, change: impl FnOnce(&mut Vec<u8>)) {
        let place = self.stored_at(blob).await;
        let mut bytes = self.raw.get(&place).await.unwrap().bytes().await.unwrap().to_vec();
        change(&mut bytes);
        self.raw.put(&place, bytes.into()).await.unwrap();
    }

    /// Lets every grace period pass and cleans up.
    pub(crate) async fn collect_after_grace(&self) -> objects::Collected {
        self.clock.advance(Duration::from_hours(2));
        self.objects.collect().await.unwrap()
    }

    /// Every file below the data directory, staging files too.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        fn walk(folder: &std::path::Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        walk(&self.folder.path().join("objects"), &mut found);
        found
    }
}

/// Runs a suite on directory and S3, SQLite and PostgreSQL.
pub(crate) async fn each_world<F>(suite: F)
where
    F: AsyncFn(&World),
{
    each_place(async |database| {
        eprintln!("--- root: directory");
        suite(&World::local(database).await).await;
    })
    .await;
    each_place(async |database| {
        if let Some(world) = World::s3(database).await {
            eprintln!("--- root: S3");
            suite(&world).await;
        }
    })
    .await;
}

pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    Random::new(seed).bytes(len)
}

pub(crate) fn pieces(content: Vec<u8>, piece: usize) -> impl Stream<Item = Result<Bytes>> + Send {
    let content = Bytes::from(content);
    let starts = (0..content.len()).step_by(piece);
    let cut = move |start: usize| content.slice(start..(start + piece).min(content.len()));
    stream::iter(starts.map(cut).map(Ok).collect::<Vec<_>>())
}

pub(crate) async fn collect(mut stream: objects::BlobStream) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await {
        all.extend_from_slice(&piece?);
    }
    Ok(all)
}
