//! The configured roots, opened when they are first needed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use falaj_base::{Error, Name, Result};
use falaj_governance::tenancy::Project;
use falaj_lake::{Bucket, Folder, Hashes, Place};
use falaj_store::objects::BucketConfig;

use crate::config::{FeaturesConfig, SourceDatabase, SourceRoot};
use crate::definition::form::{Origin, SourceForm};

/// Places that were opened.
#[derive(Default)]
pub(crate) struct Roots {
    /// Buckets, by the number of their root in the configuration.
    buckets: Mutex<HashMap<usize, Arc<dyn Place>>>,
    /// Of files in folders.
    hashes: Hashes,
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roots").finish_non_exhaustive()
    }
}

impl Roots {
    /// The place of a root. A bucket is kept, with its connections; a folder is looked at anew.
    /// Must be called on the runtime.
    pub(crate) fn place(
        &self,
        config: &FeaturesConfig,
        root: &SourceRoot,
    ) -> Result<Arc<dyn Place>> {
        if root.url.is_empty() {
            let folder = Folder::open(root.name.as_str(), &root.path, self.hashes.clone())?;
            return Ok(Arc::new(folder));
        }
        let number = config.source_roots.iter().position(|it| std::ptr::eq(it, root));
        let lock = || self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = number.and_then(|number| lock().get(&number).cloned()) {
            return Ok(known);
        }
        let bucket = BucketConfig {
            url: root.url.clone(),
            endpoint: root.endpoint.clone(),
            region: root.region.clone(),
            access_key: root.access_key.clone(),
            secret_key: root.secret_key.clone(),
            session_token: root.session_token.clone(),
            allow_http: root.allow_http,
            timeout: config.s3_timeout.get(),
            retries: config.s3_retries,
            retry_for: Some(config.s3_timeout.get().saturating_mul(2)),
            setting: "features.source_roots.url",
        };
        let (store, prefix) = bucket.open()?;
        let opened: Arc<dyn Place> =
            Arc::new(Bucket::new(root.name.as_str(), Arc::new(store), prefix));
        if let Some(number) = number {
            lock().insert(number, opened.clone());
        }
        Ok(opened)
    }
}

/// The root that a path begins with, if sources of the project may read there.
pub(crate) fn root_of<'a>(
    config: &'a FeaturesConfig,
    project: &Project,
    path: &str,
) -> Result<&'a SourceRoot> {
    let name = path.split('/').next().unwrap_or_default();
    let open = |root: &&SourceRoot| {
        root.name.as_str() == name && may(project, &root.tenant, root.project.as_ref())
    };
    config.source_roots.iter().find(open).ok_or_else(|| {
        let roots = config.source_roots.iter().filter(|root| root.tenant == project.tenant);
        let allowed = format!(
            "a path below a root of the project (`features.source_roots`: {})",
            listed(roots.map(|root| root.name.as_str()))
        );
        Error::invalid("path", path, allowed)
    })
}

/// The database of a name, if sources of the project may read there.
pub(crate) fn database_of<'a>(
    config: &'a FeaturesConfig,
    project: &Project,
    name: &str,
) -> Result<&'a SourceDatabase> {
    let open = |it: &&SourceDatabase| {
        it.name.as_str() == name && may(project, &it.tenant, it.project.as_ref())
    };
    config.databases.iter().find(open).ok_or_else(|| {
        let own = config.databases.iter().filter(|it| it.tenant == project.tenant);
        let allowed = format!(
            "a database of the project (`features.databases`: {})",
            listed(own.map(|it| it.name.as_str()))
        );
        Error::invalid("database", name, allowed)
    })
}

/// The zones that the rows of a source lie in, where the configuration tells: of what it names, and of
/// the source with the rows from before.
pub(crate) fn source_zones(
    config: &FeaturesConfig,
    project: &Project,
    source: &SourceForm,
) -> Result<Vec<Name>> {
    let (mut zones, mut next) = (Vec::new(), Some(source));
    while let Some(source) = next {
        zones.extend(match &source.origin {
            Origin::Files { path } | Origin::Delta { path, .. } | Origin::Iceberg { path, .. } => {
                root_of(config, project, path)?.zone.clone()
            }
            Origin::Postgres { database, .. } => {
                database_of(config, project, database)?.zone.clone()
            }
            _ => None,
        });
        next = source.origin.batch();
    }
    Ok(zones)
}

fn may(project: &Project, tenant: &Name, only: Option<&Name>) -> bool {
    *tenant == project.tenant && only.is_none_or(|only| *only == project.name)
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
