//! The verbs on training sets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use falaj_base::{ByteSize, Ctx, Error, Page, PageQuery, ProjectId, Resource, Result, code};
use falaj_catalog::blob::BlobRanges;
use falaj_governance::residency::on_record;
use falaj_governance::tenancy::Project;
use falaj_mlflow::asked::not_a_page;
use falaj_online::value::{Kind, Scalar};
use falaj_store::db::Tx;
use falaj_store::objects::{Blob, Expected, Objects, Staged};
use falaj_store::record::{AuditEntry, Change};
use falaj_tables::{Layout, Limits, Ranges, RecordWriter, Table};
use futures::stream;
use serde_json::json;
use tokio::time::Instant;

use super::id::TrainingSetId;
use super::set::{State, Task, TrainingSet, resource};
use super::spec::{Chosen, Register, Wanted, What, Work};
use super::{columns, join, store};
use crate::definition::columns::{authorize_columns, column_resources};
use crate::definition::form::{Form, Noun, Pick, ViewForm};
use crate::definition::{self, VersionId, ViewVersion};
use crate::source::{FoundObject, aside, blocking};
use crate::transform::form::FeatureOf;
use crate::{FEATURE_READ, Features, TRAINING_SET_CREATE, TRAINING_SET_READ};

/// How often a caller who waits looks for what another server has made.
const LOOK: Duration = Duration::from_millis(250);
/// So few values of moments are read where they come in.
const FEW: usize = 1000;

/// A file of moments: one that was just stored, or an object of the project.
pub(crate) enum Moments {
    Stored(Staged),
    Object(FoundObject),
}

impl Features {
    /// Asks for a training set. It is given back when it is made, or as it is after a while.
    pub async fn create_training_set(
        &self,
        ctx: &Ctx,
        project: &Project,
        wanted: Wanted,
    ) -> Result<TrainingSet> {
        let id = self.new_training_set(ctx, project).await?;
        wanted.check()?;
        let mut what = wanted.what();
        let views = self.choose(ctx, project, &what).await?;
        if let Some(dataset) = wanted.register.clone() {
            let classified = classifications(&views);
            self.datasets()?.may_register(ctx, project, &dataset, &classified).await?;
            what.register = Some(Register { dataset, by: ctx.principal.name.clone() });
        }
        let moments = match (&wanted.moments, &wanted.moments_object) {
            (_, Some(object)) => self.moments_object(ctx, project, object, &what, &views).await?,
            (inline, _) => {
                let (inline, kinds) = (inline.clone().unwrap_or_default(), kinds(&what, &views));
                let many = inline.values().map(Vec::len).sum::<usize>() > FEW;
                let read = move || columns::table(inline.iter(), |name| kinds.get(name).copied());
                let batch = aside(many, read).await?;
                self.moments_batches(project, &what, &views, batch.schema(), vec![batch]).await?
            }
        };
        let made = self.ask_for(ctx, project, id, (wanted.name, what), views, moments).await;
        let whole = resource(project, id, false);
        on_record(self.db(), ctx, &TRAINING_SET_CREATE, &whole, made).await?;
        self.awaited(project, id, self.config().wait.get()).await
    }

    /// The id of a set that the caller may ask for.
    pub(crate) async fn new_training_set(
        &self,
        ctx: &Ctx,
        project: &Project,
    ) -> Result<TrainingSetId> {
        let id = TrainingSetId::new();
        ctx.authorize(&TRAINING_SET_CREATE, &resource(project, id, false)).await?;
        Ok(id)
    }

