//! Asking for an erasure, and seeing what became of it.

use aws_lc_rs::digest::{SHA256, digest};
use falaj_base::{Ctx, Error, Resource, Result, hex};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::{Map, Value, json};

use super::erasure::{Erasure, ErasureId, ErasureState, Report};
use super::store;
use super::target::{Target, join_keys, sources, targets};
use crate::definition::form::Noun;
use crate::definition::{resource, shown};
use crate::name::FeatureName;
use crate::{FEATURE_ERASE, FEATURE_READ, Features};

impl Features {
    /// Erases the rows of an entity, everywhere that we keep them. The reply comes when it is done.
    pub(crate) async fn erase(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        keys: Map<String, Value>,
    ) -> Result<Erasure> {
        let missing = || Error::not_found("feature", format!("{} {name}", Noun::Entity));
        let entity = FeatureName::new(name).map_err(|_| missing())?;
        let catalog = self.catalog(project.id).await?;
        let known = catalog.get(Noun::Entity, &entity);
        let own = match known {
            Some(known) => known.resource(project),
            None => resource(project, Noun::Entity, &entity, true),
        };
        ctx.authorize(&FEATURE_ERASE, &own).await?;
        let known =
            known.ok_or_else(|| Error::not_found("feature", shown(Noun::Entity, &entity)))?;
        check(&join_keys(&known.definition).ok_or_else(missing)?, &keys)?;
        let (id, of, given) = (project.id, entity.clone(), keys.clone());
        let found = self.db().read(move |tx| targets(tx, id, &of, &given)).await?;
        for target in &found {
            let latest = catalog.view(target.view.name());
            let view = latest.as_ref().unwrap_or(&target.view);
            ctx.authorize(&FEATURE_ERASE, &view.resource(project)).await?;
        }
        let erasure = Erasure {
            id: ErasureId::new(),
            entity,
            state: ErasureState::Running,
            report: Report { views: views(&found), sources: sources(&found), ..Report::default() },
            at: self.db().now(),
            created_by: ctx.principal.name.clone(),
            finished_at: None,
            project: project.id,
            keys: Some(keys),
        };
        let (id, by) = (erasure.id, ctx.clone());
        let write = move |tx: &mut Tx<'_>| put(tx, &by, &own, erasure);
        self.db().write(write).await?;
        let ours = self.clone();
        // Should whoever asks go away, it is done all the same.
        let run = tokio::spawn(async move { ours.run_erasure(id).await });
        run.await.map_err(Error::internal)??;
        self.erasure(id).await
    }

    pub(super) async fn erasure(&self, id: ErasureId) -> Result<Erasure> {
        let found = self.db().read(move |tx| store::find(tx, id)).await?;
        found.ok_or_else(|| Error::not_found("erasure", id))
    }

    /// An erasure of the project whose entity the caller may read; *not there* otherwise.
    pub(super) async fn visible_erasure(
        &self,
        ctx: &Ctx,
        project: &Project,
        text: &str,
    ) -> Result<Erasure> {
        let missing = || Error::not_found("erasure", text);
        let found = match text.parse::<ErasureId>() {
            Ok(id) => self.db().read(move |tx| store::find(tx, id)).await?,
            Err(_) => None,
        };
        let Some(found) = found.filter(|it| it.project == project.id) else {
            let absent = Resource::absent("feature", text, project.scope());
            ctx.authorize(&FEATURE_READ, &absent.with(project.attributes())).await?;
            return Err(missing());
        };
        let own = resource(project, Noun::Entity, &found.entity, false);
        ctx.authorize(&FEATURE_READ, &own)
            .await
            .map_err(|error| if error.kind().is_ours() { error } else { missing() })?;
        Ok(found)
    }
}

fn views(targets: &[Target]) -> Vec<FeatureName> {
    let mut names: Vec<_> = targets.iter().map(|target| target.view.name().clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Refuses keys that are not those of the entity, each with a value that it can have.
fn check(wanted: &[(String, falaj_online::Kind)], keys: &Map<String, Value>) -> Result<()> {
    for (name, kind) in wanted {
        let field = || format!("keys.{name}");
        let Some(value) = keys.get(name) else {
            return Err(Error::invalid(
                field(),
                "absent",
                "a value: it is a join key of the entity",
            ));
        };
        if *value == Value::Null {
            return Err(Error::invalid(field(), "null", format!("a value of the type {kind}")));
        }
        kind.read(value, field)?;
    }
    if let Some(other) = keys.keys().find(|name| !wanted.iter().any(|(it, _)| it == *name)) {
        let names: Vec<_> = wanted.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Error::invalid(format!("keys.{other}"), "unknown", names.join(", ")));
    }
    Ok(())
}

/// Puts down what is to be erased. On record is who asked for which entity, and the SHA-256 of its
/// keys: the keys themselves are what is to be forgotten.
fn put(tx: &mut Tx<'_>, ctx: &Ctx, resource: &Resource, mut erasure: Erasure) -> Result<()> {
    erasure.at = tx.now();
    store::insert(tx, &erasure)?;
    let keys = serde_json::to_vec(&erasure.keys).map_err(Error::internal)?;
    let keys = hex(digest(&SHA256, &keys).as_ref());
    let told = json!({ "id": erasure.id, "entity": erasure.entity, "views": erasure.report.views });
    let change = Change::new(&FEATURE_ERASE, resource)
        .event("feature.erased", &told)
        .detail("erasure", erasure.id)
        .detail("keys_sha256", keys)
        .reply(200, &erasure);
    tx.record(ctx, change)
}
