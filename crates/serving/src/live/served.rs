//! An endpoint, ready to answer.

use std::sync::Arc;

use falaj_base::{Error, Name, Resource, Result};
use falaj_governance::tenancy::Project;

use crate::endpoint::{Endpoint, Running, Target, key_of};
use crate::runtime::ModelKey;
use crate::traffic::split::{Split, Weight};

/// What answers under one name.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) name: String,
    /// What a request is authorised on.
    pub(crate) resource: Resource,
    pub(crate) arms: Vec<Arm>,
    pub(crate) paused: bool,
    /// The share of requests that are kept.
    pub(crate) log: f64,
    /// What the choice of a variant by key is salted with: the endpoint, not its revision, so that
    /// a key stays where it is.
    salt: String,
    split: Split,
}

/// One of those who answer.
#[derive(Clone, Debug)]
pub(crate) struct Arm {
    pub(crate) variant: Name,
    /// The version, as clients read it.
    pub(crate) version: Arc<str>,
    pub(crate) key: ModelKey,
    pub(crate) weight: f64,
    /// What the columns of a frame are called, in the model's order, if its signature says so.
    pub(crate) columns: Arc<[String]>,
}

impl Served {
    pub(crate) fn new(project: &Project, endpoint: &Endpoint) -> Result<Self> {
        let arms = endpoint.arms(project)?;
        let weights =
            arms.iter().map(|arm| Weight { variant: arm.variant.clone(), weight: arm.weight });
        Ok(Self {
            split: Split::new(weights.collect())?,
            salt: endpoint.id.to_string(),
            name: endpoint.name.to_string(),
            resource: endpoint.resource(project),
            paused: endpoint.paused,
            log: endpoint.spec.log,
            arms,
        })
    }

    /// Who answers: the version asked for, or by key, or by chance.
    pub(crate) fn choose(
        &self,
        version: Option<&str>,
        key: Option<&str>,
        drawn: f64,
    ) -> Result<&Arm> {
        if self.paused {
            let text = format!("the endpoint {} is unloaded", self.name);
            return Err(Error::new(&falaj_base::code::UNAVAILABLE, text));
        }
        if let Some(version) = version {
            return self.version(version);
        }
        if let [only] = self.arms.as_slice() {
            return Ok(only);
        }
        let chosen = self.split.pick(&self.salt, key, drawn);
        self.arms
            .iter()
            .find(|arm| arm.variant == *chosen)
            .ok_or_else(|| Error::internal("a variant that no one serves"))
    }

    /// The variant that serves a version.
    pub(crate) fn version(&self, version: &str) -> Result<&Arm> {
        let found = self.arms.iter().find(|arm| *arm.version == *version);
        found.ok_or_else(|| {
            Error::not_found("version", format!("{version} of the endpoint {}", self.name))
        })
    }
}

impl Endpoint {
    /// What its variants run.
    pub(crate) fn arms(&self, project: &Project) -> Result<Vec<Arm>> {
        let arm = |running: &Running| {
            let target = Target {
                project: project.id,
                model: running.model,
                version: running.version,
                batches: running.batches,
                runs: self.spec.runs.clone(),
            };
            let variant = self.variant(&running.variant);
            Ok(Arm {
                variant: running.variant.clone(),
                version: running.version.to_string().into(),
                key: key_of(&target)?,
                weight: variant.map_or(0.0, |variant| variant.weight),
                columns: running.columns.clone().into(),
            })
        };
        self.running.iter().map(arm).collect()
    }
}