    /// The features that are meant, each view once, all of them authorised.
    pub(crate) async fn choose(
        &self,
        ctx: &Ctx,
        project: &Project,
        what: &What,
    ) -> Result<Vec<(Chosen, ViewVersion)>> {
        let mut picks: Vec<Pick> = Vec::new();
        match (&what.service, what.features.as_slice()) {
            (Some(service), []) => {
                let found = self
                    .definition(ctx, project, Noun::Service, service, what.service_version)
                    .await?;
                if let Form::Service(form) = found.definition {
                    picks = form.picks;
                }
            }
            (None, features @ [_, ..]) => {
                for (place, reference) in features.iter().enumerate() {
                    let at = |error: Error| error.at(format!("features[{place}]"));
                    let (view, version) = (&reference.view, reference.version);
                    let found = self
                        .definition(ctx, project, Noun::View, view, version)
                        .await
                        .map_err(at)?;
                    let Form::View(form) = &found.definition else { continue };
                    let named = match &reference.feature {
                        Some(feature) if form.field(feature).is_none() => {
                            let field = format!("features[{place}]");
                            let allowed = "a feature of the view's schema";
                            return Err(Error::invalid(field, reference, allowed));
                        }
                        Some(feature) => vec![feature.clone()],
                        None => form.fields.iter().map(|field| field.name.clone()).collect(),
                    };
                    let same =
                        |pick: &&mut Pick| pick.view == *view && pick.version == found.version;
                    match picks.iter_mut().find(same) {
                        Some(pick) => pick.features.extend(named),
                        None => picks.push(Pick {
                            view: view.clone(),
                            version: found.version,
                            hash: found.hash.clone(),
                            features: named,
                        }),
                    }
                }
            }
            (Some(service), _) => {
                return Err(Error::invalid("service", service, "nothing beside `features`"));
            }
            (None, []) => return Err(Error::invalid("features", "absent", "some, or a `service`")),
        }
        let count: usize = picks.iter().map(|pick| pick.features.len()).sum();
        if count > self.config().max_fields {
            let allowed = format!("at most {} (`features.max_fields`)", self.config().max_fields);
            return Err(Error::invalid("features", count, allowed));
        }
        let mut chosen = Vec::new();
        let catalog = self.catalog(project.id).await?;
        let at = (project, &*catalog);
        for pick in picks {
            let found =
                self.definition(ctx, project, Noun::View, &pick.view, Some(pick.version)).await?;
            let view = ViewVersion::of(&Arc::new(found))
                .ok_or_else(|| Error::internal("a view that is none"))?;
            for input in view.form().inputs().iter().filter_map(|input| input.feature.as_ref()) {
                // Whoever reads what is computed could have read what it is computed from.
                let (view, version) = (&input.view, Some(input.version));
                let found = self.definition(ctx, project, Noun::View, view, version).await?;
                let of = ViewVersion::of(&Arc::new(found));
                let of = of.ok_or_else(|| Error::internal("a view that is none"))?;
                let columns = std::iter::once(&input.feature);
                authorize_columns(ctx, &FEATURE_READ, at, &of, columns).await?;
            }
            authorize_columns(ctx, &FEATURE_READ, at, &view, pick.features.iter()).await?;
            let full = what.full_feature_names;
            let column = |feature: &crate::name::FeatureName| {
                if full { format!("{}__{feature}", pick.view) } else { feature.to_string() }
            };
            let columns = pick.features.iter().map(column).collect();
            chosen.push((Chosen { pick, columns }, view));
        }
        Ok(chosen)
    }

    async fn moments_object(
        &self,
        ctx: &Ctx,
        project: &Project,
        object: &str,
        what: &What,
        views: &[(Chosen, ViewVersion)],
    ) -> Result<Moments> {
        let found = self.project_objects()?.find(ctx, project, object).await?;
        self.bounded(found.size)?;
        let blob = self.objects().blob(project.tenant_id, found.blob).await?;
        let ranges: Arc<dyn Ranges> = Arc::new(BlobRanges::new(blob));
        let table = blocking(move || Table::open(ranges, Limits::default())).await;
        let table = table.map_err(|error| {
            Error::invalid("moments_object", error.message(), "a Parquet file that can be read")
        })?;
        join::check(table.schema(), what, sides(views))?;
        Ok(Moments::Object(found))
    }

