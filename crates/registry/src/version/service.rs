//! The verbs on versions.

use falaj_base::{Action, Ctx, Result};
use falaj_governance::tenancy::Project;
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_tracking::logged_model::note_registration;
use falaj_tracking::purge::pin;
use serde_json::json;

use super::stage::Stage;
use super::store;
use super::version::Version;
use crate::access::{Act, no_model, no_version};
use crate::evidence::store as evidence;
use crate::history::{Kind, Move, store as history};
use crate::model::{Model, store as models};
use crate::tag::check_text;
use crate::transfer::Claim;
use crate::webhook::{Told, tell, version_created};
use crate::{MODEL_DELETE, MODEL_READ, MODEL_UNTAG, MODEL_WRITE, Registry};

/// What is needed to make one. A run or model id that is absent is something else than an empty
/// one: see [`Registry::create_version`].
#[derive(Clone, Debug, Default)]
pub struct NewVersion {
    pub name: String,
    pub source: String,
    pub run_id: Option<String>,
    pub model_id: Option<String>,
    pub run_link: String,
    pub description: String,
    pub tags: Vec<(String, String)>,
}

impl Registry {
    /// Registers a version. Where its source is another version, an absent run or model id is
    /// taken over from there, and one that is given must be the same.
    pub async fn create_version(&self, call: &Call, new: NewVersion) -> Result<Version> {
        self.register(call, new, None).await
    }

