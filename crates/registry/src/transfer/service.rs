//! Taking models in.

use std::collections::HashMap;

use falaj_base::{Error, ProjectId, Resource, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_tracking::purge::pin;
use serde_json::json;

use super::batch::files;
use super::wire::{ModelIn, Models, ModelsHere, VersionIn};
use super::{digest, store};
use crate::access::{Act, lock, resource};
use crate::evidence::store as evidence;
use crate::model::{Model, RegisteredId, store as models};
use crate::tag::is_prompt;
use crate::version::{Stage, Version, store as versions};
use crate::webhook::{Room, Told, created, tell, version_created};
use crate::{MODEL_IMPORT, Registry};

/// How many names one entry of the audit log has.
const NAMED: usize = 100;

/// The runs behind the files of versions, by model and number.
type Runs = HashMap<(String, i64), Option<String>>;

/// A batch on its way in.
struct Arrival {
    project: ProjectId,
    batch: Vec<ModelIn>,
    /// What each model is authorised on.
    resources: Vec<Resource>,
    runs: Runs,
    act: Act,
    /// The most files of a signed version, and the most messages that wait for a webhook.
    most_files: usize,
    most_told: Room,
}

impl Registry {
    pub(super) async fn import_models(&self, call: &Call, batch: Models) -> Result<ModelsHere> {
        self.check_batch(&batch.models)?;
        let place = &call.place;
        let whole = place.resource();
        call.ctx.authorize(&MODEL_IMPORT, &whole).await?;
        let Models { mut models, dry_run } = batch;
        // In one order, lest two imports wait for each other.
        models.sort_by(|a, b| a.name.cmp(&b.name));
        let (mut resources, mut runs) = (Vec::with_capacity(models.len()), Runs::new());
        for model in &models {
            let resource = resource(place, &model.name, false);
            call.ctx.authorize(&MODEL_IMPORT, &resource).await?;
            resources.push(resource);
            for version in &model.versions {
                let run = self.may_name(call, version).await?;
                runs.insert((model.name.clone(), version.version), run);
            }
        }
        let (ctx, now) = (call.ctx.clone(), self.tracking().now_ms());
        let act = Act { ctx, action: &MODEL_IMPORT, resource: whole, now };
        if dry_run {
            return self.would_import(call, act, &models).await;
        }
        let config = self.config();
        let arrival = Arrival {
            project: place.id,
            batch: models.clone(),
            resources,
            runs,
            act,
            most_files: config.max_signed_files,
            most_told: config.webhooks.room(),
        };
        let new = self.db().write(move |tx| arrival.write(tx)).await?;
        self.wake();
        self.told().notify_one();
        let mut here = Vec::with_capacity(models.len());
        for (model, created) in models.iter().zip(new) {
            let left_out = self.promote(call, model).await?;
            let mut one = self.model_here(call, &model.name, created).await?;
            one.left_out = left_out;
            here.push(one);
        }
        Ok(ModelsHere { models: here })
    }

    /// What is here of the models now. Nothing is written but that it was asked.
    async fn would_import(&self, call: &Call, act: Act, batch: &[ModelIn]) -> Result<ModelsHere> {
        let mut here = Vec::with_capacity(batch.len());
        for model in batch {
            let (project, name, at) = (call.place.id, model.name.clone(), model.created_at);
            let created =
                self.db().read(move |tx| Ok(known(tx, project, &name, at)?.is_none())).await?;
            here.push(self.model_here(call, &model.name, created).await?);
        }
        let count = here.len();
        let record = move |tx: &mut Tx<'_>| act.record(tx, act.change().detail("dry_run", count));
        self.db().write(record).await?;
        Ok(ModelsHere { models: here })
    }

    async fn model_here(
        &self,
        call: &Call,
        name: &str,
        created: bool,
    ) -> Result<super::wire::ModelHere> {
        let (project, name) = (call.place.id, name.to_owned());
        self.db().read(move |tx| digest::of_model(tx, project, &name, created)).await
    }
}

/// The model of this name, if it is the one that comes; another one is in the way.
fn known(
    tx: &mut Tx<'_>,
    project: ProjectId,
    name: &str,
    created_at: i64,
) -> Result<Option<Model>> {
    let there = models::head(tx, project, name)?;
    if there.as_ref().is_some_and(|there| there.created_at != created_at) {
        let text = format!("the project has another registered model named '{name}'");
        return Err(Error::new(&code::ALREADY_EXISTS, text).at("name"));
    }
    Ok(there)
}

impl Arrival {
    /// Writes models and versions, but no alias and no stage. Tells which models are new.
    fn write(&self, tx: &mut Tx<'_>) -> Result<Vec<bool>> {
        for model in &self.batch {
            tx.lock(&lock(self.project, &model.name))?;
        }
        let mut new = Vec::with_capacity(self.batch.len());
        for (model, resource) in self.batch.iter().zip(&self.resources) {
            let act = Act {
                ctx: self.act.ctx.clone(),
                action: self.act.action,
                resource: resource.clone(),
                now: self.act.now,
            };
            new.push(self.model(tx, model, &act)?);
        }
        let names: Vec<&str> = self.batch.iter().map(|model| model.name.as_str()).collect();
        let parts = if names.is_empty() { vec![&names[..]] } else { names.chunks(NAMED).collect() };
        for part in parts {
            let change =
                self.act.change().detail("models", part.len()).detail("names", part.join(" "));
            self.act.record(tx, change)?;
        }
        Ok(new)
    }

    fn model(&self, tx: &mut Tx<'_>, from: &ModelIn, act: &Act) -> Result<bool> {
        let there = known(tx, self.project, &from.name, from.created_at)?;
        let is_new = there.is_none();
        let greatest = from.versions.iter().map(|version| version.version).max().unwrap_or(0);
        let model = Model {
            id: there.as_ref().map_or_else(RegisteredId::new, |there| there.id),
            name: from.name.clone(),
            description: from.description.clone(),
            last_version: from.last_version.max(greatest),
            created_at: from.created_at,
            updated_at: from.updated_at,
            tags: from.tags.clone(),
            aliases: Vec::new(),
            latest: Vec::new(),
        };
        if is_new {
            models::insert(tx, self.project, &model)?;
            let data = model.shown();
            let change = act
                .change()
                .event("model.created", &data)
                .after(&json!({ "model": data, "tags": model.tags }))
                .detail("prompt", is_prompt(&model.tags));
            act.record(tx, change)?;
            tell(tx, (self.project, model.id), Told::Created, self.most_told, |prompt| {
                created(&model.name, &model.description, &model.tags, prompt)
            })?;
        } else {
            store::update_model(tx, &model)?;
            let there = there.map(|there| there.description);
            if there.as_ref() != Some(&model.description) {
                let change = act
                    .change()
                    .event("model.updated", &model.shown())
                    .before(&there)
                    .after(&model.description);
                act.record(tx, change)?;
            }
        }
        for version in &from.versions {
            self.version(tx, &model, version, act)?;
        }
        Ok(is_new)
    }

    fn version(&self, tx: &mut Tx<'_>, model: &Model, from: &VersionIn, act: &Act) -> Result<()> {
        let version = Version {
            model: model.id,
            name: model.name.clone(),
            number: from.version,
            description: from.description.clone(),
            // It moves to its stage as any other does.
            stage: Stage::None,
            source: from.source.clone(),
            location: from.location.clone(),
            files: files(&from.location)?,
            run_id: from.run_id.clone(),
            run_link: from.run_link.clone(),
            logged_model: from.logged_model.clone(),
            created_by: from.created_by.clone(),
            created_at: from.created_at,
            updated_at: from.updated_at,
            tags: from.tags.clone(),
            aliases: Vec::new(),
        };
        let old = versions::find(tx, self.project, &model.name, version.number)?;
        let files = old.as_ref().map_or(&version.files, |old| &old.files).clone();
        let change = match &old {
            Some(old) if old.created_at != version.created_at => {
                let text = format!("'{}' has another version {}", model.name, version.number);
                return Err(Error::new(&code::ALREADY_EXISTS, text).at("versions.version"));
            }
            Some(old) => {
                store::update_version(tx, &version)?;
                let changed = old.description != version.description
                    || version.tags.iter().any(|tag| !old.tags.contains(tag));
                changed.then(|| act.change().event("model-version.updated", &version.shown()))
            }
            None => {
                // What it refers to is there, and stays from now on.
                pin(tx, self.project, files.as_deref())?;
                versions::insert(tx, &version)?;
                let data = version.shown();
                let after = json!({ "version": data, "tags": version.tags });
                Some(act.change().event("model-version.created", &data).after(&after))
            }
        };
        let of = (version.model, version.number);
        if let Some(folder) = &files
            && evidence::digest(tx, of)?.is_none()
        {
            let run = self.runs.get(&(model.name.clone(), version.number)).cloned().flatten();
            evidence::pin(tx, (self.project, folder), of, run.as_deref(), self.most_files)?;
        }
        if let Some(change) = change {
            act.record(tx, change.detail("version", version.number))?;
        }
        if old.is_none() {
            let to = (self.project, version.model);
            tell(tx, to, Told::VersionCreated, self.most_told, |prompt| {
                version_created(&version, prompt)
            })?;
        }
        Ok(())
    }
}