    /// Stores moments that came as they are. Each batch is let go once it is written.
    pub(crate) async fn moments_batches(
        &self,
        project: &Project,
        what: &What,
        views: &[(Chosen, ViewVersion)],
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
    ) -> Result<Moments> {
        join::check(&schema, what, sides(views))?;
        let written = blocking(move || {
            let mut writer = RecordWriter::new(Vec::new(), schema, Layout::default())?;
            for batch in batches {
                writer.write(&batch)?;
            }
            Ok(Bytes::from(writer.close()?))
        });
        let content = written.await?;
        let size = content.len() as u64;
        self.bounded(size)?;
        let expected = Expected { size: Some(size), sha256: None };
        let pieces = stream::iter([Ok(content)]);
        let staged =
            self.objects().upload(project.tenant_id, &project.zone, pieces, expected).await?;
        Ok(Moments::Stored(staged))
    }

    fn bounded(&self, size: u64) -> Result<()> {
        let most = self.config().max_moments_size;
        if size > most.bytes() {
            let found = ByteSize::from_bytes(size);
            let text =
                format!("the moments take {found}; allowed: {most} (`features.max_moments_size`)");
            return Err(Error::new(&code::TOO_LARGE, text).at("moments"));
        }
        Ok(())
    }

    /// Puts down what is to be made. Whoever calls has authorised it.
    pub(crate) async fn ask_for(
        &self,
        ctx: &Ctx,
        project: &Project,
        id: TrainingSetId,
        (name, what): (Option<String>, What),
        views: Vec<(Chosen, ViewVersion)>,
        moments: Moments,
    ) -> Result<()> {
        let numbers = views.iter().map(|(_, view)| view.id()).collect();
        let inputs = views.iter().flat_map(|(_, view)| view.form().inputs().to_vec());
        let inputs: Vec<FeatureOf> = inputs.filter_map(|input| input.feature).collect();
        let chosen = views.into_iter().map(|(chosen, _)| chosen).collect();
        let work = Work { what, chosen, views: numbers };
        let (ctx, project, most) = (ctx.clone(), project.clone(), self.config().max_waiting);
        let staged = match &moments {
            Moments::Stored(staged) => Some(staged.blob),
            Moments::Object(_) => None,
        };
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&format!("training-sets/{}", project.id))?;
            if store::waiting_of(tx, project.id)? >= most {
                let text = format!("{most} training sets wait already (`features.max_waiting`)");
                return Err(Error::new(&code::CONFLICT, text));
            }
            let (tenant, owner) = (project.tenant_id, id.to_string());
            let blob = match &moments {
                Moments::Stored(staged) => Objects::attach(tx, staged, store::MOMENTS, &owner)?,
                Moments::Object(found) => {
                    Objects::share(tx, tenant, found.blob, store::MOMENTS, &owner)?;
                    found.blob
                }
            };
            let (project_id, by) = (project.id, &ctx.principal.name);
            let task = Task { id, project: project_id, tenant, work, moments: blob, attempts: 0 };
            let inputs = inputs_of(tx, project_id, &inputs)?;
            store::insert(tx, &task, &inputs, (name.as_ref(), by))?;
            let resource = resource(&project, id, false);
            let told = json!({ "id": id, "name": name, "features": task.work.chosen });
            let set = store::find(tx, project.id, id)?;
            let change = Change::new(&TRAINING_SET_CREATE, &resource)
                .event("training-set.requested", &told)
                .detail(
                    "features",
                    task.work.chosen.iter().map(|it| it.columns.len()).sum::<usize>(),
                )
                .reply(200, &set);
            tx.record(&ctx, change)
        };
        let written = self.db().write(write).await;
        if let (Err(_), Some(blob)) = (&written, staged) {
            self.objects().discard(blob).await;
        }
        self.training().wake.notify_one();
        written
    }

    /// The set once it is made, or as it is when the patience is over.
    pub(crate) async fn awaited(
        &self,
        project: &Project,
        id: TrainingSetId,
        patience: Duration,
    ) -> Result<TrainingSet> {
        let (until, project) = (Instant::now() + patience, project.id);
        loop {
            let made = self.training().made.notified();
            let found = self.db().read(move |tx| store::find(tx, project, id)).await?;
            let set = found.ok_or_else(|| Error::not_found("training-set", id))?;
            if set.state != State::Waiting || Instant::now() >= until {
                return Ok(set);
            }
            let _ = tokio::time::timeout(LOOK.min(until - Instant::now()), made).await;
        }
    }

    /// The id that a caller wrote. A text that is none is that of nothing, for whoever may ask.
    pub(crate) async fn training_set_id(
        &self,
        ctx: &Ctx,
        project: &Project,
        text: &str,
    ) -> Result<TrainingSetId> {
        let Ok(id) = text.parse() else {
            let absent = Resource::absent("training-set", text, project.scope());
            ctx.authorize(&TRAINING_SET_READ, &absent.with(project.attributes())).await?;
            return Err(Error::not_found("training-set", text));
        };
        Ok(id)
    }

    pub async fn training_set(
        &self,
        ctx: &Ctx,
        project: &Project,
        id: TrainingSetId,
    ) -> Result<TrainingSet> {
        let at = project.id;
        let found = self.db().read(move |tx| store::find(tx, at, id)).await?;
        ctx.authorize(&TRAINING_SET_READ, &resource(project, id, found.is_none())).await?;
        let set = found.ok_or_else(|| Error::not_found("training-set", id))?;
        for view in self.views_of(project, &set).await? {
            // Who may not know of a view may not know of what is made of it.
            ctx.authorize(&FEATURE_READ, &view).await.map_err(|error| {
                if error.kind().is_ours() { error } else { Error::not_found("training-set", id) }
            })?;
        }
        Ok(set)
    }

    /// Whether the caller may know of a set, and of each view that it is made of; asked silently, for
    /// lists.
    pub(crate) async fn may_see_set(
        &self,
        ctx: &Ctx,
        project: &Project,
        id: TrainingSetId,
    ) -> Result<bool> {
        let at = project.id;
        let Some(set) = self.db().read(move |tx| store::find(tx, at, id)).await? else {
            return Ok(false);
        };
        self.may_see(ctx, project, &set).await
    }

    async fn may_see(&self, ctx: &Ctx, project: &Project, set: &TrainingSet) -> Result<bool> {
        let views = self.views_of(project, set).await?;
        Ok(ctx.allows(&TRAINING_SET_READ, &resource(project, set.id, false))
            && views.iter().all(|view| ctx.allows(&FEATURE_READ, view)))
    }

    /// A version of a view, whoever asks.
    async fn view_version(
        &self,
        project: &Project,
        name: &crate::name::FeatureName,
        version: i64,
    ) -> Result<ViewVersion> {
        let catalog = self.catalog(project.id).await?;
        if let Some(latest) = catalog.view(name).filter(|view| view.version() == version) {
            return Ok(latest);
        }
        let (id, name) = (project.id, name.clone());
        let read = move |tx: &mut Tx<'_>| {
            definition::store::find(tx, id, Noun::View, &name, Some(version))
        };
        let found = self.db().read(read).await?.map(Arc::new);
        found.as_ref().and_then(ViewVersion::of).ok_or_else(|| Error::internal("a version is gone"))
    }

    /// The views that a set is made of, as they are authorised.
    async fn views_of(&self, project: &Project, set: &TrainingSet) -> Result<Vec<Resource>> {
        let catalog = self.catalog(project.id).await?;
        let resource = |name: &crate::name::FeatureName| {
            let view = catalog.view(name);
            view.map_or_else(
                || definition::resource(project, Noun::View, name, true),
                |view| view.resource(project),
            )
        };
        let mut resources = Vec::new();
        for Chosen { pick, .. } in &set.features {
            resources.push(resource(&pick.view));
            let view = self.view_version(project, &pick.view, pick.version).await?;
            resources.extend(column_resources(project, &catalog, &view, &pick.features));
            // What is computed is made of what it is computed from.
            for input in view.form().inputs().iter().filter_map(|input| input.feature.as_ref()) {
                resources.push(resource(&input.view));
                let of = self.view_version(project, &input.view, input.version).await?;
                let columns = std::slice::from_ref(&input.feature);
                resources.extend(column_resources(project, &catalog, &of, columns));
            }
        }
        Ok(resources)
    }

    /// The training sets of a project that the caller may see, the newest first.
    pub async fn training_sets(
        &self,
        ctx: &Ctx,
        project: &Project,
        query: PageQuery,
    ) -> Result<Page<TrainingSet>> {
        ctx.authorize(&TRAINING_SET_READ, &project.resource()).await?;
        let (id, limit, before) = (project.id, query.limit()?, query.after().to_owned());
        if !before.is_empty() && before.parse::<TrainingSetId>().is_err() {
            return Err(not_a_page(&query));
        }
        let found = self.db().read(move |tx| store::list(tx, id, &before, limit + 1)).await?;
        let mut page = Page::cut(found, limit, |set| set.id.to_string());
        let mut seen = Vec::new();
        for set in page.items {
            if self.may_see(ctx, project, &set).await? {
                seen.push(set);
            }
        }
        page.items = seen;
        Ok(page)
    }

    /// The file of a set that is made.
    pub async fn open_training_set(
        &self,
        ctx: &Ctx,
        project: &Project,
        id: TrainingSetId,
    ) -> Result<(TrainingSet, Blob)> {
        let set = self.training_set(ctx, project, id).await?;
        let Some(blob) = set.blob else {
            let text = match (set.state, set.successor) {
                (State::Erased, Some(other)) => format!(
                    "the training set had rows of an entity that was erased, and so its file is \
                     gone; {other} has its other rows"
                ),
                (state, _) => format!("the training set is {}", state.as_str()),
            };
            return Err(Error::new(&code::INVALID_STATE, text));
        };
        let blob = self.objects().blob(project.tenant_id, blob).await?;
        let resource = resource(project, id, false);
        let entry = AuditEntry::allowed(ctx, &TRAINING_SET_READ, &resource, self.db().now());
        self.reads().note(entry);
        debug_assert!(ctx.has_authorized(&FEATURE_READ));
        Ok((set, blob))
    }
}

