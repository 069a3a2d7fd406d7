//! Restoring, without a running server.

use std::path::Path;

use falaj_base::{Clock, Error, Result, code};
use falaj_governance::audit::{Audit, AuditConfig};
use falaj_store::backup::{self, Empty, Summary};
use falaj_store::db::{Db, Location};
use falaj_store::keys::{Keys, home_manager};
use falaj_store::objects::SealedRoots;
use futures::StreamExt;
use tokio_util::io::ReaderStream;

use crate::config::Config;
use crate::data_dir::DataDir;
use crate::modules;

/// How much is read from the file at a time.
const PIECE: usize = 256 << 10;

/// What was restored, and that it is sound.
#[derive(Clone, Debug)]
pub struct Restored {
    pub summary: Summary,
    /// How many audit entries there are, each checked against the signed tree.
    pub audit_size: u64,
}

/// Restores `from` into the empty place that `config` describes. The root key must be there
/// already: the keyring file in the data directory, or the key manager. `progress` is told how
/// many bytes of the backup have been read.
pub async fn restore(config: &Config, from: &Path, progress: impl Fn(u64)) -> Result<Restored> {
    let data_dir = DataDir::open(&config.data_dir)?;
    let location = config.database.location(data_dir.path());
    refuse_existing(&location)?;
    let root_key = home_manager(&config.keys, data_dir.path()).await?;
    let roots = SealedRoots::open(&config.objects, data_dir.path())?;
    let file = tokio::fs::File::open(from).await.map_err(|error| {
        Error::new(&code::INVALID_INPUT, format!("cannot read {}", from.display()))
            .at("from")
            .caused_by(error)
    })?;
    let mut read = 0;
    let pieces = ReaderStream::with_capacity(file, PIECE).map(|piece| {
        let piece = piece.map_err(Error::internal)?;
        read += piece.len() as u64;
        progress(read);
        Ok(piece)
    });
    let db = Db::open(&location, &config.database, Clock::System).await?;
    let place = Empty { db: db.clone(), roots: &roots, migrations: modules::migrations() };
    let checkpoints = data_dir.path().join("checkpoints");
    let had_checkpoints = checkpoints.exists();
    let outcome = async {
        let summary = backup::restore(Box::pin(pieces), root_key.as_ref(), place).await?;
        let audit_size = check(config, db, data_dir.path()).await?;
        Ok(Restored { summary, audit_size })
    };
    let outcome = outcome.await;
    if outcome.is_err() {
        remove_failed(&location);
        if !had_checkpoints {
            let _ = std::fs::remove_dir_all(&checkpoints);
        }
        let left = roots.undo().await;
        if left > 0 {
            tracing::warn!(objects = left, "a failed restore could not remove all it had copied");
        }
    }
    outcome
}

/// Brings the schema up to date and reads the whole audit log against its checkpoint.
async fn check(config: &Config, db: Db, data_dir: &Path) -> Result<u64> {
    db.migrate(&modules::migrations()).await?;
    let keys = Keys::open(&config.keys, data_dir, db.clone()).await?;
    let everything = AuditConfig { check_at_start: u32::MAX, ..config.audit.clone() };
    let audit = Audit::open(&everything, db, &keys, data_dir).await?;
    audit.seal().await?;
    Ok(audit.verify_store().await?.size)
}

fn refuse_existing(location: &Location) -> Result<()> {
    match location {
        Location::Sqlite(path) if path.exists() => {
            let text = format!("{} exists; a restore needs an empty place", path.display());
            Err(Error::new(&code::CONFLICT, text).at("data-dir"))
        }
        Location::Sqlite(_) | Location::Postgres(_) => Ok(()),
    }
}

/// Takes away the database file that a failed restore made, so that the next try finds the place
/// as empty as this one did.
fn remove_failed(location: &Location) {
    if let Location::Sqlite(path) = location {
        for ending in ["db", "db-wal", "db-shm", "lock"] {
            let _ = std::fs::remove_file(path.with_extension(ending));
        }
    }
}
