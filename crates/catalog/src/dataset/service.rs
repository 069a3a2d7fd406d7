//! The verbs on datasets.

use falaj_base::{Action, Ctx, Error, Page, PageQuery, Result, code};
use falaj_governance::residency::on_record;
use falaj_governance::tenancy::Project;
use falaj_mlflow::asked::not_a_page;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::dataset::{Dataset, DatasetId, Described, NewDataset, described, resource};
use super::{retention, store};
use crate::name::DatasetName;
use crate::version::store as versions;
use crate::{DATASET_DELETE, DATASET_READ, DATASET_WRITE, Datasets};

impl Datasets {
    /// The dataset if the caller may do this to it. One that is not there, and one that the caller
    /// may not know of, are refused alike.
    pub(crate) async fn seen(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        action: &'static Action,
    ) -> Result<Dataset> {
        let found = match DatasetName::new(name) {
            Ok(name) => {
                let id = project.id;
                self.db().read(move |tx| store::find(tx, id, &name)).await?
            }
            // A name that nothing can have is that of nothing.
            Err(_) => None,
        };
        let of = match &found {
            Some(dataset) => dataset.resource(project),
            None => resource(project, name, true),
        };
        ctx.authorize(action, &of).await?;
        found.ok_or_else(|| Error::not_found("dataset", name))
    }

    pub async fn create(&self, ctx: &Ctx, project: &Project, new: NewDataset) -> Result<Dataset> {
        let (name, about) = new.split();
        let of = described(project, &name, &about);
        ctx.authorize(&DATASET_WRITE, &of).await?;
        about.check()?;
        // Before a byte is sent: the zone must have a root and a key manager.
        let placed = self.objects().check_zone(&project.zone);
        on_record(self.db(), ctx, &DATASET_WRITE, &of, placed).await?;
        let (ctx, project, most) = (ctx.clone(), project.clone(), self.config().max_datasets);
        self.db().write(move |tx| add(tx, &ctx, &project, (name, about), most)).await
    }

    /// The datasets of a project that the caller may see, by name.
    pub async fn list(
        &self,
        ctx: &Ctx,
        project: &Project,
        query: PageQuery,
    ) -> Result<Page<Dataset>> {
        ctx.authorize(&DATASET_READ, &project.resource()).await?;
        let (id, limit, after) = (project.id, query.limit()?, query.after().to_owned());
        if !after.is_empty() && DatasetName::new(after.as_str()).is_err() {
            return Err(not_a_page(&query));
        }
        let found = self.db().read(move |tx| store::list(tx, id, &after, limit + 1)).await?;
        let mut page = Page::cut(found, limit, |it| it.name.to_string());
        page.items.retain(|it| ctx.allows(&DATASET_READ, &it.resource(project)));
        Ok(page)
    }

    pub async fn show(&self, ctx: &Ctx, project: &Project, name: &str) -> Result<Dataset> {
        let mut dataset = self.seen(ctx, project, name, &DATASET_READ).await?;
        let id = dataset.id.clone();
        dataset.tags = self.db().read(move |tx| versions::tags(tx, &id)).await?;
        Ok(dataset)
    }

