//! Runs on their way in: all but their points and files.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::{Tx, Value, params};

use super::origin::{self, Fate, Kind, Likeness};
use super::wire::{DatasetIn, Imported, LeftAlone, RunIn, Runs};
use super::{
    Mover, Told, Way, check_count, check_location, check_pairs, check_text, hold_open, identical,
    not_from,
};
use crate::Tracking;
use crate::artifact::{location_below, proxied_path};
use crate::dataset::{Dataset, DatasetInput, store as datasets};
use crate::experiment::{Experiment, ExperimentId, Stage};
use crate::key::{KeyKind, Learned};
use crate::purge::refuse_while_purged;
use crate::run::{RunId, RunStatus, touch};

/// A parameter or tag, and the run it is of.
type OfRun<'a> = (RunId, &'a (String, String));

/// A run that was checked, with the number of its experiment.
pub(super) struct Ready {
    pub(super) id: RunId,
    pub(super) status: RunStatus,
    experiment: i64,
    experiment_id: ExperimentId,
    artifact_uri: String,
    pub(super) run: RunIn,
}

impl Tracking {
    pub(super) async fn import_runs(&self, call: &Call, way: Way, batch: Runs) -> Result<Imported> {
        let mover = Mover::new(call, way, batch.source)?;
        let most = self.config().max_import_batch;
        check_count("runs", batch.runs.len(), most)?;
        self.may_bring(&mover).await?;
        let mut experiments: HashMap<ExperimentId, Experiment> = HashMap::new();
        let mut ready = Vec::with_capacity(batch.runs.len());
        for run in batch.runs {
            check(&run, most)?;
            let id: ExperimentId = run.experiment.parse()?;
            if let Entry::Vacant(unknown) = experiments.entry(id) {
                unknown.insert(self.receiving(&mover, id).await?);
            }
            ready.extend(experiments.get(&id).map(|home| prepared(run, home)).transpose()?);
        }
        // In one order, lest two batches wait for each other.
        ready.sort_unstable_by_key(|run| run.id);
        let (this, now) = (self.clone(), self.now_ms());
        let write = move |tx: &mut Tx<'_>| {
            // The bin takes nothing from a sync.
            let stage = |run: &Ready| match mover.way {
                Way::Import => Stage::from(run.run.stage),
                Way::Sync => Stage::Active,
            };
            let into = ready.iter().map(|run| (run.experiment_id, stage(run)));
            hold_open(tx, mover.project(), into)?;
            tx.lock(&format!("import/{}", mover.project()))?;
            let (mut written, mut left_out) = (Vec::with_capacity(ready.len()), Vec::new());
            for run in &ready {
                match upsert(tx, &mover, run, now)? {
                    Fate::Written => written.push(run),
                    Fate::Same => {}
                    Fate::Left(stage) => {
                        left_out.push(LeftAlone { id: run.id.to_string(), stage });
                    }
                }
            }
            let learned = this.import_pairs(tx, &written)?;
            for ready in &written {
                for dataset in &ready.run.datasets {
                    datasets::add_input(tx, ready.experiment, ready.id, &input(dataset))?;
                }
            }
            let ids: Vec<String> = written.iter().map(|run| run.id.to_string()).collect();
            mover.record(tx, Told::Runs, &ids, &[])?;
            Ok((learned, Imported { count: ids.len(), left_out }))
        };
        let (learned, imported) = self.db().write(write).await?;
        self.0.keys.remember(learned);
        Ok(imported)
    }

    /// Parameters stay as they are once written; tags become what they were there.
    fn import_pairs(&self, tx: &mut Tx<'_>, ready: &[&Ready]) -> Result<Learned> {
        let mut learned = Learned::default();
        for (kind, sql, pairs) in [
            (
                KeyKind::Param,
                "INSERT INTO param (run, key, value) VALUES ($1, $2, $3)
                 ON CONFLICT (run, key) DO NOTHING",
                (|run| &run.params) as fn(&RunIn) -> &Vec<(String, String)>,
            ),
            (
                KeyKind::Tag,
                "INSERT INTO run_tag (run, key, value) VALUES ($1, $2, $3)
                 ON CONFLICT (run, key) DO UPDATE SET value = excluded.value",
                |run| &run.tags,
            ),
        ] {
            let mut by_experiment: BTreeMap<i64, Vec<OfRun<'_>>> = BTreeMap::new();
            for one in ready {
                let all = by_experiment.entry(one.experiment).or_default();
                all.extend(pairs(&one.run).iter().map(|pair| (one.id, pair)));
            }
            for (experiment, all) in by_experiment {
                let names = all.iter().map(|(_, (key, _))| key.as_str());
                let (keys, new) = self.0.keys.number(tx, (experiment, kind), names)?;
                learned = learned.and(new);
                let rows = all.iter().zip(keys).map(|((run, (_, value)), key)| -> Vec<Value> {
                    params![*run, key, value.as_str()].into()
                });
                tx.execute_many(sql, rows)?;
            }
        }
        Ok(learned)
    }
}

