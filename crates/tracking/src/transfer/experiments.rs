//! Experiments on their way in.
//!
//! An experiment is the same as one that is here if both were created at the same millisecond and
//! agree in name or id. A sync joins experiments by their names alone, and changes nothing of what is
//! here but adds tags. The experiment 0 is in every store and every project: they become one.

use falaj_base::{Error, ProjectId, Resource, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::{Tx, params};

use super::wire::{ExperimentIn, ExperimentsIn, Landed, LandedAll};
use super::{Mover, Told, Way, check_count, check_pairs, check_text};
use crate::access::resource;
use crate::experiment::{Experiment, ExperimentId, Stage, store};
use crate::{EXPERIMENT_CREATE, EXPERIMENT_UPDATE, RUN_WRITE, Tracking, key};

/// Ids beyond this are not kept: there must be room to count on.
const LAST_ID: i64 = 1 << 62;

impl Tracking {
    pub(super) async fn import_experiments(
        &self,
        call: &Call,
        way: Way,
        batch: ExperimentsIn,
    ) -> Result<LandedAll> {
        let mover = Mover::new(call, way, batch.source)?;
        let most = self.config().max_import_batch;
        check_count("experiments", batch.experiments.len(), most)?;
        for one in &batch.experiments {
            check_text("name", &one.name, 500)?;
            check_pairs("tags", &one.tags, most)?;
            let id: ExperimentId = one.id.parse()?;
            if id < ExperimentId::DEFAULT {
                return Err(Error::invalid("id", &one.id, "a number from 0"));
            }
            if one.name.is_empty() {
                return Err(Error::invalid("name", "", "a name"));
            }
        }
        self.may_bring(&mover).await?;
        let decided = self.may_bring_each(&mover, &batch.experiments).await?;
        if batch.dry_run {
            return self.would_land(mover, batch.experiments).await;
        }
        self.make_default(call).await?;
        let now = self.now_ms();
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&format!("experiments/{}", mover.project()))?;
            let mut experiments = Vec::with_capacity(batch.experiments.len());
            let mut ids = Vec::new();
            for (one, decided) in batch.experiments.iter().zip(&decided) {
                let (landed, changed) = land(tx, &mover, one, decided, now)?;
                if changed {
                    ids.push(landed.id.clone());
                }
                experiments.push(landed);
            }
            mover.record(tx, Told::Experiments, &ids, &[])?;
            Ok(LandedAll { experiments })
        };
        self.db().write(write).await
    }

    /// What would happen. Nothing is written but that it was asked.
    async fn would_land(&self, mover: Mover, batch: Vec<ExperimentIn>) -> Result<LandedAll> {
        let asked = mover.clone();
        let read = move |tx: &mut Tx<'_>| {
            let project = mover.project();
            let mut experiments = Vec::with_capacity(batch.len());
            for one in &batch {
                let found = same(tx, &mover, &one.id, &one.name, one.created_at)?;
                let (id, stage) = match &found {
                    Some(found) => (found.id, found.stage),
                    None if is_default(one) => (ExperimentId::DEFAULT, Stage::Active),
                    None => (free_id(tx, project, one)?, Stage::from(one.stage)),
                };
                let created = found.is_none() && id != ExperimentId::DEFAULT;
                experiments.push(Landed {
                    source: one.id.clone(),
                    id: id.to_string(),
                    created,
                    stage,
                });
            }
            Ok(LandedAll { experiments })
        };
        let all = self.db().read(read).await?;
        let count = all.experiments.len();
        let record = move |tx: &mut Tx<'_>| {
            let none: [String; 0] = [];
            asked.record(tx, Told::Experiments, &none, &[("dry_run", count)])
        };
        self.db().write(record).await?;
        Ok(all)
    }

    /// Each must be one that the caller may bring something into, or a new one of that name. Tells
    /// what was allowed.
    async fn may_bring_each(&self, mover: &Mover, batch: &[ExperimentIn]) -> Result<Vec<Decided>> {
        let (call, project) = (&mover.call, mover.project());
        let wanted: Vec<_> =
            batch.iter().map(|one| (one.id.clone(), one.name.clone(), one.created_at)).collect();
        let asked = mover.clone();
        let found = self
            .db()
            .read(move |tx| {
                let find = |(id, name, at): &(String, String, i64)| same(tx, &asked, id, name, *at);
                wanted.iter().map(find).collect::<Result<Vec<_>>>()
            })
            .await?;
        let mut all = Vec::with_capacity(batch.len());
        for (one, found) in batch.iter().zip(found) {
            // The one that is in every project may be made only now.
            let id = found.as_ref().map(|found| found.id);
            let id = id.or_else(|| is_default(one).then_some(ExperimentId::DEFAULT));
            let (resource, logging) = if let Some(id) = id {
                (resource(&call.place, id, false), &RUN_WRITE)
            } else {
                let name = format!("{project}/{}", one.name);
                let named = Resource::new("experiment", name, call.place.scope())
                    .with(call.place.attributes())
                    .shown_as(&one.name);
                (named, &EXPERIMENT_CREATE)
            };
            if mover.way == Way::Sync {
                call.ctx.authorize(logging, &resource).await?;
            }
            call.ctx.authorize(mover.way.action(), &resource).await?;
            let there = found.map(|found| found.tags).unwrap_or_default();
            let tags = id.is_some() && !new_tags(&there, one).is_empty();
            if tags && mover.way == Way::Sync {
                call.ctx.authorize(&EXPERIMENT_UPDATE, &resource).await?;
            }
            all.push(Decided { id, tags });
        }
        Ok(all)
    }
}