    /// Says anew what people say of a dataset, all of it.
    pub async fn describe(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        about: Described,
    ) -> Result<Dataset> {
        let dataset = self.seen(ctx, project, name, &DATASET_WRITE).await?;
        about.check()?;
        // What it will be is the caller's to change as well.
        let of = described(project, &dataset.name, &about);
        ctx.authorize(&DATASET_WRITE, &of).await?;
        let (ctx, project) = (ctx.clone(), project.id);
        let write = move |tx: &mut Tx<'_>| {
            store::lock(tx, &dataset.id)?;
            if !store::describe(tx, &dataset.id, &about)? {
                return Err(Error::not_found("dataset", &dataset.name));
            }
            let changed = store::find(tx, project, &dataset.name)?;
            let changed = changed.ok_or_else(|| Error::not_found("dataset", &dataset.name))?;
            let change = Change::new(&DATASET_WRITE, &of)
                .event("dataset.described", &changed)
                .before(&dataset.about)
                .after(&changed.about)
                .reply(200, &changed);
            tx.record(&ctx, change)?;
            Ok(changed)
        };
        self.db().write(write).await
    }

    /// Deletes a dataset. It can be restored for a while, unless `purge` removes it at once.
    pub async fn delete(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        purge: bool,
    ) -> Result<Dataset> {
        let dataset = self.seen(ctx, project, name, &DATASET_DELETE).await?;
        let (ctx, of, project) = (ctx.clone(), dataset.resource(project), project.id);
        let write = move |tx: &mut Tx<'_>| {
            store::lock_names(tx, project)?;
            store::lock(tx, &dataset.id)?;
            if !store::mark_deleted(tx, &dataset.id)? {
                return Err(Error::not_found("dataset", &dataset.name));
            }
            if purge {
                retention::purge(tx, &dataset.id)?;
            }
            let told =
                json!({ "dataset": dataset.name, "latest": dataset.latest, "purged": purge });
            let change = Change::new(&DATASET_DELETE, &of)
                .event("dataset.deleted", &told)
                .before(&dataset)
                .detail("purged", purge)
                .reply(200, &dataset);
            tx.record(&ctx, change)?;
            Ok(dataset)
        };
        self.db().write(write).await
    }

    /// Brings back the dataset of this name that was deleted last.
    pub async fn restore(&self, ctx: &Ctx, project: &Project, name: &str) -> Result<Dataset> {
        let wanted = DatasetName::new(name).ok();
        let (id, asked) = (project.id, wanted.clone());
        let read = move |tx: &mut Tx<'_>| match &asked {
            Some(name) => store::find_deleted(tx, id, name),
            None => Ok(None),
        };
        let found = self.db().read(read).await?;
        let of = match &found {
            Some(dataset) => dataset.resource(project),
            None => resource(project, name, true),
        };
        ctx.authorize(&DATASET_DELETE, &of).await?;
        let dataset = found.ok_or_else(|| Error::not_found("deleted dataset", name))?;
        let ctx = ctx.clone();
        let write = move |tx: &mut Tx<'_>| {
            store::lock_names(tx, id)?;
            store::lock(tx, &dataset.id)?;
            if store::find(tx, id, &dataset.name)?.is_some() {
                return Err(Error::already_exists("dataset", &dataset.name));
            }
            if !store::restore(tx, &dataset.id)? {
                return Err(Error::not_found("deleted dataset", &dataset.name));
            }
            let told = json!({ "dataset": dataset.name, "latest": dataset.latest });
            let change = Change::new(&DATASET_DELETE, &of)
                .event("dataset.restored", &told)
                .after(&dataset)
                .reply(200, &dataset);
            tx.record(&ctx, change)?;
            Ok(dataset)
        };
        self.db().write(write).await
    }
}

/// Adds a dataset, as part of a transaction, and puts that on record. Whoever calls authorised it.
pub(crate) fn add(
    tx: &mut Tx<'_>,
    ctx: &Ctx,
    project: &Project,
    (name, about): (DatasetName, Described),
    most: usize,
) -> Result<Dataset> {
    store::lock_names(tx, project.id)?;
    if store::find(tx, project.id, &name)?.is_some() {
        return Err(Error::already_exists("dataset", &name));
    }
    if store::count(tx, project.id)? >= most {
        let text = format!("a project has at most {most} datasets (`datasets.max_datasets`)");
        return Err(Error::new(&code::CONFLICT, text));
    }
    let now = tx.now();
    let dataset = Dataset {
        name,
        about,
        latest: None,
        tags: Vec::new(),
        created_at: now,
        created_by: ctx.principal.name.clone(),
        updated_at: now,
        id: DatasetId::new(),
    };
    store::insert(tx, (project.tenant_id, project.id), &dataset)?;
    let of = dataset.resource(project);
    let change = Change::new(&DATASET_WRITE, &of)
        .event("dataset.created", &dataset)
        .after(&dataset)
        .reply(200, &dataset);
    tx.record(ctx, change)?;
    Ok(dataset)
}
