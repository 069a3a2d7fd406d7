//! Models out of the registry, and those that another server computes.

use falaj_base::{Ctx, Error, Result, code};
use falaj_inference::Limits;
use falaj_registry::Registry;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::config::ServingConfig;
use crate::endpoint::Target;
use crate::profile::{self, Files};
use crate::remote::RemotesConfig;
use crate::runtime::{Fetched, ModelKey, Source};

/// Fetches what an endpoint runs. Who may call the endpoint was decided before.
pub(crate) struct Registered {
    registry: Registry,
    limits: Limits,
    remotes: RemotesConfig,
}

impl Registered {
    pub(crate) fn new(registry: Registry, config: &ServingConfig) -> Self {
        Self { registry, limits: config.model_limits(), remotes: config.remote.clone() }
    }

    async fn fetched(&self, key: &ModelKey) -> Result<Fetched> {
        let target = Target::of(key)?;
        let ctx = Ctx::system("serving");
        let project = self.registry.tenancy().project_by_id(&ctx, target.project).await?;
        if let Some(remote) = &target.remote {
            return Ok(Fetched {
                model: self.remotes.place(remote, &project.tenant).await?.into(),
                golden: None,
                batch_invariant: false,
                settings: target.runs.settings(),
            });
        }
        let version =
            self.registry.version_of(&ctx, &project, target.model, target.version).await?;
        let files = Files::check(&self.registry, &ctx, &project, &version).await?;
        let of = (target.model, target.version);
        let kept = self
            .registry
            .db()
            .read(move |tx| Ok((profile::store::find(tx, of)?, profile::store::golden(tx, of)?)))
            .await?;
        let changed = || {
            let (number, name) = (version.number, &version.name);
            let text = format!("the files of version {number} of {name} are not those deployed");
            Error::new(&code::CHANGED, text).at("model")
        };
        let (Some(profile), golden) = kept else { return Err(changed()) };
        let Some(file) =
            profile.file.as_deref().filter(|_| profile.digest.as_deref() == files.digest())
        else {
            return Err(changed());
        };
        Ok(Fetched {
            model: files.load(file, &self.limits).await?.into(),
            golden: golden.map(|kept| profile::decode_golden(&kept)).transpose()?,
            batch_invariant: target.batches,
            settings: target.runs.settings(),
        })
    }
}

impl Source for Registered {
    fn fetch<'a>(&'a self, key: &'a ModelKey) -> BoxFuture<'a, Result<Fetched>> {
        self.fetched(key).boxed()
    }
}
