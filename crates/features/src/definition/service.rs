//! The verbs on definitions.

use falaj_base::{Ctx, Error, Page, PageQuery, Resource, Result, code};
use falaj_governance::epoch::{Epoch, Moved};
use falaj_governance::residency::{Residency, on_record};
use falaj_governance::tenancy::Project;
use falaj_mlflow::asked::not_a_page;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::apply::{Existing, Hidden, Outcome, Step, plan};
use super::definition::{Applied, Definition, described, resource, shown};
use super::diff::{Difference, differences};
use super::form::{Form, Noun};
use super::spec::Definitions;
use super::{check, store};
use crate::name::FeatureName;
use crate::source::{blocking, database_of, root_of};
use crate::training::{self, TrainingSetId};
use crate::transform::form::InputForm;
use crate::{FEATURE_APPLY, FEATURE_READ, Features, TRAINING_SET_READ};

/// What an apply did, or would do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    pub dry_run: bool,
    /// What was asked for, and what follows from it, in the order in which it depends on each other.
    pub definitions: Vec<Applied>,
}

/// Two versions of a definition, side by side.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Diff {
    pub kind: Noun,
    pub name: FeatureName,
    pub from: i64,
    pub to: i64,
    pub differences: Vec<Difference>,
    pub used_by: UsedBy,
}

/// What depends on the older of two versions.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct UsedBy {
    /// Views whose latest version is made of it.
    pub views: Vec<FeatureName>,
    /// Services whose latest version is made of it.
    pub services: Vec<FeatureName>,
    /// Training sets, the newest first, as many as are shown.
    pub training_sets: Vec<TrainingSetId>,
}

