//! Logged models in files: `<experiment>/models/m-…`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{FileStore, LARGEST_VALUE, META, folders, name, named_files, read_text, values};
use crate::error::{Error, Result};
use crate::record::{LoggedModel, ModelMetric, Stage};
use crate::yaml;

/// The runs a model went into, and those it came out of with the step.
#[derive(Debug, Default)]
struct Links {
    inputs: Vec<String>,
    outputs: Vec<(String, i64)>,
}

impl FileStore {
    pub(crate) fn logged_models(&self, experiment: &str) -> Result<Vec<LoggedModel>> {
        let folder = self.experiment_folder(experiment)?;
        let is_model = |path: &PathBuf| name(path).starts_with("m-") && path.join(META).is_file();
        let found: Vec<PathBuf> =
            folders(&folder.join("models"))?.into_iter().filter(is_model).collect();
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let mut links = self.links(experiment, &folder)?;
        let mut models = Vec::with_capacity(found.len());
        for path in found {
            let Links { inputs, outputs } = links.remove(name(&path)).unwrap_or_default();
            let model = model(&path, experiment)?;
            models.push(LoggedModel { inputs, outputs, ..model });
        }
        Ok(models)
    }

    /// Runs say which models went in and came out.
    fn links(&self, experiment: &str, folder: &Path) -> Result<HashMap<String, Links>> {
        let mut found: HashMap<String, Links> = HashMap::new();
        for run in self.run_ids(experiment)? {
            for input in folders(&folder.join(&run).join("inputs"))? {
                let meta = yaml::read(&input.join(META))?;
                let ids = [meta.text("destination_id"), meta.text("source_id")];
                if let Some(id) = ids.into_iter().flatten().find(|id| id.starts_with("m-")) {
                    found.entry(id).or_default().inputs.push(run.clone());
                }
            }
            for output in folders(&folder.join(&run).join("outputs"))? {
                let meta = yaml::read(&output.join(META))?;
                let id = meta.text("destination_id").unwrap_or_else(|| name(&output).to_owned());
                let step = meta.int("step")?.unwrap_or_default();
                found.entry(id).or_default().outputs.push((run.clone(), step));
            }
        }
        Ok(found)
    }
}

fn model(folder: &Path, experiment: &str) -> Result<LoggedModel> {
    let meta = yaml::read(&folder.join(META))?;
    let mut metrics = Vec::new();
    for (key, path) in named_files(&folder.join("metrics"))? {
        let text = read_text(&path, LARGEST_VALUE)?;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let metric = metric(&key, line.trim()).ok_or_else(|| {
                let at = format!("{}:{}", path.display(), at + 1);
                Error::malformed(at, "this is not a metric of a model")
            })?;
            metrics.push(metric);
        }
    }
    Ok(LoggedModel {
        id: name(folder).to_owned(),
        experiment: experiment.to_owned(),
        name: meta.text("name").unwrap_or_default(),
        model_type: meta.text("model_type").unwrap_or_default(),
        source_run: meta.text("source_run_id"),
        status: meta.int("status")?.unwrap_or(2),
        stage: Stage::read(&meta.text("lifecycle_stage").unwrap_or_default()),
        created_at: meta.int("creation_timestamp")?.unwrap_or_default(),
        updated_at: meta.int("last_updated_timestamp")?.unwrap_or_default(),
        params: values(&folder.join("params"))?,
        tags: values(&folder.join("tags"))?,
        metrics,
        artifact_uri: meta.text("artifact_location").unwrap_or_default(),
        ..LoggedModel::default()
    })
}

/// `timestamp value step run`, and the name and digest of a dataset if there is one.
fn metric(key: &str, line: &str) -> Option<ModelMetric> {
    let point = super::runs::point(line)?;
    let mut rest = line.split(' ').skip(3);
    let run = rest.next()?.to_owned();
    let (dataset_name, dataset_digest) = (rest.next(), rest.next());
    Some(ModelMetric {
        key: key.to_owned(),
        value: point.value,
        timestamp: point.timestamp,
        step: point.step,
        run,
        dataset_name: dataset_name.map(str::to_owned),
        dataset_digest: dataset_digest.map(str::to_owned),
    })
}
