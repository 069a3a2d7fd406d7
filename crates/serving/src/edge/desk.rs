//! A folder of models as a desk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use falaj_base::{Error, Result, Timestamp};
use falaj_inference::Limits as ModelLimits;
use falaj_oip::Limits;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::folder;
use crate::live::Served;
use crate::oip::desk::{Desk, Purpose};
use crate::predictions::Log;
use crate::runtime::{Fetched, Fleet, ModelKey, Settings, Source};

/// What a key stands for here.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) file: PathBuf,
    pub(super) batches: bool,
}

/// Reads models from their files.
pub(super) struct Files {
    pub(super) limits: ModelLimits,
    pub(super) settings: Settings,
}

impl Source for Files {
    fn fetch<'a>(&'a self, key: &'a ModelKey) -> BoxFuture<'a, Result<Fetched>> {
        async move {
            let target: Target = serde_json::from_str(key.as_str()).map_err(Error::internal)?;
            let limits = self.limits.clone();
            let read = tokio::task::spawn_blocking(move || folder::read(&target.file, &limits));
            Ok(Fetched {
                model: read.await.map_err(Error::internal)??.into(),
                golden: None,
                batch_invariant: target.batches,
                settings: self.settings.clone(),
            })
        }
        .boxed()
    }
}

/// The models of a folder. Whoever gets here has shown the token.
pub(super) struct Folder {
    pub(super) served: RwLock<BTreeMap<String, Arc<Served>>>,
    pub(super) fleet: Fleet,
    pub(super) limits: Limits,
}

impl Folder {
    fn find(&self, name: &str) -> Result<Arc<Served>> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.get(name).cloned().ok_or_else(|| Error::not_found("model", name))
    }

    fn pause(&self, name: &str, paused: bool) -> Result<Arc<Served>> {
        let old = self.find(name)?;
        let new = Arc::new(Served::clone(&old).paused(paused));
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        served.insert(name.to_owned(), new);
        Ok(old)
    }
}

impl Desk for Folder {
    fn greet(&self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn may_ask(&self) -> bool {
        true
    }

    fn served<'a>(&'a self, name: &'a str, _: Purpose) -> BoxFuture<'a, Result<Arc<Served>>> {
        async move { self.find(name) }.boxed()
    }

    fn all(&self) -> BoxFuture<'_, Result<Vec<Arc<Served>>>> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = served.values().cloned().collect();
        async move { Ok(all) }.boxed()
    }

    fn load<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        async move {
            for arm in &self.find(name)?.arms {
                self.fleet.model(&arm.key).await?;
            }
            self.pause(name, false).map(drop)
        }
        .boxed()
    }

    fn unload<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        async move {
            for arm in &self.pause(name, true)?.arms {
                self.fleet.unload(&arm.key).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn log(&self) -> Option<(&Log, Timestamp)> {
        None
    }
}
