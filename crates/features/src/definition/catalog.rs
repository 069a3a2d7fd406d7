//! The latest definitions of a project in memory, for those who look them up with every request.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use falaj_base::{ProjectId, Result};
use falaj_governance::epoch::Epoch;
use falaj_store::db::Db;

use super::definition::{Definition, ViewVersion};
use super::form::Noun;
use super::store;
use crate::name::FeatureName;

/// How many projects are remembered.
const REMEMBERED: usize = 1000;

/// The latest definitions of one project.
#[derive(Debug)]
pub struct Catalog {
    all: BTreeMap<(Noun, FeatureName), Arc<Definition>>,
    /// The epoch it was read under.
    epoch: u64,
}

impl Catalog {
    #[must_use]
    pub fn get(&self, noun: Noun, name: &FeatureName) -> Option<&Arc<Definition>> {
        self.all.get(&(noun, name.clone()))
    }

    #[must_use]
    pub fn view(&self, name: &FeatureName) -> Option<ViewVersion> {
        self.get(Noun::View, name).and_then(ViewVersion::of)
    }

    /// All views, by name.
    pub fn views(&self) -> impl Iterator<Item = ViewVersion> {
        self.all.values().filter_map(ViewVersion::of)
    }

    /// All definitions, by kind and name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.all.values()
    }

    /// Differs whenever the definitions may.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Catalogs, each until something is applied.
#[derive(Clone, Debug)]
pub(crate) struct Catalogs {
    db: Db,
    epoch: Epoch,
    known: Arc<RwLock<HashMap<ProjectId, Arc<Catalog>>>>,
}

impl Catalogs {
    pub(crate) fn new(db: Db) -> Self {
        let epoch = Epoch::of_row(db.clone(), store::EPOCH);
        Self { db, epoch, known: Arc::default() }
    }

    pub(crate) fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    pub(crate) async fn of(&self, project: ProjectId) -> Result<Arc<Catalog>> {
        let epoch = self.epoch.current();
        let known =
            self.known.read().unwrap_or_else(PoisonError::into_inner).get(&project).cloned();
        if let Some(catalog) = known.filter(|catalog| catalog.epoch == epoch) {
            return Ok(catalog);
        }
        self.renewed(project).await
    }

    /// The same as it is in the database: another server may have applied something that this one
    /// has not heard of.
    pub(crate) async fn renewed(&self, project: ProjectId) -> Result<Arc<Catalog>> {
        let epoch = self.epoch.current();
        let found = self.db.read(move |tx| store::latest(tx, project)).await?;
        let all = found.into_iter().map(|it| ((it.kind, it.name.clone()), it)).collect();
        let catalog = Arc::new(Catalog { all, epoch });
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(project, catalog.clone());
        Ok(catalog)
    }
}