    /// The same of a version that another store has, which becomes one here only once.
    pub(crate) async fn register(
        &self,
        call: &Call,
        mut new: NewVersion,
        claim: Option<Claim>,
    ) -> Result<Version> {
        let config = self.config();
        check_text("source", &new.source, config.max_source)?;
        check_text("run_link", &new.run_link, config.max_source)?;
        check_text("description", &new.description, config.max_description)?;
        check_text("run_id", new.run_id.as_deref().unwrap_or(""), 256)?;
        new.tags = config.check_tags(new.tags)?;
        let origin = self.origin(call, &new).await?;
        let (most, most_told) = (config.max_signed_files, config.webhooks.room());
        let (name, project) = (new.name.clone(), call.place.id);
        let gone = name.clone();
        let not_there = move || no_model(&gone);
        let add = move |tx: &mut Tx<'_>, model: &Model, act: &Act| {
            // What it refers to is there, and stays from now on.
            pin(tx, project, origin.files.as_deref())?;
            let version = Version {
                model: model.id,
                name: model.name.clone(),
                number: models::next_version(tx, model, act.now)?,
                description: Some(new.description),
                stage: Stage::None,
                source: origin.source,
                location: origin.location,
                files: origin.files,
                run_id: origin.run_id,
                run_link: new.run_link,
                logged_model: origin.logged_model,
                created_by: act.ctx.principal.name.clone(),
                created_at: act.now,
                updated_at: act.now,
                tags: new.tags,
                aliases: Vec::new(),
            };
            if let Some(claim) = claim {
                claim.take(tx, project, model, version.number)?;
            }
            store::insert(tx, &version)?;
            if let Some(folder) = &version.files {
                let run = origin.seen_run.as_deref();
                let of = (version.model, version.number);
                evidence::pin(tx, (project, folder), of, run, most)?;
            }
            if let Some(model) = origin.noted {
                note_registration(tx, model, &version.name, version.number)?;
            }
            let data = version.shown();
            let change = act
                .change()
                .event("model-version.created", &data)
                .after(&json!({ "version": data, "tags": version.tags }))
                .detail("version", version.number);
            act.record(tx, change)?;
            tell(tx, (project, version.model), Told::VersionCreated, most_told, |prompt| {
                version_created(&version, prompt)
            })?;
            store::find(tx, project, &version.name, version.number)?
                .ok_or_else(|| no_version(&version.name, version.number))
        };
        let whose = (&call.ctx, &*call.place);
        let made = self.change(whose, &name, &MODEL_WRITE, not_there, add).await?;
        if made.files.is_some() {
            self.wake();
        }
        Ok(made)
    }

    pub async fn version(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        number: i64,
    ) -> Result<Version> {
        let not_there = || no_version(name, number);
        self.seen(ctx, project, name, &MODEL_READ, not_there).await?;
        let (project, wanted) = (project.id, name.to_owned());
        let found = self.db().read(move |tx| store::find(tx, project, &wanted, number)).await?;
        found.ok_or_else(not_there)
    }

    /// The newest version of each of these stages; of every stage if there are none.
    pub async fn latest_versions(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        stages: &[Stage],
    ) -> Result<Vec<Version>> {
        let mut latest = self.model(ctx, project, name).await?.latest;
        latest.retain(|version| stages.is_empty() || stages.contains(&version.stage));
        Ok(latest)
    }

    /// An update without a description removes it, as in MLflow.
    pub async fn describe_version(
        &self,
        ctx: &Ctx,
        project: &Project,
        (name, number): (&str, i64),
        description: Option<String>,
    ) -> Result<Version> {
        let most = self.config().max_description;
        check_text("description", description.as_deref().unwrap_or(""), most)?;
        let id = project.id;
        let change = move |tx: &mut Tx<'_>, old: &Version, act: &Act| {
            store::describe(tx, (old.model, old.number), description.as_deref(), act.now)?;
            let new = store::find(tx, id, &old.name, old.number)?;
            let new = new.ok_or_else(|| no_version(&old.name, old.number))?;
            let change = act
                .change()
                .event("model-version.updated", &new.shown())
                .before(&old.description)
                .after(&new.description)
                .detail("version", new.number);
            act.record(tx, change)?;
            Ok(new)
        };
        self.change_version((ctx, project), name, number, &MODEL_WRITE, change).await
    }

    /// For good, with its aliases. Its number is not given again.
    pub async fn delete_version(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        number: i64,
    ) -> Result<()> {
        let (id, registry) = (project.id, self.clone());
        let change = move |tx: &mut Tx<'_>, old: &Version, act: &Act| {
            registry.check_unused(tx, id, old.model, Some(old.number))?;
            let number = old.number.to_string();
            for alias in &old.aliases {
                let made = Move::new(Kind::Alias, alias, Some(&number), None);
                history::append(tx, id, old.model, act, &made)?;
            }
            store::delete(tx, old.model, old.number)?;
            models::touch(tx, old.model, act.now)?;
            let mut data = old.shown();
            data["aliases"] = json!(old.aliases);
            let change = act
                .change()
                .event("model-version.deleted", &data)
                .before(&data)
                .detail("version", old.number);
            act.record(tx, change)
        };
        self.change_version((ctx, project), name, number, &MODEL_DELETE, change).await
    }

    pub async fn tag_version(
        &self,
        ctx: &Ctx,
        project: &Project,
        version: (&str, i64),
        (key, value): (String, String),
    ) -> Result<()> {
        self.config().check_tag(&key, &value)?;
        self.change_version_tag(ctx, project, version, key, Some(value)).await
    }

    /// A tag that is not there is deleted already.
    pub async fn untag_version(
        &self,
        ctx: &Ctx,
        project: &Project,
        version: (&str, i64),
        key: String,
    ) -> Result<()> {
        self.config().check_tag(&key, "")?;
        self.change_version_tag(ctx, project, version, key, None).await
    }

    async fn change_version_tag(
        &self,
        ctx: &Ctx,
        project: &Project,
        (name, number): (&str, i64),
        key: String,
        value: Option<String>,
    ) -> Result<()> {
        let (id, most) = (project.id, self.config().webhooks.room());
        let action = if value.is_some() { &MODEL_WRITE } else { &MODEL_UNTAG };
        let change = move |tx: &mut Tx<'_>, version: &Version, act: &Act| {
            let of = (version.model, version.number);
            let old = store::tag(tx, of, &key)?;
            let told = if value.is_some() { Told::VersionTagSet } else { Told::VersionTagDeleted };
            tell(tx, (id, version.model), told, most, |_| {
                let number = version.number.to_string();
                match &value {
                    Some(value) => json!({
                        "name": version.name, "version": number, "key": key, "value": value,
                    }),
                    None => json!({ "name": version.name, "version": number, "key": key }),
                }
            })?;
            match &value {
                Some(value) => store::set_tag(tx, of, &key, value)?,
                None => store::delete_tag(tx, of, &key)?,
            }
            let data = json!({
                "name": version.name,
                "version": version.number.to_string(),
                "tag": key,
                "removed": value.is_none(),
            });
            let change = act
                .change()
                .event("model-version.updated", &data)
                .before(&old)
                .after(&value)
                .detail("version", version.number)
                .detail("tag", &key);
            act.record(tx, change)
        };
        self.change_version((ctx, project), name, number, action, change).await
    }

    /// One change of one version, read again inside its transaction.
    pub(crate) async fn change_version<T: Send + 'static>(
        &self,
        (ctx, project): (&Ctx, &Project),
        name: &str,
        number: i64,
        action: &'static Action,
        change: impl FnOnce(&mut Tx<'_>, &Version, &Act) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (id, gone) = (project.id, name.to_owned());
        let not_there = move || no_version(&gone, number);
        let change = move |tx: &mut Tx<'_>, model: &Model, act: &Act| {
            let version = store::find(tx, id, &model.name, number)?;
            change(tx, &version.ok_or_else(|| no_version(&model.name, number))?, act)
        };
        self.change((ctx, project), name, action, not_there, change).await
    }
}
