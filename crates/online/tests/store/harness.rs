//! Stores to test, and rows to put into them.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use falaj_base::{ByteSize, HumanDuration, Secret};
use falaj_online::store::{Embedded, EmbeddedConfig, Redis, RedisConfig};
use falaj_online::{Batch, Key, Kind, Layout, Online, Scalar, Stamp, Value};
use tempfile::TempDir;

/// Names the Redis of the tests; see `scripts/with-services`.
pub(crate) const REDIS_URL: &str = "FALAJ_TEST_REDIS_URL";

pub(crate) fn layout() -> Layout {
    Layout::new(&[Kind::One(Scalar::Int64), Kind::One(Scalar::String)])
}

pub(crate) fn key(view: u32, entity: i64) -> Key {
    Key::new(view, [("id", &Value::Int64(entity))]).unwrap()
}

pub(crate) fn packed(stamp: Stamp, number: i64) -> Box<[u8]> {
    let text = Value::String(format!("row {number}"));
    layout().pack(stamp, &[Value::Int64(number), text]).unwrap()
}

pub(crate) fn stamp(event: i64, known: i64) -> Stamp {
    Stamp { event, known, ..Stamp::default() }
}

pub(crate) fn batch(rows: impl IntoIterator<Item = (Key, Stamp, i64)>) -> Batch {
    let mut batch = Batch::new();
    for (key, stamp, number) in rows {
        batch.put(&key, &packed(stamp, number)).unwrap();
    }
    batch
}

/// The numbers of the rows found.
pub(crate) async fn numbers(store: &Online, keys: &[Key]) -> Vec<Option<i64>> {
    let layout = layout();
    let rows = store.read(keys, usize::MAX).await.unwrap();
    let number = |row: &bytes::Bytes| match layout.open(row).unwrap().value(0).unwrap() {
        Value::Int64(number) => number,
        other => panic!("{other:?}"),
    };
    rows.iter().map(|row| row.as_ref().map(number)).collect()
}

pub(crate) fn small() -> EmbeddedConfig {
    EmbeddedConfig { rows: ByteSize::mib(1) }
}

/// With so little memory that nearly every batch becomes a file, and files are merged.
pub(crate) fn tiny() -> EmbeddedConfig {
    EmbeddedConfig { rows: ByteSize::kib(2) }
}

/// Fresh stores of every kind there is a server for; the folder goes with the last of them.
pub(crate) fn stores() -> Vec<(Online, Option<TempDir>)> {
    let mut stores = Vec::new();
    for config in [small(), tiny()] {
        let folder = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(&folder.path().join("online"), &config).unwrap();
        stores.push((Online::Embedded(embedded), Some(folder)));
    }
    if let Ok(url) = std::env::var(REDIS_URL) {
        stores.push((Online::Redis(redis(&url)), None));
    }
    stores
}

/// A part of a Redis that nobody else looks at.
pub(crate) fn redis(url: &str) -> Redis {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let config = RedisConfig {
        url: Secret::new(url),
        prefix: format!("test-{}-{count}:", std::process::id()),
        timeout: HumanDuration::from_millis(500),
        ..RedisConfig::default()
    };
    Redis::new(&config).unwrap()
}

/// A Redis of one test's own, which it may stop.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    pub(crate) fn start(port: u16, more: &[&str]) -> Self {
        let plain = port.to_string();
        let child = Command::new("redis-server")
            .args(["--port", &plain, "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp"])
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed by scripts/setup");
        Self { child, port }
    }

    pub(crate) fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it without closing its connections, as a machine that hangs does.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until there is an answer.
pub(crate) async fn eventually<T, F: Future<Output = falaj_base::Result<T>>>(
    mut ask: impl FnMut() -> F,
) -> T {
    let start = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if start.elapsed() > Duration::from_secs(20) => panic!("{error:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
