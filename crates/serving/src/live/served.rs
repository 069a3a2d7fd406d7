//! An endpoint, ready to answer.

use std::sync::Arc;

use falaj_base::{EndpointId, Error, Name, Resource, Result, Scope};
use falaj_governance::tenancy::Project;

use crate::endpoint::{Endpoint, Running, Target, key_of};
use crate::predictions::Home;
use crate::rate::Rate;
use crate::rollout::Watched;
use crate::runtime::ModelKey;
use crate::traffic::split::{Split, Weight};

/// What answers under one name.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) name: String,
    /// What a request is authorised on.
    pub(crate) resource: Resource,
    pub(crate) arms: Vec<Arm>,
    pub(crate) paused: bool,
    /// The share of requests that are kept, and whose they are.
    pub(crate) log: Option<(f64, Arc<Home>)>,
    /// How often one caller may ask, and what that is counted under.
    pub(crate) rate: Option<(EndpointId, Rate)>,
    /// Where it is noted what variants do, if something follows from it.
    pub(crate) watched: Option<Arc<Watched>>,
    /// Places of the arms that requests are repeated to, and the share of them.
    pub(crate) shadows: Vec<(usize, f64)>,
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
    pub(crate) fn new(
        project: &Project,
        endpoint: &Endpoint,
        watched: Option<Arc<Watched>>,
    ) -> Result<Self> {
        let arms = endpoint.arms(project)?;
        let shadow =
            |(place, arm): (usize, &Arm)| Some((place, endpoint.variant(&arm.variant)?.shadow?));
        Ok(Self {
            split: Self::split(&arms)?,
            salt: endpoint.id.to_string(),
            name: endpoint.name.to_string(),
            resource: endpoint.resource(project),
            paused: endpoint.paused,
            rate: endpoint.spec.rate.map(|rate| (endpoint.id, rate)),
            log: (endpoint.spec.log > 0.0)
                .then(|| (endpoint.spec.log, Arc::new(endpoint.home(project)))),
            shadows: arms.iter().enumerate().filter_map(shadow).collect(),
            watched,
            arms,
        })
    }

    /// The same where nothing is authorised by name and nothing kept: at the edge.
    pub(crate) fn alone(name: String, arms: Vec<Arm>) -> Result<Self> {
        Ok(Self {
            split: Self::split(&arms)?,
            salt: name.clone(),
            resource: Resource::new("endpoint", &name, Scope::Platform),
            name,
            paused: false,
            log: None,
            rate: None,
            watched: None,
            shadows: Vec::new(),
            arms,
        })
    }

    /// The same, answering or not.
    pub(crate) fn paused(mut self, paused: bool) -> Self {
        self.paused = paused;
        self
    }

    fn split(arms: &[Arm]) -> Result<Split> {
        let weight = |arm: &Arm| Weight { variant: arm.variant.clone(), weight: arm.weight };
        Split::new(arms.iter().map(weight).collect())
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
        found.ok_or_else(|| Error::not_found("version", version))
    }
}

impl Endpoint {
    /// Whose its predictions are.
    pub(crate) fn home(&self, project: &Project) -> Home {
        Home {
            tenant: project.tenant_id,
            project: project.id,
            zone: project.zone.clone(),
            endpoint: self.id,
            resource: self.resource(project),
        }
    }

    /// What its variants run.
    pub(crate) fn arms(&self, project: &Project) -> Result<Vec<Arm>> {
        let shares = self.shares();
        let arm = |running: &Running| {
            let remote = self.variant(&running.variant).and_then(|variant| variant.remote.as_ref());
            let target = Target::running(project.id, running, &self.spec.runs, remote);
            let share = shares.iter().find(|(name, _)| *name == running.variant);
            Ok(Arm {
                variant: running.variant.clone(),
                version: running.version().into(),
                key: key_of(&target)?,
                weight: share.map_or(0.0, |(_, share)| *share),
                columns: running.columns.clone().into(),
            })
        };
        self.running.iter().map(arm).collect()
    }
}
