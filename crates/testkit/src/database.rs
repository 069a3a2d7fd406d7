//! Fresh databases for conformance suites: one suite, both engines.

use std::path::PathBuf;

use anyhow::{Context, Result};
use falaj_base::{Clock, Secret};
use falaj_store::db::{DatabaseConfig, Db, Location};
use tempfile::TempDir;
use tokio_postgres::NoTls;

/// Names the PostgreSQL superuser of the tests; see `scripts/with-services`.
pub const POSTGRES_URL: &str = "FALAJ_TEST_POSTGRES_URL";

/// An empty database that is gone when this is dropped.
#[derive(Debug)]
pub struct Database {
    location: Location,
    _keeper: Keeper,
}

/// What has to be cleared away, and only that: the fields are read by their `Drop`.
#[derive(Debug)]
enum Keeper {
    Folder { _folder: TempDir },
    Postgres { _database: PostgresDatabase },
}

impl Database {
    pub fn sqlite() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("falaj-db-").tempdir()?;
        let location = Location::Sqlite(folder.path().join("falaj.db"));
        Ok(Self { location, _keeper: Keeper::Folder { _folder: folder } })
    }

    /// A new database on the tests' server; `None` where no server was given.
    pub async fn postgres() -> Result<Option<Self>> {
        let Some(database) = PostgresDatabase::create().await? else { return Ok(None) };
        let location = Location::Postgres(Secret::new(database.url()));
        Ok(Some(Self { location, _keeper: Keeper::Postgres { _database: database } }))
    }

    #[must_use]
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The path, where the engine keeps a file.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        match &self.location {
            Location::Sqlite(path) => Some(path.clone()),
            Location::Postgres(_) => None,
        }
    }

    pub async fn open(&self) -> Result<Db> {
        self.open_with(&DatabaseConfig::default(), Clock::System).await
    }

    pub async fn open_with(&self, config: &DatabaseConfig, clock: Clock) -> Result<Db> {
        Ok(Db::open(&self.location, config, clock).await?)
    }
}

/// Runs `suite` on a fresh SQLite database, then on a fresh PostgreSQL one. A failure names the
/// engine.
#[allow(clippy::expect_used, reason = "a suite without its database fails, and says so")]
pub async fn each<F, Fut>(suite: F)
where
    F: Fn(Db) -> Fut,
    Fut: Future<Output = ()>,
{
    each_place(async |database| suite(database.open().await.expect("opening")).await).await;
}

/// Like [`each`], for suites that open the database themselves, or more than once.
#[allow(clippy::expect_used, reason = "a suite without its database fails, and says so")]
pub async fn each_place<F>(suite: F)
where
    F: AsyncFn(&Database),
{
    announce("SQLite");
    suite(&Database::sqlite().expect("making a SQLite database")).await;
    match Database::postgres().await.expect("making a PostgreSQL database") {
        Some(database) => {
            announce("PostgreSQL");
            suite(&database).await;
        }
        None => announce(&format!("PostgreSQL SKIPPED: {POSTGRES_URL} is not set (make test)")),
    }
}

#[allow(clippy::print_stderr, reason = "a failing test's output names the engine it failed on")]
fn announce(engine: &str) {
    eprintln!("--- engine: {engine}");
}

/// A PostgreSQL database of its own, with binary text order.
#[derive(Debug)]
pub struct PostgresDatabase {
    server: String,
    name: String,
}

impl PostgresDatabase {
    pub async fn create() -> Result<Option<Self>> {
        let Ok(server) = std::env::var(POSTGRES_URL) else { return Ok(None) };
        let name = format!("falaj_{}", uuid::Uuid::now_v7().simple());
        let statement = format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
        );
        run(&server, &statement).await.context("creating a database")?;
        Ok(Some(Self { server, name }))
    }

    /// The server's URL with this database in place of its own.
    #[must_use]
    pub fn url(&self) -> String {
        let (base, query) = match self.server.split_once('?') {
            Some((base, query)) => (base, format!("?{query}")),
            None => (self.server.as_str(), String::new()),
        };
        let server = base.rsplit_once('/').map_or(base, |(server, _)| server);
        format!("{server}/{}{query}", self.name)
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        // A runtime cannot be entered from inside another one, hence the thread. A database left
        // behind does no harm: the whole server is temporary.
        let (server, name) = (self.server.clone(), self.name.clone());
        let _ = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| {
                runtime.block_on(run(&server, &format!("DROP DATABASE {name} WITH (FORCE)")))
            })
        })
        .join();
    }
}

async fn run(server: &str, statement: &str) -> Result<()> {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await?;
    let connection = tokio::spawn(connection);
    let done = client.batch_execute(statement).await;
    drop(client);
    connection.await??;
    Ok(done?)
}
