//! Datasets and lineage in the database.

use std::collections::HashMap;

use falaj_base::{Error, Result};
use falaj_store::db::{Row, Tx, params};

use super::{Dataset, DatasetInput, Lineage};
use crate::key;
use crate::logged_model::ModelId;
use crate::run::load::Budget;
use crate::run::{RunId, store::id_list};

/// A dataset belongs to an experiment and is known by its name and digest.
pub(crate) const SCHEMA: &str = "
    INSERT INTO tracking_counter (name, value) VALUES ('dataset', 0);
    CREATE TABLE dataset (
        no INTEGER PRIMARY KEY, experiment INTEGER NOT NULL REFERENCES experiment (no),
        name TEXT NOT NULL, digest TEXT NOT NULL, source_type TEXT NOT NULL, source TEXT NOT NULL,
        schema TEXT, profile TEXT, UNIQUE (experiment, name, digest));
    CREATE TABLE dataset_input (
        run BLOB NOT NULL, dataset INTEGER NOT NULL REFERENCES dataset (no), context TEXT,
        tags TEXT NOT NULL, PRIMARY KEY (run, dataset)) CLUSTERED;
    CREATE INDEX dataset_input_dataset ON dataset_input (dataset);
    CREATE TABLE run_model (
        run BLOB NOT NULL, direction INTEGER NOT NULL, model BLOB NOT NULL, step INTEGER NOT NULL,
        PRIMARY KEY (run, direction, model, step)) CLUSTERED;
    CREATE INDEX run_model_model ON run_model (model);";

/// The tag whose value searches look for.
const CONTEXT: &str = "mlflow.data.context";

const INTO: i64 = 0;
pub(super) const OUT_OF: i64 = 1;

/// Notes that a dataset went into a run. The first word about a pair of them stays.
pub(crate) fn add_input(
    tx: &mut Tx<'_>,
    experiment: i64,
    run: RunId,
    input: &DatasetInput,
) -> Result<()> {
    let dataset = find_or_add(tx, experiment, &input.dataset)?;
    let context = input.tags.iter().find(|(key, _)| key == CONTEXT).map(|(_, value)| value.clone());
    let tags = serde_json::to_string(&input.tags).map_err(Error::internal)?;
    tx.execute(
        "INSERT INTO dataset_input (run, dataset, context, tags) VALUES ($1, $2, $3, $4)
         ON CONFLICT (run, dataset) DO NOTHING",
        &params![run, dataset, context, tags],
    )
    .map(drop)
}

fn find_or_add(tx: &mut Tx<'_>, experiment: i64, dataset: &Dataset) -> Result<i64> {
    let find = |tx: &mut Tx<'_>| -> Result<Option<i64>> {
        tx.query_opt(
            "SELECT no FROM dataset WHERE experiment = $1 AND name = $2 AND digest = $3",
            &params![experiment, &dataset.name, &dataset.digest],
        )?
        .map(|row| row.get("no"))
        .transpose()
    };
    if let Some(number) = find(tx)? {
        return Ok(number);
    }
    let number = key::next(tx, "dataset")?;
    tx.execute(
        "INSERT INTO dataset
             (no, experiment, name, digest, source_type, source, schema, profile)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (experiment, name, digest) DO NOTHING",
        &params![
            number,
            experiment,
            &dataset.name,
            &dataset.digest,
            &dataset.source_type,
            &dataset.source,
            dataset.schema.clone(),
            dataset.profile.clone(),
        ],
    )?;
    find(tx)?.ok_or_else(|| Error::internal("a new dataset is not there"))
}

pub(crate) fn add_model_in(tx: &mut Tx<'_>, run: RunId, model: ModelId) -> Result<()> {
    add_model(tx, run, INTO, model, 0)
}

pub(crate) fn add_model_out(tx: &mut Tx<'_>, run: RunId, model: ModelId, step: i64) -> Result<()> {
    add_model(tx, run, OUT_OF, model, step)
}

fn add_model(tx: &mut Tx<'_>, run: RunId, way: i64, model: ModelId, step: i64) -> Result<()> {
    tx.execute(
        "INSERT INTO run_model (run, direction, model, step) VALUES ($1, $2, $3, $4)
         ON CONFLICT (run, direction, model, step) DO NOTHING",
        &params![run, way, model, step],
    )
    .map(drop)
}

/// The runs that a model went into, and those it came out of with the step at which it did.
pub(crate) fn runs_of_model(tx: &mut Tx<'_>, model: ModelId) -> Result<Vec<(RunId, Option<i64>)>> {
    let sql = "SELECT run, direction, step FROM run_model WHERE model = $1";
    let rows = tx.query(sql, &params![model])?;
    rows.iter()
        .map(|row| {
            let out = row.get::<i64>("direction")? == OUT_OF;
            Ok((row.get("run")?, if out { Some(row.get("step")?) } else { None }))
        })
        .collect()
}

/// The lineage of some runs; a run without any is left out.
pub(crate) fn lineage(
    tx: &mut Tx<'_>,
    runs: &[RunId],
    room: &mut Budget,
) -> Result<HashMap<RunId, Lineage>> {
    let (list, values) = id_list(runs);
    let mut all: HashMap<RunId, Lineage> = HashMap::new();
    let inputs = format!(
        "SELECT i.run, i.tags, d.name, d.digest, d.source_type, d.source, d.schema, d.profile
         FROM dataset_input i JOIN dataset d ON d.no = i.dataset
         WHERE i.run IN ({list}) ORDER BY i.dataset"
    );
    tx.scan(&inputs, &values, |row| {
        let tags: String = row.get("tags")?;
        let dataset = read(&row)?;
        if !room.take(tags.len() + dataset.bytes()) {
            return Ok(());
        }
        let tags = serde_json::from_str(&tags).map_err(Error::internal)?;
        let input = DatasetInput { dataset, tags };
        all.entry(row.get("run")?).or_default().datasets.push(input);
        Ok(())
    })?;
    let models = format!(
        "SELECT run, direction, model, step FROM run_model WHERE run IN ({list}) ORDER BY model"
    );
    tx.scan(&models, &values, |row| {
        let lineage = all.entry(row.get("run")?).or_default();
        let model = row.get::<ModelId>("model")?.to_string();
        if row.get::<i64>("direction")? == INTO {
            lineage.models_in.push(model);
        } else {
            lineage.models_out.push((model, row.get("step")?));
        }
        Ok(())
    })?;
    Ok(all)
}

/// The datasets used in an experiment, each with a context it was used in, the newest first.
pub(crate) fn summaries(
    tx: &mut Tx<'_>,
    experiment: i64,
    limit: usize,
) -> Result<Vec<(String, String, Option<String>)>> {
    let rows = tx.query(
        "SELECT DISTINCT d.no, d.name, d.digest, i.context FROM dataset d
         JOIN dataset_input i ON i.dataset = d.no JOIN run r ON r.id = i.run
         WHERE d.experiment = $1 AND r.stage = 'active' ORDER BY d.no DESC LIMIT $2",
        &params![experiment, limit],
    )?;
    rows.iter().map(|row| Ok((row.get("name")?, row.get("digest")?, row.get("context")?))).collect()
}

fn read(row: &Row) -> Result<Dataset> {
    Ok(Dataset {
        name: row.get("name")?,
        digest: row.get("digest")?,
        source_type: row.get("source_type")?,
        source: row.get("source")?,
        schema: row.get("schema")?,
        profile: row.get("profile")?,
    })
}
