//! What a variant runs, as the key that the runtime knows it by.
//!
//! The key says everything that matters: the content and how it runs. So the same version under the
//! same settings is loaded once, however many endpoints serve it, and a change of either is another
//! model, which is loaded before the old one goes.

use falaj_base::{Error, ProjectId, Result};
use falaj_registry::model::RegisteredId;
use serde::{Deserialize, Serialize};

use super::endpoint::Running;
use super::spec::Runs;
use crate::remote::Remote;
use crate::runtime::ModelKey;

/// What a key stands for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) project: ProjectId,
    pub(crate) model: RegisteredId,
    pub(crate) version: i64,
    pub(crate) batches: bool,
    pub(crate) runs: Runs,
    /// What another server computes, in place of a version of a registered model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<Remote>,
}

pub(crate) fn key_of(target: &Target) -> Result<ModelKey> {
    serde_json::to_string(target).map(ModelKey::new).map_err(Error::internal)
}

impl Target {
    /// What a variant runs.
    pub(crate) fn running(
        project: ProjectId,
        running: &Running,
        runs: &Runs,
        remote: Option<&Remote>,
    ) -> Self {
        Self {
            project,
            model: running.model,
            version: running.version,
            batches: running.batches,
            runs: runs.clone(),
            remote: remote.cloned(),
        }
    }

    pub(crate) fn of(key: &ModelKey) -> Result<Self> {
        serde_json::from_str(key.as_str()).map_err(Error::internal)
    }
}