/// What the caller was allowed: to bring something into an experiment that is here, or to make one.
struct Decided {
    id: Option<ExperimentId>,
    /// To add tags to it.
    tags: bool,
}

/// The tags that an experiment here has not.
fn new_tags<'a>(there: &[(String, String)], one: &'a ExperimentIn) -> Vec<&'a (String, String)> {
    let known = |key: &String| there.iter().any(|(there, _)| there == key);
    one.tags.iter().filter(|(key, _)| !known(key)).collect()
}

/// It is not any more what the caller was allowed to change.
fn changed(one: &ExperimentIn) -> Error {
    let text = format!("the experiment '{}' was changed meanwhile: send it again", one.name);
    Error::new(&code::CHANGED, text).at("experiments")
}

fn is_default(one: &ExperimentIn) -> bool {
    one.id == "0" && one.name == "Default"
}

/// The experiment here that this one is, if there is one; refused if its name is another's.
fn same(
    tx: &mut Tx<'_>,
    mover: &Mover,
    id: &str,
    name: &str,
    created_at: i64,
) -> Result<Option<Experiment>> {
    let (project, id) = (mover.project(), id.parse::<ExperimentId>()?);
    if id == ExperimentId::DEFAULT && name == "Default" {
        return store::find(tx, project, id);
    }
    if let Some(named) = store::find_by_name(tx, project, name)? {
        if mover.way == Way::Sync || named.created_at == created_at {
            return Ok(Some(named));
        }
        return Err(Error::new(
            &code::ALREADY_EXISTS,
            format!("the project has another experiment named '{name}' (id {})", named.id),
        )
        .at("name"));
    }
    // Renamed since it came.
    let numbered = store::find(tx, project, id)?;
    Ok(numbered.filter(|one| one.created_at == created_at && id != ExperimentId::DEFAULT))
}

/// The id that a new experiment gets: its own if it is free.
fn free_id(tx: &mut Tx<'_>, project: ProjectId, one: &ExperimentIn) -> Result<ExperimentId> {
    let wanted: ExperimentId = one.id.parse()?;
    let free = wanted != ExperimentId::DEFAULT
        && wanted.0 < LAST_ID
        && !store::was_given(tx, project, wanted)?;
    if free { Ok(wanted) } else { store::next_id(tx, project) }
}

/// Tells as well whether anything was written.
fn land(
    tx: &mut Tx<'_>,
    mover: &Mover,
    one: &ExperimentIn,
    decided: &Decided,
    now: i64,
) -> Result<(Landed, bool)> {
    let found = same(tx, mover, &one.id, &one.name, one.created_at)?;
    if found.as_ref().map(|found| found.id) != decided.id {
        return Err(changed(one));
    }
    let created = found.is_none();
    let stage = Stage::from(one.stage);
    // Without a time, one in the bin would be purged at once.
    let undated = stage == Stage::Deleted && one.updated_at <= 0;
    let updated_at = if undated { now } else { one.updated_at };
    let here = if let Some(found) = found {
        found
    } else {
        let id = free_id(tx, mover.project(), one)?;
        let made = Experiment {
            no: key::next(tx, "experiment")?,
            id,
            name: one.name.clone(),
            artifact_location: format!("mlflow-artifacts:/{id}"),
            stage,
            created_at: one.created_at,
            updated_at,
            tags: one.tags.clone(),
        };
        store::insert(tx, mover.project(), &made)?;
        made
    };
    let landed = |stage| Landed { source: one.id.clone(), id: here.id.to_string(), created, stage };
    if created {
        return Ok((landed(stage), true));
    }
    if mover.way == Way::Sync {
        let new = new_tags(&here.tags, one);
        if !new.is_empty() && !decided.tags {
            return Err(changed(one));
        }
        for (key, value) in &new {
            store::set_tag(tx, here.no, key, value)?;
        }
        return Ok((landed(here.stage), !new.is_empty()));
    }
    // Whoever is adding to it sees the stage it had; its runs have stages of their own.
    store::lock(tx, mover.project(), here.id)?;
    tx.execute(
        "UPDATE experiment SET stage = $2, created_at = $3, updated_at = $4 WHERE no = $1",
        &params![here.no, stage, one.created_at, updated_at],
    )?;
    for (key, value) in &one.tags {
        store::set_tag(tx, here.no, key, value)?;
    }
    Ok((landed(stage), true))
}
