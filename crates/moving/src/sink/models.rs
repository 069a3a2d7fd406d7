//! Models on their way into a database: logged ones and registered ones.

use rusqlite::{Transaction, params};
use uuid::Uuid;

use super::Database;
use crate::error::Result;
use crate::record::{LoggedModel, RegisteredModel};

impl Database {
    /// Writes a logged model, in place of what was there of it. The runs must be there.
    pub fn put_logged_model(&mut self, model: &LoggedModel) -> Result<()> {
        self.change(|tx| {
            for sql in [
                "DELETE FROM inputs WHERE destination_id = ?1",
                "DELETE FROM logged_model_metrics WHERE model_id = ?1",
                "DELETE FROM logged_model_params WHERE model_id = ?1",
                "DELETE FROM logged_model_tags WHERE model_id = ?1",
                "DELETE FROM logged_models WHERE model_id = ?1",
            ] {
                tx.execute(sql, [&model.id])?;
            }
            let experiment = model.experiment.parse::<i64>().unwrap_or_default();
            tx.execute(
                "INSERT INTO logged_models (model_id, experiment_id, name, artifact_location,
                     creation_timestamp_ms, last_updated_timestamp_ms, status, lifecycle_stage,
                     model_type, source_run_id)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    model.id,
                    experiment,
                    model.name,
                    model.artifact_uri,
                    model.created_at,
                    model.updated_at,
                    model.status,
                    model.stage.as_str(),
                    Some(&model.model_type).filter(|kind| !kind.is_empty()),
                    model.source_run,
                ],
            )?;
            for (word, pairs) in [("param", &model.params), ("tag", &model.tags)] {
                let sql = format!(
                    "INSERT INTO logged_model_{word}s (model_id, experiment_id, {word}_key,
                         {word}_value) VALUES (?1, ?2, ?3, ?4)"
                );
                for (key, value) in pairs {
                    tx.execute(&sql, params![model.id, experiment, key, value])?;
                }
            }
            write_metrics(tx, model, experiment)?;
            let link = "INSERT OR REPLACE INTO inputs (input_uuid, source_type, source_id,
                            destination_type, destination_id, step) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let id = || Uuid::now_v7().simple().to_string();
            for run in &model.inputs {
                tx.execute(link, params![id(), "RUN_INPUT", run, "MODEL_INPUT", model.id, 0])?;
            }
            for (run, step) in &model.outputs {
                tx.execute(link, params![id(), "RUN_OUTPUT", run, "MODEL_OUTPUT", model.id, step])?;
            }
            Ok(())
        })
    }

    /// Writes a registered model with its versions, in place of what was there of it.
    pub fn put_registered_model(&mut self, model: &RegisteredModel) -> Result<()> {
        self.change(|tx| {
            for table in [
                "registered_model_aliases",
                "model_version_tags",
                "model_versions",
                "registered_model_tags",
                "registered_models",
            ] {
                tx.execute(&format!("DELETE FROM {table} WHERE name = ?1"), [&model.name])?;
            }
            tx.execute(
                "INSERT INTO registered_models (name, creation_time, last_updated_time, description)
                 VALUES (?1, ?2, ?3, ?4)",
                params![model.name, model.created_at, model.updated_at, model.description],
            )?;
            for (key, value) in &model.tags {
                let sql =
                    "INSERT INTO registered_model_tags (name, key, value) VALUES (?1, ?2, ?3)";
                tx.execute(sql, params![model.name, key, value])?;
            }
            write_versions(tx, model)?;
            for (alias, version) in &model.aliases {
                let sql = "INSERT INTO registered_model_aliases (name, alias, version)
                           VALUES (?1, ?2, ?3)";
                tx.execute(sql, params![model.name, alias, version])?;
            }
            Ok(())
        })
    }
}

fn write_metrics(
    tx: &Transaction<'_>,
    model: &LoggedModel,
    experiment: i64,
) -> rusqlite::Result<()> {
    for metric in &model.metrics {
        tx.execute(
            "INSERT OR REPLACE INTO logged_model_metrics (model_id, metric_name,
                 metric_timestamp_ms, metric_step, metric_value, experiment_id, run_id,
                 dataset_name, dataset_digest) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                model.id,
                metric.key,
                metric.timestamp,
                metric.step,
                Some(metric.value).filter(|value| !value.is_nan()),
                experiment,
                metric.run,
                metric.dataset_name,
                metric.dataset_digest,
            ],
        )?;
    }
    Ok(())
}

fn write_versions(tx: &Transaction<'_>, model: &RegisteredModel) -> rusqlite::Result<()> {
    for version in &model.versions {
        tx.execute(
            "INSERT INTO model_versions (name, version, creation_time, last_updated_time,
                 description, user_id, current_stage, source, run_id, status, run_link,
                 storage_location)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'READY', ?10, ?11)",
            params![
                model.name,
                version.version,
                version.created_at,
                version.updated_at,
                version.description,
                version.created_by,
                version.stage,
                version.source,
                version.run_id,
                version.run_link,
                version.location,
            ],
        )?;
        for (key, value) in &version.tags {
            tx.execute(
                "INSERT INTO model_version_tags (name, version, key, value)
                 VALUES (?1, ?2, ?3, ?4)",
                params![model.name, version.version, key, value],
            )?;
        }
    }
    Ok(())
}