impl Features {
    /// Declares definitions: all of them or, if one is refused, none.
    pub async fn apply(
        &self,
        ctx: &Ctx,
        project: &Project,
        wanted: Definitions,
        dry_run: bool,
    ) -> Result<Report> {
        for (noun, name) in named(&wanted) {
            let catalog = self.catalog(project.id).await?;
            let resource = match catalog.get(noun, name) {
                Some(known) => known.resource(project),
                None => resource(project, noun, name, false),
            };
            ctx.authorize(&FEATURE_APPLY, &resource).await?;
        }
        // Thousands of definitions take a while to be looked at: not on a thread that answers.
        let config = self.config().clone();
        let wanted = blocking(move || check::check(&wanted, &config).map(|()| wanted)).await?;
        self.reachable(ctx, project, &wanted).await?;
        let id = project.id;
        let existing = self.db().read(move |tx| store::existing(tx, id)).await?;
        let hidden = hidden(ctx, project, &existing, &wanted);
        let work = move || {
            let steps = plan(&existing, &wanted, &hidden)?;
            Ok((wanted, hidden, steps))
        };
        let (wanted, hidden, steps) = blocking(work).await?;
        for step in &steps {
            // What follows is authorised as well, and what changes also as it will be.
            let resource = described(project, &step.next.form, &step.next.about);
            ctx.authorize(&FEATURE_APPLY, &resource).await?;
        }
        let most = self.config().max_definitions;
        let (ctx_, project_) = (ctx.clone(), project.clone());
        let write = move |tx: &mut Tx<'_>| {
            Apply { ctx: ctx_, project: project_, wanted, hidden, steps, most, dry_run }.run(tx)
        };
        let outcome = self.db().write(write).await;
        let whole = project.resource();
        let (report, moved) = on_record(self.db(), ctx, &FEATURE_APPLY, &whole, outcome).await?;
        if let Some(moved) = moved {
            self.catalogs().epoch().publish(moved);
        }
        Ok(report)
    }

    /// Refuses sources that nobody may read for the project, or not this caller.
    async fn reachable(&self, ctx: &Ctx, project: &Project, wanted: &Definitions) -> Result<()> {
        for (place, source) in wanted.sources.iter().enumerate() {
            let at = format!("sources[{place}]");
            if let Some(path) = &source.path {
                root_of(self.config(), project, path).map_err(|error| error.within(&at))?;
            }
            if let Some(stream) = &source.stream {
                self.stream_allowed(project, stream).await.map_err(|error| error.within(&at))?;
            }
            if let Some(database) = &source.database {
                database_of(self.config(), project, database).map_err(|error| error.within(&at))?;
            }
            if let Some(dataset) = &source.dataset {
                let found = self.datasets()?.show(ctx, project, dataset).await;
                found.map_err(|error| error.at(format!("{at}.dataset")))?;
            }
            if let Some(object) = &source.object {
                let found = self.project_objects()?.find(ctx, project, object).await;
                found.map_err(|error| error.at(format!("{at}.object")))?;
            }
        }
        Ok(())
    }

    /// One version of a definition; the latest if none is named.
    pub async fn definition(
        &self,
        ctx: &Ctx,
        project: &Project,
        noun: Noun,
        name: &FeatureName,
        version: Option<i64>,
    ) -> Result<Definition> {
        let (id, wanted) = (project.id, name.clone());
        let read = move |tx: &mut Tx<'_>| {
            Ok((
                store::find(tx, id, noun, &wanted, None)?,
                match version {
                    Some(_) => store::find(tx, id, noun, &wanted, version)?,
                    None => None,
                },
            ))
        };
        let (latest, at) = self.db().read(read).await?;
        let resource = match &latest {
            Some(known) => known.resource(project),
            None => resource(project, noun, name, true),
        };
        ctx.authorize(&FEATURE_READ, &resource).await?;
        let latest = latest.ok_or_else(|| Error::not_found("feature", shown(noun, name)))?;
        let Some(number) = version else { return Ok(latest) };
        at.ok_or_else(|| Error::invalid("version", number, format!("1 to {}", latest.latest)))
    }

    /// The definitions of a kind that the caller may see, by name.
    pub async fn definitions(
        &self,
        ctx: &Ctx,
        project: &Project,
        noun: Noun,
        query: PageQuery,
    ) -> Result<Page<Definition>> {
        ctx.authorize(&FEATURE_READ, &project.resource()).await?;
        let limit = query.limit()?;
        if !query.after().is_empty() && FeatureName::new(query.after()).is_err() {
            return Err(not_a_page(&query));
        }
        let catalog = self.catalog(project.id).await?;
        let found = catalog.all().filter(|it| it.kind == noun && it.name.as_str() > query.after());
        let visible = found.filter(|it| ctx.allows(&FEATURE_READ, &it.resource(project)));
        let items = visible.take(limit + 1).map(|it| Definition::clone(it)).collect();
        Ok(Page::cut(items, limit, |it| it.name.to_string()))
    }

    /// What changed between two versions of a definition, and what depends on the older.
    pub async fn diff(
        &self,
        ctx: &Ctx,
        project: &Project,
        noun: Noun,
        name: &FeatureName,
        (from, to): (Option<i64>, Option<i64>),
    ) -> Result<Diff> {
        let after = self.definition(ctx, project, noun, name, to).await?;
        let from = from.unwrap_or(after.version - 1).max(1);
        let before = self.definition(ctx, project, noun, name, Some(from)).await?;
        let differences = differences(&before.definition, &after.definition)?;
        let used_by = self.used_by(ctx, project, &before).await?;
        let (from, to) = (before.version, after.version);
        Ok(Diff { kind: noun, name: name.clone(), from, to, differences, used_by })
    }

    async fn used_by(&self, ctx: &Ctx, project: &Project, of: &Definition) -> Result<UsedBy> {
        let catalog = self.catalog(project.id).await?;
        let mut used = UsedBy::default();
        for one in catalog.all().filter(|it| ctx.allows(&FEATURE_READ, &it.resource(project))) {
            let depends = match (&one.definition, &of.definition) {
                (Form::View(view), Form::Entity(entity)) => view.entities.contains(entity),
                (Form::View(view), Form::Source(source)) => {
                    let below = view.source.origin.batch() == Some(source);
                    view.source == *source || below
                }
                (Form::View(view), Form::View(_)) => {
                    let made_of = |input: &InputForm| {
                        input.feature.as_ref().is_some_and(|feature| feature.hash == of.hash)
                    };
                    view.inputs().iter().any(made_of)
                }
                (Form::Service(service), Form::View(_)) => {
                    service.picks.iter().any(|pick| pick.hash == of.hash)
                }
                _ => false,
            };
            match &one.definition {
                Form::View(_) if depends => used.views.push(one.name.clone()),
                Form::Service(_) if depends => used.services.push(one.name.clone()),
                _ => {}
            }
        }
        if ctx.allows(&TRAINING_SET_READ, &project.resource()) {
            let version = of.id;
            let read = move |tx: &mut Tx<'_>| training::store::made_of(tx, version);
            for set in self.db().read(read).await? {
                if self.may_see_set(ctx, project, set).await? {
                    used.training_sets.push(set);
                }
            }
        }
        Ok(used)
    }
}

/// Everything a request names.
fn named(wanted: &Definitions) -> impl Iterator<Item = (Noun, &FeatureName)> {
    let entities = wanted.entities.iter().map(|it| (Noun::Entity, &it.name));
    let sources = wanted.sources.iter().map(|it| (Noun::Source, &it.name));
    let views = wanted.views.iter().map(|it| (Noun::View, &it.name));
    let services = wanted.services.iter().map(|it| (Noun::Service, &it.name));
    entities.chain(sources).chain(views).chain(services)
}

