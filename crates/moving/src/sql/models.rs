//! Logged models in tables.

use std::collections::HashMap;

use super::engine::Row;
use super::{SqlStore, number};
use crate::error::Result;
use crate::record::{LoggedModel, ModelMetric, Pairs, Stage};

impl SqlStore {
    pub(crate) async fn logged_models(&self, experiment: &str) -> Result<Vec<LoggedModel>> {
        if !self.has("logged_models") {
            return Ok(Vec::new());
        }
        let id = number(experiment)?;
        let sql = format!(
            "SELECT model_id, experiment_id, name, model_type, source_run_id, status,
                 lifecycle_stage, creation_timestamp_ms, last_updated_timestamp_ms,
                 artifact_location
             FROM logged_models WHERE experiment_id = {id} ORDER BY model_id"
        );
        let mut models: Vec<LoggedModel> =
            self.engine.query(&sql, &[]).await?.iter().map(model).collect();
        if models.is_empty() {
            return Ok(models);
        }
        let mut params = self.model_pairs("logged_model_params", "param", id).await?;
        let mut tags = self.model_pairs("logged_model_tags", "tag", id).await?;
        let mut metrics = self.model_metrics(id).await?;
        for model in &mut models {
            model.params = params.remove(&model.id).unwrap_or_default();
            model.tags = tags.remove(&model.id).unwrap_or_default();
            model.metrics = metrics.remove(&model.id).unwrap_or_default();
        }
        self.add_links(id, &mut models).await?;
        Ok(models)
    }

    async fn model_pairs(
        &self,
        table: &str,
        word: &str,
        experiment: i64,
    ) -> Result<HashMap<String, Pairs>> {
        let sql = format!(
            "SELECT model_id, {word}_key, {word}_value FROM {table}
             WHERE experiment_id = {experiment} ORDER BY {word}_key"
        );
        let mut found: HashMap<String, Pairs> = HashMap::new();
        for row in self.engine.query(&sql, &[]).await? {
            found.entry(row.text(0)).or_default().push((row.text(1), row.text(2)));
        }
        Ok(found)
    }

    async fn model_metrics(&self, experiment: i64) -> Result<HashMap<String, Vec<ModelMetric>>> {
        let sql = format!(
            "SELECT model_id, metric_name, metric_value, metric_timestamp_ms, metric_step, run_id,
                 dataset_name, dataset_digest
             FROM logged_model_metrics WHERE experiment_id = {experiment}"
        );
        let mut found: HashMap<String, Vec<ModelMetric>> = HashMap::new();
        for row in self.engine.query(&sql, &[]).await? {
            let metric = ModelMetric {
                key: row.text(1),
                value: row.real(2).unwrap_or(f64::NAN),
                timestamp: row.int(3).unwrap_or_default(),
                step: row.int(4).unwrap_or_default(),
                run: row.text(5),
                dataset_name: row.opt_text(6),
                dataset_digest: row.opt_text(7),
            };
            found.entry(row.text(0)).or_default().push(metric);
        }
        Ok(found)
    }

    /// The runs that used or made the models.
    async fn add_links(&self, experiment: i64, models: &mut [LoggedModel]) -> Result<()> {
        let places: HashMap<String, usize> =
            models.iter().enumerate().map(|(at, model)| (model.id.clone(), at)).collect();
        let step = self.column("inputs", "step");
        let sql = format!(
            "SELECT destination_id, source_id, source_type, {step} FROM inputs
             WHERE source_type IN ('RUN_INPUT', 'RUN_OUTPUT') AND destination_id IN
                 (SELECT model_id FROM logged_models WHERE experiment_id = {experiment})
             ORDER BY source_id"
        );
        for row in self.engine.query(&sql, &[]).await? {
            let Some(at) = places.get(&row.text(0)) else { continue };
            let run = row.text(1);
            if row.text(2) == "RUN_INPUT" {
                models[*at].inputs.push(run);
            } else {
                models[*at].outputs.push((run, row.int(3).unwrap_or_default()));
            }
        }
        Ok(())
    }
}

fn model(row: &Row) -> LoggedModel {
    LoggedModel {
        id: row.text(0),
        experiment: row.text(1),
        name: row.text(2),
        model_type: row.text(3),
        source_run: row.opt_text(4).filter(|run| !run.is_empty()),
        status: row.int(5).unwrap_or(2),
        stage: Stage::read(&row.text(6)),
        created_at: row.int(7).unwrap_or_default(),
        updated_at: row.int(8).unwrap_or_default(),
        artifact_uri: row.text(9),
        ..LoggedModel::default()
    }
}