/// The versions of views that some features are of.
fn inputs_of(
    tx: &mut Tx<'_>,
    project: ProjectId,
    features: &[FeatureOf],
) -> Result<Vec<VersionId>> {
    let mut found = BTreeSet::new();
    for feature in features {
        let version = Some(feature.version);
        let view = definition::store::find(tx, project, Noun::View, &feature.view, version)?;
        let view = view.ok_or_else(|| Error::internal("a version of a view is gone"))?;
        found.insert(view.id);
    }
    Ok(found.into_iter().collect())
}

/// What columns of moments are known to be: the time, join keys, and what comes with a request.
fn kinds(what: &What, views: &[(Chosen, ViewVersion)]) -> BTreeMap<String, Kind> {
    let mut kinds = BTreeMap::new();
    for (_, view) in views {
        let inputs = view.form().inputs().iter().filter(|input| input.feature.is_none());
        let request = inputs.map(|input| &input.column);
        for column in view.form().keys().into_iter().chain(request) {
            kinds.entry(column.name.to_string()).or_insert(column.kind);
        }
    }
    kinds.insert(what.time().to_owned(), Kind::One(Scalar::Timestamp));
    kinds
}

fn sides(views: &[(Chosen, ViewVersion)]) -> impl Iterator<Item = (&Chosen, &ViewForm)> {
    views.iter().map(|(chosen, view)| (chosen, view.form()))
}

/// How the features of some views are classified, and the views themselves.
fn classifications(views: &[(Chosen, ViewVersion)]) -> BTreeSet<String> {
    let of = |(chosen, view): &(Chosen, ViewVersion)| {
        let form = view.form();
        let fields = chosen.pick.features.iter().filter_map(|name| form.field(name));
        let columns = fields.filter_map(|field| field.classification.clone());
        columns.chain(form.classification.clone()).collect::<Vec<_>>()
    };
    views.iter().flat_map(of).collect()
}
