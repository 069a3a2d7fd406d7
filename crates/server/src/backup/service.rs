//! Taking a backup.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use falaj_base::{Ctx, Error, Resource, Result, code};
use falaj_governance::audit::{self, Audit};
use falaj_store::backup::Dump;
use falaj_store::db::Db;
use falaj_store::keys::Keys;
use falaj_store::objects::Objects;
use falaj_store::record::Change;
use tokio::sync::{Semaphore, mpsc};

use super::BACKUP_CREATE;

/// How many sealed pieces may wait for a slow receiver.
const QUEUE: usize = 16;

/// Takes backups, one at a time.
#[derive(Debug)]
pub struct Backups {
    pub db: Db,
    pub keys: Keys,
    pub objects: Objects,
    pub audit: Arc<Audit>,
    /// Where rows are spooled, sealed, while they are sent.
    pub folder: PathBuf,
    pub running: Arc<Semaphore>,
}

impl Backups {
    /// Begins a backup. The receiver gets its bytes; an error in the middle ends them early, which
    /// the format makes plain to whoever reads it.
    pub async fn take(&self, ctx: &Ctx) -> Result<mpsc::Receiver<Result<Bytes>>> {
        let resource = Resource::platform();
        ctx.authorize(&BACKUP_CREATE, &resource).await?;
        let place = self.running.clone().try_acquire_owned().map_err(|_| {
            Error::new(&code::OVERLOADED, "another backup is being taken")
                .retry_after(std::time::Duration::from_secs(30))
        })?;
        let recorder = ctx.clone();
        self.db
            .write(move |tx| {
                let change = Change::new(&BACKUP_CREATE, &resource);
                tx.record(&recorder, change.event("backup.started", &serde_json::Value::Null))
            })
            .await?;
        // Everything up to and including this backup is under a signed checkpoint inside it.
        self.audit.seal().await?;
        let dump = Dump {
            db: self.db.clone(),
            keys: self.keys.clone(),
            objects: self.objects.clone(),
            version: env!("CARGO_PKG_VERSION"),
            renumber: [audit::RENUMBERED, falaj_features::history::RENUMBERED].concat(),
        };
        let (sink, receiver) = mpsc::channel(QUEUE);
        let folder = self.folder.clone();
        tokio::spawn(async move {
            let _place = place;
            run(dump, folder, sink).await;
        });
        Ok(receiver)
    }
}

async fn run(dump: Dump, folder: PathBuf, sink: mpsc::Sender<Result<Bytes>>) {
    let (pieces, mut taken) = mpsc::channel(1);
    let forward = async {
        while let Some(piece) = taken.recv().await {
            if sink.send(Ok(piece)).await.is_err() {
                break;
            }
        }
        // Closing tells the dump that nobody reads any more.
        drop(taken);
    };
    let (result, ()) = tokio::join!(dump.run(&folder, pieces), forward);
    match result {
        Ok(summary) => tracing::info!(blobs = summary.blobs, bytes = summary.bytes, "backup taken"),
        Err(error) => {
            tracing::error!(error = error.chain(), "backup failed");
            let _ = sink.send(Err(error)).await;
        }
    }
}
