//! From what was asked for to what runs.

use falaj_base::{Ctx, Result, Timestamp};
use falaj_governance::tenancy::Project;
use falaj_registry::model::RegisteredId;
use falaj_registry::version::Version;

use super::endpoint::Running;
use super::key::{Target, key_of};
use super::spec::{Spec, Variant};
use crate::Serving;
use crate::remote::Remote;

impl Serving {
    /// The version that a variant means now, as far as the caller may see it.
    pub(super) async fn meant(
        &self,
        ctx: &Ctx,
        project: &Project,
        variant: &Variant,
    ) -> Result<Version> {
        let registry = self.registry();
        match (variant.version, &variant.alias) {
            (Some(number), _) => registry.version(ctx, project, &variant.model, number).await,
            (None, alias) => {
                let alias = alias.clone().unwrap_or_else(|| "latest".to_owned());
                registry.version_by_alias(ctx, project, &variant.model, alias).await
            }
        }
    }

    /// What a variant would run, once it is known to run: servable, loaded here and as it was when
    /// it was registered.
    pub(super) async fn proven(
        &self,
        ctx: &Ctx,
        project: &Project,
        spec: &Spec,
        variant: &Variant,
        now: Timestamp,
    ) -> Result<Running> {
        if let Some(remote) = &variant.remote {
            return self.reached(project, spec, variant, remote, now).await;
        }
        let version = self.meant(ctx, project, variant).await?;
        let profile = self.servable(ctx, project, &version).await?;
        let running = Running {
            variant: variant.name.clone(),
            model: version.model(),
            version: version.number,
            remote: None,
            batches: profile.batches() || spec.runs.batch.even_if_answers_change,
            since: now,
            share: None,
            columns: profile.columns,
            held_back: None,
        };
        let target = Target::running(project.id, &running, &spec.runs, None);
        self.fleet().model(&key_of(&target)?).await?;
        Ok(running)
    }

    /// What a variant on another server would run, once that server told what it takes and gives.
    async fn reached(
        &self,
        project: &Project,
        spec: &Spec,
        variant: &Variant,
        remote: &Remote,
        now: Timestamp,
    ) -> Result<Running> {
        let running = Running {
            variant: variant.name.clone(),
            model: RegisteredId::NONE,
            version: 0,
            remote: Some(remote.version()),
            batches: false,
            since: now,
            share: None,
            columns: Vec::new(),
            held_back: None,
        };
        let target = Target::running(project.id, &running, &spec.runs, Some(remote));
        self.fleet().model(&key_of(&target)?).await?;
        Ok(running)
    }
}
