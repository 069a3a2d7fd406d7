//! Logged models in the database.

use falaj_base::{ProjectId, Result};
use falaj_store::db::{Row, Tx, params};

use super::id::ModelId;
use super::model::{LoggedModel, ModelMetric, ModelStatus};
use crate::experiment::{ExperimentId, Stage};

pub(crate) const SCHEMA: &str = "
    CREATE TABLE logged_model (
        id BLOB PRIMARY KEY, experiment INTEGER NOT NULL REFERENCES experiment (no),
        name TEXT NOT NULL, model_type TEXT NOT NULL, source_run TEXT, status INTEGER NOT NULL,
        stage TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
        artifact_uri TEXT NOT NULL) CLUSTERED;
    CREATE INDEX logged_model_experiment ON logged_model (experiment);
    CREATE TABLE logged_model_param (
        model BLOB NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (model, key)) CLUSTERED;
    CREATE TABLE logged_model_tag (
        model BLOB NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (model, key)) CLUSTERED;
    CREATE TABLE logged_model_metric (
        model BLOB NOT NULL, key TEXT NOT NULL, run BLOB NOT NULL, timestamp INTEGER NOT NULL,
        step INTEGER NOT NULL, dataset_name TEXT NOT NULL, dataset_digest TEXT NOT NULL,
        value REAL,
        PRIMARY KEY (model, key, run, timestamp, step, dataset_name, dataset_digest)) CLUSTERED;";

const COLUMNS: &str = "m.id, m.experiment, e.id AS experiment_id, m.name, m.model_type,
    m.source_run, m.status, m.stage, m.created_at, m.updated_at, m.artifact_uri";

/// Where a model lives: its project, and its experiment by number and by id.
pub(crate) fn address(
    tx: &mut Tx<'_>,
    model: ModelId,
) -> Result<Option<(ProjectId, i64, ExperimentId)>> {
    let row = tx.query_opt(
        "SELECT e.project, e.no, e.id FROM logged_model m JOIN experiment e ON e.no = m.experiment
         WHERE m.id = $1 AND e.id >= 0",
        &params![model],
    )?;
    row.map(|row| Ok((row.get("project")?, row.get("no")?, row.get("id")?))).transpose()
}

pub(crate) fn insert(tx: &mut Tx<'_>, model: &LoggedModel) -> Result<()> {
    tx.execute(
        "INSERT INTO logged_model (id, experiment, name, model_type, source_run, status, stage,
             created_at, updated_at, artifact_uri)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        &params![
            model.id,
            model.experiment,
            &model.name,
            &model.model_type,
            model.source_run.clone(),
            model.status,
            model.stage,
            model.created_at,
            model.updated_at,
            &model.artifact_uri,
        ],
    )?;
    for (key, value) in &model.params {
        add_param(tx, model.id, key, value)?;
    }
    for (key, value) in &model.tags {
        set_tag(tx, model.id, key, value)?;
    }
    Ok(())
}

pub(crate) fn find(tx: &mut Tx<'_>, model: ModelId) -> Result<Option<LoggedModel>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM logged_model m JOIN experiment e ON e.no = m.experiment
         WHERE m.id = $1"
    );
    let Some(row) = tx.query_opt(&sql, &params![model])? else { return Ok(None) };
    let mut model = read(&row)?;
    details(tx, &mut model)?;
    Ok(Some(model))
}

/// The models of an experiment that are not in the bin, whole.
pub(crate) fn of_experiment(tx: &mut Tx<'_>, experiment: i64) -> Result<Vec<LoggedModel>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM logged_model m JOIN experiment e ON e.no = m.experiment
         WHERE m.experiment = $1 AND m.stage = 'active'"
    );
    let mut models: Vec<LoggedModel> =
        tx.query(&sql, &params![experiment])?.iter().map(read).collect::<Result<_>>()?;
    for model in &mut models {
        details(tx, model)?;
    }
    Ok(models)
}

pub(crate) fn add_param(tx: &mut Tx<'_>, model: ModelId, key: &str, value: &str) -> Result<()> {
    tx.execute(
        "INSERT INTO logged_model_param (model, key, value) VALUES ($1, $2, $3)
         ON CONFLICT (model, key) DO NOTHING",
        &params![model, key, value],
    )
    .map(drop)
}

pub(crate) fn set_tag(tx: &mut Tx<'_>, model: ModelId, key: &str, value: &str) -> Result<()> {
    tx.execute(
        "INSERT INTO logged_model_tag (model, key, value) VALUES ($1, $2, $3)
         ON CONFLICT (model, key) DO UPDATE SET value = excluded.value",
        &params![model, key, value],
    )
    .map(drop)
}

