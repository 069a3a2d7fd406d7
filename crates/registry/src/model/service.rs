//! The verbs on models.

use falaj_base::{Action, Ctx, Error, Resource, Result, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::id::RegisteredId;
use super::model::{Model, check_name};
use super::store;
use crate::access::{Act, lock, no_model, resource, shown};
use crate::tag::{IS_PROMPT, check_text, is_prompt};
use crate::webhook::{Told, created, tell};
use crate::{MODEL_DELETE, MODEL_READ, MODEL_RENAME, MODEL_UNTAG, MODEL_WRITE, Registry};

/// What is needed to make one.
#[derive(Clone, Debug, Default)]
pub struct NewModel {
    pub name: String,
    pub description: String,
    pub tags: Vec<(String, String)>,
}

impl Registry {
    pub async fn create_model(&self, ctx: &Ctx, project: &Project, new: NewModel) -> Result<Model> {
        check_name("name", &new.name)?;
        check_text("description", &new.description, self.config().max_description)?;
        let tags = self.config().check_tags(new.tags)?;
        let resource = resource(project, &new.name, false);
        ctx.authorize(&MODEL_WRITE, &resource).await?;
        let (ctx, project, now) = (ctx.clone(), project.id, self.tracking().now_ms());
        let model = Model {
            id: RegisteredId::new(),
            name: new.name,
            description: new.description,
            last_version: 0,
            created_at: now,
            updated_at: now,
            tags,
            aliases: Vec::new(),
            latest: Vec::new(),
        };
        let most = self.config().webhooks.room();
        let made = self
            .db()
            .write(move |tx| {
                tx.lock(&lock(project, &model.name))?;
                if let Some(old) = store::id_of(tx, project, &model.name)? {
                    let old = store::tag(tx, old, IS_PROMPT)?.is_some();
                    let new = model.tags.iter().any(|(key, _)| key == IS_PROMPT);
                    return Err(taken(&model.name, old, new));
                }
                store::insert(tx, project, &model)?;
                let data = model.shown();
                let change = Change::new(&MODEL_WRITE, &resource)
                    .event("model.created", &data)
                    .after(&json!({ "model": data, "tags": model.tags }))
                    .detail("prompt", is_prompt(&model.tags));
                tx.record(&ctx, change)?;
                tell(tx, (project, model.id), Told::Created, most, |prompt| {
                    created(&model.name, &model.description, &model.tags, prompt)
                })?;
                Ok(model)
            })
            .await?;
        self.told().notify_one();
        Ok(made)
    }

    pub async fn model(&self, ctx: &Ctx, project: &Project, name: &str) -> Result<Model> {
        self.seen(ctx, project, name, &MODEL_READ, || no_model(name)).await?;
        let (project, wanted) = (project.id, name.to_owned());
        let found = self.db().read(move |tx| store::find(tx, project, &wanted)).await?;
        found.ok_or_else(|| no_model(name))
    }

    /// An absent description is an empty one, as in MLflow.
    pub async fn describe_model(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        description: String,
    ) -> Result<Model> {
        check_text("description", &description, self.config().max_description)?;
        let id = project.id;
        self.change_model((ctx, project), name, &MODEL_WRITE, move |tx, old, act| {
            store::describe(tx, old.id, &description, act.now)?;
            let new = store::find(tx, id, &old.name)?.ok_or_else(|| no_model(&old.name))?;
            let change = act
                .change()
                .event("model.updated", &new.shown())
                .before(&old.shown())
                .after(&new.shown());
            act.record(tx, change)?;
            Ok(new)
        })
        .await
    }

    /// The right to rename is needed under both names.
    pub async fn rename_model(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        new_name: String,
    ) -> Result<Model> {
        check_name("new_name", &new_name)?;
        let old_resource = self.seen(ctx, project, name, &MODEL_RENAME, || no_model(name)).await?;
        let new_resource: Resource = resource(project, &new_name, false);
        ctx.authorize(&MODEL_RENAME, &new_resource).await?;
        let (ctx, project, name) = (ctx.clone(), project.id, name.to_owned());
        let now = self.tracking().now_ms();
        self.db()
            .write(move |tx| {
                // In one order, lest two renames wait for each other.
                let mut names = [&name, &new_name];
                names.sort();
                for one in names {
                    tx.lock(&lock(project, one))?;
                }
                let old = store::head(tx, project, &name)?.ok_or_else(|| no_model(&name))?;
                if name != new_name && store::id_of(tx, project, &new_name)?.is_some() {
                    return Err(taken(&new_name, false, false));
                }
                store::rename(tx, old.id, &new_name, now)?;
                let new =
                    store::find(tx, project, &new_name)?.ok_or_else(|| no_model(&new_name))?;
                let data = json!({ "name": new_name, "old_name": name });
                let change = Change::new(&MODEL_RENAME, &old_resource)
                    .event("model.renamed", &data)
                    .before(&old.shown())
                    .after(&new.shown())
                    .detail("new_name", shown(&new_name));
                tx.record(&ctx, change)?;
                Ok(new)
            })
            .await
    }

    /// For good, with its versions and aliases; the name is free again.
    pub async fn delete_model(&self, ctx: &Ctx, project: &Project, name: &str) -> Result<()> {
        let gone = name.to_owned();
        let not_there = move || no_model(&gone);
        let (id, registry) = (project.id, self.clone());
        let delete = move |tx: &mut Tx<'_>, old: &Model, act: &Act| {
            registry.check_unused(tx, id, old.id, None)?;
            store::delete(tx, old.id)?;
            let change = act.change().event("model.deleted", &old.shown()).before(&old.shown());
            act.record(tx, change)
        };
        self.change((ctx, project), name, &MODEL_DELETE, not_there, delete).await
    }

    pub async fn tag_model(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        (key, value): (String, String),
    ) -> Result<()> {
        self.config().check_tag(&key, &value)?;
        self.change_tag(ctx, project, name, key, Some(value)).await
    }

    /// A tag that is not there is deleted already.
    pub async fn untag_model(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        key: String,
    ) -> Result<()> {
        self.config().check_tag(&key, "")?;
        self.change_tag(ctx, project, name, key, None).await
    }

    async fn change_tag(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        key: String,
        value: Option<String>,
    ) -> Result<()> {
        let (id, most) = (project.id, self.config().webhooks.room());
        let action = if value.is_some() { &MODEL_WRITE } else { &MODEL_UNTAG };
        self.change_model((ctx, project), name, action, move |tx, model, act| {
            let old = store::tag(tx, model.id, &key)?;
            let told = if value.is_some() { Told::TagSet } else { Told::TagDeleted };
            tell(tx, (id, model.id), told, most, |_| match &value {
                Some(value) => json!({ "name": model.name, "key": key, "value": value }),
                None => json!({ "name": model.name, "key": key }),
            })?;
            match &value {
                Some(value) => store::set_tag(tx, model.id, &key, value)?,
                None => store::delete_tag(tx, model.id, &key)?,
            }
            let data = json!({ "name": model.name, "tag": key, "removed": value.is_none() });
            let change = act
                .change()
                .event("model.updated", &data)
                .before(&old)
                .after(&value)
                .detail("tag", &key);
            act.record(tx, change)
        })
        .await
    }

    /// One change of one model by someone who may do that.
    async fn change_model<T: Send + 'static>(
        &self,
        whose: (&Ctx, &Project),
        name: &str,
        action: &'static Action,
        change: impl FnOnce(&mut Tx<'_>, &Model, &Act) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let gone = name.to_owned();
        self.change(whose, name, action, move || no_model(&gone), change).await
    }
}

/// Says that a name is taken, and by what: a prompt is a model to us, but not to its users.
fn taken(name: &str, old_is_prompt: bool, new_is_prompt: bool) -> Error {
    let noun = |prompt: bool| if prompt { "Prompt" } else { "Registered Model" };
    let text = if old_is_prompt == new_is_prompt {
        format!("{} (name={name}) already exists.", noun(new_is_prompt))
    } else {
        format!(
            "Tried to create a {} with name '{name}', but the name is already taken by a {}. \
             MLflow does not allow creating a model and a prompt with the same name.",
            noun(new_is_prompt).to_lowercase(),
            noun(old_is_prompt).to_lowercase()
        )
    };
    Error::new(&code::ALREADY_EXISTS, text)
}