fn check(run: &RunIn, most: usize) -> Result<()> {
    check_text("name", &run.name, 5000)?;
    check_text("user_id", &run.user_id, 5000)?;
    check_location(run.artifact_uri.as_deref())?;
    check_pairs("params", &run.params, most)?;
    check_pairs("tags", &run.tags, most)?;
    check_count("datasets", run.datasets.len(), most)?;
    for dataset in &run.datasets {
        check_pairs("datasets.tags", &dataset.tags, most)?;
        for (field, text, most) in [
            ("datasets.name", Some(&dataset.name), 500),
            ("datasets.digest", Some(&dataset.digest), 500),
            ("datasets.source_type", Some(&dataset.source_type), 500),
            ("datasets.source", Some(&dataset.source), 1 << 20),
            ("datasets.schema", dataset.schema.as_ref(), 1 << 20),
            ("datasets.profile", dataset.profile.as_ref(), 1 << 24),
        ] {
            check_text(field, text.map_or("", String::as_str), most)?;
        }
    }
    Ok(())
}

fn prepared(run: RunIn, home: &Experiment) -> Result<Ready> {
    let id = RunId::parse(&run.id)?.ok_or_else(|| {
        Error::invalid("id", &run.id, "32 hex digits in small letters, as MLflow makes them")
    })?;
    let here = || location_below(&home.artifact_location, format_args!("{id}/artifacts"));
    Ok(Ready {
        id,
        status: RunStatus::parse(&run.status)?,
        experiment: home.no,
        experiment_id: home.id,
        artifact_uri: run.artifact_uri.clone().unwrap_or_else(here),
        run,
    })
}

/// A run as it is here.
struct There {
    experiment: i64,
    stage: Stage,
    deleted_at: Option<i64>,
    artifact_uri: String,
}

fn there(tx: &mut Tx<'_>, run: RunId) -> Result<Option<There>> {
    let sql = "SELECT experiment, stage, deleted_at, artifact_uri FROM run WHERE id = $1";
    let Some(row) = tx.query_opt(sql, &params![run])? else { return Ok(None) };
    Ok(Some(There {
        experiment: row.get("experiment")?,
        stage: row.get("stage")?,
        deleted_at: row.get("deleted_at")?,
        artifact_uri: row.get("artifact_uri")?,
    }))
}

/// Writes a run: one that is here already, from elsewhere, must be the same. Ids are unique in the
/// whole server: one that is taken in another place can only be refused.
fn upsert(tx: &mut Tx<'_>, mover: &Mover, ready: &Ready, now: i64) -> Result<Fate> {
    // Whoever deletes it meanwhile waits, or has done so.
    touch::touch(tx, ready.id)?;
    let there = there(tx, ready.id)?;
    if there.as_ref().is_some_and(|there| there.experiment != ready.experiment) {
        let text = format!("the run id {} is taken", ready.id);
        return Err(Error::new(&code::ALREADY_EXISTS, text).at("runs.id"));
    }
    refuse_while_purged(tx, ready.id.0.as_bytes(), &format!("run {}", ready.id))?;
    let of = (Kind::Run, &ready.id.0.as_bytes()[..]);
    let likeness = Likeness {
        same: &|tx| identical::is_run(tx, ready),
        earlier: &|tx| identical::is_earlier_run(tx, ready),
    };
    let here = there.as_ref().map(|there| there.stage);
    let refusal = || not_from(mover, "runs.id", &format!("the run {}", ready.id));
    if let Some(fate) = origin::admit(tx, mover, of, here, &likeness, refusal)? {
        return Ok(fate);
    }
    write(tx, ready, placed(mover.way, ready, there.as_ref(), now)).map(|()| Fate::Written)
}

/// Where a run will be: in the bin or not, since when, and its files.
fn placed(
    way: Way,
    ready: &Ready,
    there: Option<&There>,
    now: i64,
) -> (Stage, Option<i64>, String) {
    let stage = match there {
        // What was deleted or restored here stays so.
        Some(there) if way == Way::Sync => there.stage,
        _ => Stage::from(ready.run.stage),
    };
    // Without a time it would never be old enough to be purged.
    let since = there.and_then(|there| there.deleted_at).or(ready.run.deleted_at).unwrap_or(now);
    let uri = match there {
        // Files that are here already are not pointed away from.
        Some(there) if proxied_path(&there.artifact_uri).is_some() => &there.artifact_uri,
        _ => &ready.artifact_uri,
    };
    (stage, (stage == Stage::Deleted).then_some(since), uri.clone())
}

fn write(
    tx: &mut Tx<'_>,
    ready: &Ready,
    (stage, deleted_at, artifact_uri): (Stage, Option<i64>, String),
) -> Result<()> {
    tx.execute(
        "INSERT INTO run (id, experiment, name, status, user_id, start_time, end_time, stage,
             deleted_at, artifact_uri)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT (id) DO UPDATE SET name = excluded.name, status = excluded.status,
             user_id = excluded.user_id, start_time = excluded.start_time,
             end_time = excluded.end_time, stage = excluded.stage,
             deleted_at = excluded.deleted_at, artifact_uri = excluded.artifact_uri",
        &params![
            ready.id,
            ready.experiment,
            &ready.run.name,
            ready.status,
            &ready.run.user_id,
            ready.run.start_time,
            ready.run.end_time,
            stage,
            deleted_at,
            artifact_uri,
        ],
    )?;
    touch::note(tx, ready.id, ready.experiment).map(drop)
}

pub(super) fn input(from: &DatasetIn) -> DatasetInput {
    DatasetInput {
        dataset: Dataset {
            name: from.name.clone(),
            digest: from.digest.clone(),
            source_type: from.source_type.clone(),
            source: from.source.clone(),
            schema: from.schema.clone(),
            profile: from.profile.clone(),
        },
        tags: from.tags.clone(),
    }
}
