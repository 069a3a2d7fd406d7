//! The collector: uploads that never ended, blobs that nothing refers to, bytes nobody can open.
//!
//! Stop it anywhere and run it again: a blob is condemned in the database first, then its bytes
//! are deleted (absence is success), then its row.

use std::time::Duration;

use falaj_base::Result;

use super::row::{self, Condemned};
use super::{Inner, Objects};
use crate::lease::Leases;
use crate::worker::Worker;

/// Whoever holds this lease decides whether blobs are deleted: the collector while it runs, a
/// backup while it reads them.
pub(crate) const DELETION_LEASE: &str = "blob-deletion";
/// How long the lease lasts unless renewed.
const DELETION: Duration = Duration::from_mins(2);

/// What one run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Blobs that are gone.
    pub removed: u64,
    /// Blobs whose bytes are gone because their key was destroyed.
    pub erased: u64,
    /// Blobs whose root did not answer; the next run tries again.
    pub left: u64,
}

impl Objects {
    /// Cleans up everything that is due now, unless a backup is reading the blobs.
    pub async fn collect(&self) -> Result<Collected> {
        let leases = Leases::new(self.0.db.clone(), format!("collector-{}", uuid::Uuid::now_v7()));
        let Some(lease) = leases.acquire(DELETION_LEASE, DELETION).await? else {
            return Ok(Collected::default());
        };
        let done = tokio::select! {
            done = self.collect_held() => done,
            lost = leases.keep(&lease, DELETION) => Err(lost),
        };
        leases.release(&lease).await?;
        done
    }

    async fn collect_held(&self) -> Result<Collected> {
        let inner = &self.0;
        let mut done = Collected::default();
        inner.condemn_all().await?;
        let limit = inner.config.collect_batch;
        let mut after = String::new();
        loop {
            let from = after.clone();
            let found = inner.db.read(move |tx| row::unreadable(tx, &from, limit)).await?;
            let Some(last) = found.last() else { break };
            after = last.id.to_string();
            for blob in found {
                if self.delete_bytes(&blob, &mut done).await {
                    inner.db.write(move |tx| row::mark_erased(tx, blob.id)).await?;
                    done.erased += 1;
                }
            }
        }
        let mut after = String::new();
        loop {
            let from = after.clone();
            let found = inner.db.read(move |tx| row::condemned(tx, &from, limit)).await?;
            let Some(last) = found.last() else { break };
            after = last.id.to_string();
            for blob in found {
                if self.delete_bytes(&blob, &mut done).await {
                    inner.db.write(move |tx| row::delete_doomed(tx, blob.id)).await?;
                    done.removed += 1;
                }
            }
        }
        Ok(done)
    }

    /// The worker that runs the collector.
    #[must_use]
    pub fn workers(&self) -> Vec<Worker> {
        let objects = self.clone();
        let run = move || {
            let objects = objects.clone();
            async move {
                let done = objects.collect().await?;
                if done != Collected::default() {
                    let Collected { removed, erased, left } = done;
                    tracing::info!(removed, erased, left, "collected blobs");
                }
                Ok(())
            }
        };
        vec![Worker::new("blob-collect", self.0.config.collect_every.get(), run)]
    }

    /// Deletes a blob's bytes. A root that fails must not keep the others from being cleaned.
    async fn delete_bytes(&self, blob: &Condemned, done: &mut Collected) -> bool {
        let removed = match self.root(&blob.root) {
            Ok(root) => {
                let location = root.location(blob.tenant, blob.id);
                root.remove(&location, blob.upload.as_deref()).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &removed {
            tracing::warn!(blob = %blob.id, error = error.chain(), "a blob could not be deleted");
            done.left += 1;
        }
        removed.is_ok()
    }
}

impl Inner {
    async fn condemn_all(&self) -> Result<()> {
        let (uploads, unused) = (self.config.upload_grace.get(), self.config.unused_grace.get());
        let limit = self.config.collect_batch;
        loop {
            let condemned = self.db.write(move |tx| {
                let now = tx.now();
                row::condemn(tx, now - uploads, now - unused, limit)
            });
            if condemned.await? == 0 {
                return Ok(());
            }
        }
    }
}
