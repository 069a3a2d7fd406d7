//! Every model that a request names passes through here: found, of this project, and allowed.

use falaj_base::{Action, Ctx, Error, Resource, Result, code};
use falaj_governance::tenancy::Project;
use falaj_store::db::Tx;
use falaj_store::record::Change;

use crate::Registry;
use crate::model::{Model, check_name, store};

/// Who changes a model, and when.
pub(crate) struct Act {
    pub(crate) ctx: Ctx,
    pub(crate) action: &'static Action,
    pub(crate) resource: Resource,
    /// The time in MLflow's unit.
    pub(crate) now: i64,
}

impl Act {
    /// What is put on record.
    pub(crate) fn change(&self) -> Change<'_> {
        Change::new(self.action, &self.resource)
    }

    pub(crate) fn record(&self, tx: &mut Tx<'_>, change: Change<'_>) -> Result<()> {
        tx.record(&self.ctx, change)
    }
}

impl Registry {
    /// What the model of this name is authorised on, if it is there and the caller may do `action`
    /// to it. Not there and not yours read alike, in the words of `not_there`.
    pub(crate) async fn seen(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        action: &'static Action,
        not_there: impl Fn() -> Error,
    ) -> Result<Resource> {
        check_name("name", name)?;
        let (id, wanted) = (project.id, name.to_owned());
        let found = self.db().read(move |tx| store::id_of(tx, id, &wanted)).await?.is_some();
        let resource = resource(project, name, !found);
        ctx.authorize(action, &resource).await.map_err(|refused| {
            if *refused.code() == code::NOT_FOUND { not_there() } else { refused }
        })?;
        if found { Ok(resource) } else { Err(not_there()) }
    }

    /// One change of one model: allowed, alone at it, and with the model as it is now. The change
    /// puts itself on record.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        (ctx, project): (&Ctx, &Project),
        name: &str,
        action: &'static Action,
        not_there: impl Fn() -> Error + Send + 'static,
        change: impl FnOnce(&mut Tx<'_>, &Model, &Act) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let resource = self.seen(ctx, project, name, action, &not_there).await?;
        let act = Act { ctx: ctx.clone(), action, resource, now: self.tracking().now_ms() };
        let (project, name) = (project.id, name.to_owned());
        let done = self
            .db()
            .write(move |tx| {
                tx.lock(&lock(project, &name))?;
                let model = store::head(tx, project, &name)?.ok_or_else(not_there)?;
                change(tx, &model, &act)
            })
            .await?;
        self.told().notify_one();
        Ok(done)
    }
}

/// What is held by whoever changes a model of this name.
pub(crate) fn lock(project: falaj_base::ProjectId, name: &str) -> String {
    format!("model/{project}/{name}")
}

/// What everything about a model is authorised on.
pub(crate) fn resource(project: &Project, name: &str, absent: bool) -> Resource {
    let id = format!("{}/{name}", project.id);
    let resource = if absent {
        Resource::absent("registered-model", id, project.scope())
    } else {
        Resource::new("registered-model", id, project.scope())
    };
    resource.with(project.attributes()).shown_as(name)
}

/// The same for other domains, which add to what is known of a model that is there.
#[must_use]
pub fn model_resource(project: &Project, name: &str) -> Resource {
    resource(project, name, false)
}

pub(crate) fn no_model(name: &str) -> Error {
    Error::new(&code::NOT_FOUND, format!("Registered Model with name={} not found", shown(name)))
}

pub(crate) fn no_version(name: &str, version: i64) -> Error {
    let text = format!("Model Version (name={}, version={version}) not found", shown(name));
    Error::new(&code::NOT_FOUND, text)
}

/// A name as an error repeats it.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(256).collect()
}