pub(crate) fn tag(tx: &mut Tx<'_>, model: ModelId, key: &str) -> Result<Option<String>> {
    let sql = "SELECT value FROM logged_model_tag WHERE model = $1 AND key = $2";
    tx.query_opt(sql, &params![model, key])?.map(|row| row.get("value")).transpose()
}

pub(crate) fn delete_tag(tx: &mut Tx<'_>, model: ModelId, key: &str) -> Result<bool> {
    let sql = "DELETE FROM logged_model_tag WHERE model = $1 AND key = $2";
    Ok(tx.execute(sql, &params![model, key])? > 0)
}

pub(crate) fn set_status(
    tx: &mut Tx<'_>,
    model: ModelId,
    status: ModelStatus,
    now: i64,
) -> Result<()> {
    tx.execute(
        "UPDATE logged_model SET status = $2, updated_at = $3 WHERE id = $1",
        &params![model, status, now],
    )
    .map(drop)
}

pub(crate) fn set_stage(tx: &mut Tx<'_>, model: ModelId, stage: Stage, now: i64) -> Result<()> {
    tx.execute(
        "UPDATE logged_model SET stage = $2, updated_at = $3 WHERE id = $1",
        &params![model, stage, now],
    )
    .map(drop)
}

/// Takes a model away; what describes it stays behind and must follow.
pub(crate) fn delete(tx: &mut Tx<'_>, model: ModelId) -> Result<()> {
    tx.execute("DELETE FROM logged_model WHERE id = $1", &params![model]).map(drop)
}

pub(crate) fn add_metric(tx: &mut Tx<'_>, model: ModelId, metric: &ModelMetric) -> Result<()> {
    let value = Some(metric.value).filter(|value| !value.is_nan());
    tx.execute(
        "INSERT INTO logged_model_metric
             (model, key, run, timestamp, step, dataset_name, dataset_digest, value)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (model, key, run, timestamp, step, dataset_name, dataset_digest)
         DO UPDATE SET value = excluded.value",
        &params![
            model,
            &metric.key,
            metric.run,
            metric.timestamp,
            metric.step,
            metric.dataset_name.clone().unwrap_or_default(),
            metric.dataset_digest.clone().unwrap_or_default(),
            value,
        ],
    )
    .map(drop)
}

fn details(tx: &mut Tx<'_>, model: &mut LoggedModel) -> Result<()> {
    let pairs = |tx: &mut Tx<'_>, table: &str| -> Result<Vec<(String, String)>> {
        let sql = format!("SELECT key, value FROM {table} WHERE model = $1 ORDER BY key");
        let rows = tx.query(&sql, &params![model.id])?;
        rows.iter().map(|row| Ok((row.get("key")?, row.get("value")?))).collect()
    };
    model.params = pairs(tx, "logged_model_param")?;
    model.tags = pairs(tx, "logged_model_tag")?;
    let rows = tx.query(
        "SELECT key, run, timestamp, step, dataset_name, dataset_digest, value
         FROM logged_model_metric WHERE model = $1",
        &params![model.id],
    )?;
    model.metrics = rows.iter().map(metric).collect::<Result<_>>()?;
    Ok(())
}

fn metric(row: &Row) -> Result<ModelMetric> {
    let given = |column: &str| -> Result<Option<String>> {
        Ok(Some(row.get::<String>(column)?).filter(|text| !text.is_empty()))
    };
    Ok(ModelMetric {
        key: row.get("key")?,
        value: row.get::<Option<f64>>("value")?.unwrap_or(f64::NAN),
        timestamp: row.get("timestamp")?,
        step: row.get("step")?,
        run: row.get("run")?,
        dataset_name: given("dataset_name")?,
        dataset_digest: given("dataset_digest")?,
    })
}

fn read(row: &Row) -> Result<LoggedModel> {
    Ok(LoggedModel {
        id: row.get("id")?,
        experiment: row.get("experiment")?,
        experiment_id: row.get("experiment_id")?,
        name: row.get("name")?,
        model_type: row.get("model_type")?,
        source_run: row.get("source_run")?,
        status: row.get("status")?,
        stage: row.get("stage")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        artifact_uri: row.get("artifact_uri")?,
        params: Vec::new(),
        tags: Vec::new(),
        metrics: Vec::new(),
    })
}
