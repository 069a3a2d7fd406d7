//! Root keys: what wraps now, rotation, and the rewrapping that follows it.

use std::time::Duration;

use falaj_base::{Name, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::row::{self, KeyRow};
use super::{Keys, manager};
use crate::worker::Worker;

/// The rewrapping is looked after this often, also when no rotation woke it: a server may have
/// stopped in the middle of one.
const REWRAP_EVERY: Duration = Duration::from_mins(5);

/// The root key of one zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RootInfo {
    pub zone: Name,
    /// The version that wraps now, for example `local:3`.
    pub current: String,
    /// How many data keys an older version still wraps; 0 once a rotation is through.
    pub keys_behind: u64,
}

impl Keys {
    /// The root keys of all zones.
    pub async fn roots(&self) -> Result<Vec<RootInfo>> {
        let mut roots = Vec::new();
        for zone in self.0.managers.keys() {
            roots.push(self.root(zone).await?);
        }
        Ok(roots)
    }

    /// Makes a new root key version; the worker rewraps the data keys from here on.
    pub async fn rotate_root(&self, zone: &Name) -> Result<RootInfo> {
        manager(&self.0.managers, zone)?.rotate().await?;
        self.0.rewrap_now.notify_one();
        self.root(zone).await
    }

    /// Rewraps some keys that an older root version still wraps; tells how many. Safe to stop and
    /// to repeat: each key is replaced only if it is still wrapped as it was read.
    pub async fn rewrap_some(&self) -> Result<usize> {
        let mut done = 0;
        for (zone, manager) in &self.0.managers {
            let current = manager.current().await?;
            let (zone, limit) = (zone.clone(), self.0.rewrap_batch);
            let rows = self.0.db.read(move |tx| row::behind(tx, &zone, &current, limit)).await?;
            for row in rows {
                self.rewrap(row).await?;
                done += 1;
            }
        }
        Ok(done)
    }

    /// The worker that brings every data key under the current root key.
    #[must_use]
    pub fn workers(&self) -> Vec<Worker> {
        let keys = self.clone();
        let run = move || {
            let keys = keys.clone();
            async move {
                while keys.rewrap_some().await? > 0 {}
                Ok(())
            }
        };
        let worker = Worker::new("key-rewrap", REWRAP_EVERY, run);
        vec![worker.woken_by(self.0.rewrap_now.clone())]
    }

    async fn root(&self, zone: &Name) -> Result<RootInfo> {
        let current = manager(&self.0.managers, zone)?.current().await?;
        let (wanted, version) = (zone.clone(), current.clone());
        let count = move |tx: &mut crate::db::Tx<'_>| row::count_behind(tx, &wanted, &version);
        let keys_behind = self.0.db.read(count).await?;
        Ok(RootInfo { zone: zone.clone(), current: current.to_string(), keys_behind })
    }

    async fn rewrap(&self, row: KeyRow) -> Result<()> {
        let old = row.wrapped()?.clone();
        let new = manager(&self.0.managers, &row.info.zone)?.rewrap(&row.name(), &old).await?;
        let id = row.info.id;
        self.0.db.write(move |tx| row::rewrapped(tx, id, &old, &new)).await.map(drop)
    }
}
