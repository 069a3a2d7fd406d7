//! Asking for jobs, seeing them, and calling them off.

use falaj_base::{Action, Ctx, Error, Page, PageQuery, Resource, Result, Timestamp, code};
use falaj_governance::residency::on_record;
use falaj_governance::tenancy::Project;
use falaj_mlflow::asked::not_a_page;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use super::job::{Job, JobId, JobState};
use super::store::{self, New, NewView};
use crate::definition::form::Noun;
use crate::definition::{Catalog, ViewVersion, resource, shown};
use crate::name::FeatureName;
use crate::online::lawful;
use crate::transform::demand;
use crate::{FEATURE_READ, FEATURE_WRITE, Features};

/// Which events are brought.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Window {
    Between(Timestamp, Timestamp),
    /// From where the last one ended, if there was one, up to here.
    Until(Timestamp),
    Everything,
}

/// Who runs a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    /// Whoever asks for it, from the start.
    Asker,
    /// A worker, when its turn comes.
    Worker,
}

impl Features {
    /// Asks for views to be brought into the online store, those named or all that the caller may
    /// write to. The job is run when its turn comes.
    pub(crate) async fn ask_to_materialize(
        &self,
        ctx: &Ctx,
        project: &Project,
        names: Option<&[String]>,
        window: Window,
    ) -> Result<Job> {
        let job = self.new_job(ctx, project, names, window, Runner::Worker).await?;
        self.underway().wake.notify_one();
        Ok(job)
    }

    /// Brings views into the online store, and tells of it when it is done. Should whoever asks go
    /// away, it is done all the same.
    pub(crate) async fn materialize(
        &self,
        ctx: &Ctx,
        project: &Project,
        names: Option<&[String]>,
        window: Window,
    ) -> Result<Job> {
        let job = self.new_job(ctx, project, names, window, Runner::Asker).await?;
        let (ours, id) = (self.clone(), job.id);
        let run = tokio::spawn(async move { ours.run_at_once(id).await });
        run.await.map_err(Error::internal)??;
        self.job(id).await
    }

    async fn new_job(
        &self,
        ctx: &Ctx,
        project: &Project,
        names: Option<&[String]>,
        window: Window,
        runner: Runner,
    ) -> Result<Job> {
        let catalog = self.catalog(project.id).await?;
        let views = chosen(ctx, project, &catalog, names).await?;
        let store = self.shelf().store_id().await?;
        let whole = views[0].resource(project);
        let ask = Ask {
            ctx: ctx.clone(),
            project: project.clone(),
            views,
            window,
            store,
            online_zone: self.shelf().config().zone.clone(),
            runner: (runner == Runner::Asker).then(|| self.underway().name().to_owned()),
            most: self.config().max_waiting,
        };
        let outcome = self.db().write(move |tx| ask.run(tx)).await;
        on_record(self.db(), ctx, &FEATURE_WRITE, &whole, outcome).await
    }

    pub(super) async fn job(&self, id: JobId) -> Result<Job> {
        let found = self.db().read(move |tx| store::find(tx, id)).await?;
        found.ok_or_else(|| Error::not_found("materialisation", id))
    }

    /// A job of the project whose views the caller may all read; *not there* otherwise. To do
    /// something with one that is not there takes what it would take if it were.
    pub(super) async fn visible_job(
        &self,
        ctx: &Ctx,
        project: &Project,
        text: &str,
        action: &'static Action,
    ) -> Result<Job> {
        let missing = || Error::not_found("materialisation", text);
        let found = match text.parse::<JobId>() {
            Ok(id) => self.db().read(move |tx| store::find(tx, id)).await?,
            Err(_) => None,
        };
        let Some(job) = found.filter(|job| job.project == project.id) else {
            let absent = Resource::absent("feature", text, project.scope());
            ctx.authorize(action, &absent.with(project.attributes())).await?;
            return Err(missing());
        };
        for view in self.views_of_job(project, &job).await? {
            ctx.authorize(&FEATURE_READ, &view)
                .await
                .map_err(|error| if error.kind().is_ours() { error } else { missing() })?;
        }
        Ok(job)
    }

    /// The views of a job, as they are authorised.
    async fn views_of_job(&self, project: &Project, job: &Job) -> Result<Vec<Resource>> {
        let catalog = self.catalog(project.id).await?;
        let of = |name: &FeatureName| {
            let known = catalog.view(name).map(|view| view.resource(project));
            known.unwrap_or_else(|| resource(project, Noun::View, name, true))
        };
        Ok(job.views.iter().map(|view| of(&view.view)).collect())
    }

    /// The jobs of a project whose views the caller may all read, the newest first.
    pub(super) async fn jobs(
        &self,
        ctx: &Ctx,
        project: &Project,
        query: PageQuery,
    ) -> Result<Page<Job>> {
        ctx.authorize(&FEATURE_READ, &project.resource()).await?;
        let (id, limit, before) = (project.id, query.limit()?, query.after().to_owned());
        if !before.is_empty() && before.parse::<JobId>().is_err() {
            return Err(not_a_page(&query));
        }
        let found = self.db().read(move |tx| store::list(tx, id, &before, limit + 1)).await?;
        let mut page = Page::cut(found, limit, |job| job.id.to_string());
        let mut seen = Vec::new();
        for job in page.items {
            let views = self.views_of_job(project, &job).await?;
            if views.iter().all(|view| ctx.allows(&FEATURE_READ, view)) {
                seen.push(job);
            }
        }
        page.items = seen;
        Ok(page)
    }