/// What is there, is not declared anew, and is not the caller's to read.
fn hidden(ctx: &Ctx, project: &Project, existing: &Existing, wanted: &Definitions) -> Hidden {
    let declared: Hidden = named(wanted).map(|(noun, name)| (noun, name.clone())).collect();
    let unseen = existing.iter().filter(|(key, known)| {
        let resource = described(project, &known.form, &known.about);
        !declared.contains(key) && !ctx.allows(&FEATURE_READ, &resource)
    });
    unseen.map(|(key, _)| key.clone()).collect()
}

/// An apply that was authorised, about to be written.
struct Apply {
    ctx: Ctx,
    project: Project,
    wanted: Definitions,
    hidden: Hidden,
    /// What was authorised.
    steps: Vec<Step>,
    most: usize,
    dry_run: bool,
}

impl Apply {
    fn run(self, tx: &mut Tx<'_>) -> Result<(Report, Option<Moved>)> {
        let id = self.project.id;
        tx.lock(&store::lock(id))?;
        let existing = store::existing(tx, id)?;
        if plan(&existing, &self.wanted, &self.hidden)? != self.steps {
            let text = "the definitions of the project changed while these were being applied";
            return Err(Error::new(&code::CHANGED, text));
        }
        let made = self.steps.iter().filter(|step| step.outcome == Outcome::Created).count();
        if existing.len() + made > self.most {
            let text = format!(
                "a project has at most {} definitions (`features.max_definitions`)",
                self.most
            );
            return Err(Error::new(&code::CONFLICT, text));
        }
        for step in &self.steps {
            if let Form::View(view) = &step.next.form {
                let zone = view.zone.as_ref().unwrap_or(&self.project.zone);
                Residency::require(tx, &self.project.zone, zone)?;
            }
        }
        let definitions = self.steps.iter().map(|step| applied(step, &existing)).collect();
        let report = Report { dry_run: self.dry_run, definitions };
        let changes = self.steps.iter().any(|step| step.outcome != Outcome::Unchanged);
        if self.dry_run || !changes {
            self.note(tx, &report)?;
            return Ok((report, None));
        }
        let by = &self.ctx.principal.name;
        let fresh = |step: &&Step| matches!(step.outcome, Outcome::Created | Outcome::NewVersion);
        store::add_versions(tx, id, self.steps.iter().filter(fresh), by)?;
        let mut reply = Some(&report);
        for step in self.steps.iter().filter(|step| step.outcome != Outcome::Unchanged) {
            store::put(tx, id, step, by)?;
            self.tell(tx, step, reply.take())?;
        }
        let moved = Epoch::bump_row(tx, store::EPOCH)?;
        Ok((report, Some(moved)))
    }

    fn resource(&self, step: &Step) -> Resource {
        described(&self.project, &step.next.form, &step.next.about)
    }

    /// Puts on record that somebody looked at what would change, or asked for what there was.
    fn note(&self, tx: &mut Tx<'_>, report: &Report) -> Result<()> {
        let Some(step) = self.steps.first() else { return Ok(()) };
        let resource = self.resource(step);
        let change = Change::new(&FEATURE_APPLY, &resource)
            .detail("dry_run", self.dry_run)
            .detail("changed", false)
            .detail("definitions", report.definitions.len())
            .reply(200, report);
        tx.record(&self.ctx, change)
    }

    fn tell(&self, tx: &mut Tx<'_>, step: &Step, reply: Option<&Report>) -> Result<()> {
        let resource = self.resource(step);
        let kind = match step.outcome {
            Outcome::Created => "feature.created",
            Outcome::NewVersion => "feature.changed",
            Outcome::Metadata | Outcome::Unchanged => "feature.described",
        };
        let told = json!({
            "kind": step.noun(), "name": step.name(), "version": step.next.version,
            "hash": step.next.hash, "asked": step.asked,
        });
        let mut change = Change::new(&FEATURE_APPLY, &resource)
            .event(kind, &told)
            .after(&step.next.hash)
            .detail("version", step.next.version);
        if let Some(report) = reply {
            change = change.reply(200, report);
        }
        tx.record(&self.ctx, change)
    }
}

fn applied(step: &Step, existing: &Existing) -> Applied {
    let before = existing.get(&(step.noun(), step.name().clone()));
    let keeps_rows = match (before.map(|before| &before.form), &step.next.form) {
        (Some(Form::View(before)), Form::View(next)) if step.outcome == Outcome::NewVersion => {
            Some(next.has_rows_of(before))
        }
        _ => None,
    };
    Applied {
        kind: step.noun(),
        name: step.name().clone(),
        outcome: step.outcome,
        version: step.next.version,
        hash: step.next.hash.clone(),
        asked: step.asked,
        keeps_rows,
    }
}