    /// Calls a job off. What it has brought stays.
    pub(super) async fn cancel_job(&self, ctx: &Ctx, project: &Project, text: &str) -> Result<Job> {
        let job = self.visible_job(ctx, project, text, &FEATURE_WRITE).await?;
        let views = self.views_of_job(project, &job).await?;
        for view in &views {
            ctx.authorize(&FEATURE_WRITE, view).await?;
        }
        let (by, id) = (ctx.clone(), job.id);
        let write = move |tx: &mut Tx<'_>| {
            if !store::end(tx, id, JobState::Cancelled, None)? {
                let text = format!("the job {id} is {} already", job.state.as_str());
                return Err(Error::new(&code::INVALID_STATE, text));
            }
            let job = store::find(tx, id)?.ok_or_else(|| Error::internal("a job is gone"))?;
            for (place, view) in views.iter().enumerate() {
                let told = json!({ "id": id, "view": job.views[place].view });
                let mut change = Change::new(&FEATURE_WRITE, view)
                    .event("feature.materialize-cancelled", &told)
                    .detail("job", id);
                if place == 0 {
                    change = change.reply(200, &job);
                }
                tx.record(&by, change)?;
            }
            Ok(job)
        };
        let job = self.db().write(write).await?;
        self.underway().stop(id);
        Ok(job)
    }
}

/// A job that was authorised, about to be put down.
struct Ask {
    ctx: Ctx,
    project: Project,
    views: Vec<ViewVersion>,
    window: Window,
    store: String,
    online_zone: Option<falaj_base::Name>,
    /// Who runs it from the start.
    runner: Option<String>,
    most: usize,
}

impl Ask {
    fn run(self, tx: &mut Tx<'_>) -> Result<Job> {
        let (now, id) = (tx.now(), JobId::new());
        tx.lock(&format!("feature-jobs/{}", self.store))?;
        if store::unfinished(tx, self.project.id)? >= self.most {
            let most = self.most;
            let text = format!("{most} materialisations wait already (`features.max_waiting`)");
            return Err(Error::new(&code::CONFLICT, text));
        }
        let mut views = Vec::with_capacity(self.views.len());
        for view in &self.views {
            lawful(tx, &self.project, view, self.online_zone.as_ref())?;
            if let Some(other) = store::underway(tx, &self.store, view.rows())? {
                let name = view.name();
                let text =
                    format!("the feature view {name} is being materialised already: {other}");
                return Err(Error::new(&code::CONFLICT, text));
            }
            let (from, to) = match self.window {
                Window::Between(from, to) => (Some(from), to),
                Window::Everything => (None, now),
                Window::Until(to) => (store::brought(tx, &self.store, view.rows())?, to),
            };
            // Windows are brought whole, and must not end before those that are there.
            let to = if view.form().has_windows() {
                to.max(store::brought(tx, &self.store, view.rows())?.unwrap_or(to))
            } else {
                to
            };
            // What has not happened yet is not served as if it had.
            let to = to.min(now);
            views.push(NewView { version: view.id(), rows_of: view.rows(), from, to });
        }
        let (project, tenant) = (self.project.id, self.project.tenant_id);
        let (store, by) = (self.store.as_str(), self.ctx.principal.name.as_str());
        let runner = self.runner.as_deref().map(|runner| (runner, now + super::run::HELD));
        store::insert(tx, &New { id, project, tenant, store, by, runner }, &views)?;
        let job = store::find(tx, id)?.ok_or_else(|| Error::internal("a job is gone"))?;
        for (place, view) in self.views.iter().enumerate() {
            let resource = view.resource(&self.project);
            let told = json!({ "id": id, "view": view.name(), "version": view.version() });
            let mut change = Change::new(&FEATURE_WRITE, &resource)
                .event("feature.materialize-requested", &told)
                .detail("job", id);
            if place == 0 {
                change = change.reply(202, &job);
            }
            tx.record(&self.ctx, change)?;
        }
        Ok(job)
    }
}

/// The views that are meant, each of which the caller may write to; at least one.
async fn chosen(
    ctx: &Ctx,
    project: &Project,
    catalog: &Catalog,
    names: Option<&[String]>,
) -> Result<Vec<ViewVersion>> {
    let Some(names) = names else {
        let views: Vec<_> = catalog
            .views()
            .filter(|view| !view.form().is_on_demand())
            .filter(|view| ctx.allows(&FEATURE_WRITE, &view.resource(project)))
            .collect();
        for view in &views {
            ctx.authorize(&FEATURE_WRITE, &view.resource(project)).await?;
        }
        if views.is_empty() {
            ctx.authorize(&FEATURE_WRITE, &project.resource()).await?;
            let allowed = "a project with at least one view that you may write to";
            return Err(Error::invalid("feature_views", "none", allowed));
        }
        return Ok(views);
    };
    let mut views: Vec<ViewVersion> = Vec::with_capacity(names.len());
    for name in names {
        let missing = || Error::not_found("feature", format!("{} {name}", Noun::View));
        let name = FeatureName::new(name.as_str()).map_err(|_| missing())?;
        let found = catalog.view(&name);
        let own = match &found {
            Some(view) => view.resource(project),
            None => resource(project, Noun::View, &name, true),
        };
        ctx.authorize(&FEATURE_WRITE, &own).await?;
        let view = found.ok_or_else(|| Error::not_found("feature", shown(Noun::View, &name)))?;
        demand::refuse(view.form(), "there are no rows to bring")?;
        if !views.iter().any(|known| known.id() == view.id()) {
            views.push(view);
        }
    }
    if views.is_empty() {
        return Err(Error::invalid("feature_views", "empty", "names of views, or nothing for all"));
    }
    Ok(views)
}
