//! Replies of MLflow's protocol as records.

use falaj_moving::record::{
    Dataset, Experiment, LoggedModel, ModelMetric, Pairs, Point, RegisteredModel, Run, Stage,
    Version,
};
use serde_json::Value;

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn some_text(value: &Value, field: &str) -> Option<String> {
    value[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn int(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[field].as_array().into_iter().flatten()
}

fn pairs(value: &Value, field: &str) -> Pairs {
    list(value, field).map(|pair| (text(pair, "key"), text(pair, "value"))).collect()
}

/// A number, or the name of one that JSON has no digits for.
fn double(value: &Value) -> f64 {
    match value.as_str() {
        Some("Infinity") => f64::INFINITY,
        Some("-Infinity") => f64::NEG_INFINITY,
        Some(_) => f64::NAN,
        None => value.as_f64().unwrap_or_default(),
    }
}

pub(super) fn experiment(from: &Value) -> Experiment {
    Experiment {
        id: text(from, "experiment_id"),
        name: text(from, "name"),
        stage: Stage::read(&text(from, "lifecycle_stage")),
        created_at: int(from, "creation_time"),
        updated_at: int(from, "last_update_time"),
        tags: pairs(from, "tags"),
        artifact_location: text(from, "artifact_location"),
    }
}

pub(super) fn run(from: &Value) -> Run {
    let (info, data) = (&from["info"], &from["data"]);
    let dataset = |input: &Value| {
        let dataset = &input["dataset"];
        Dataset {
            name: text(dataset, "name"),
            digest: text(dataset, "digest"),
            source_type: text(dataset, "source_type"),
            source: text(dataset, "source"),
            schema: some_text(dataset, "schema"),
            profile: some_text(dataset, "profile"),
            tags: pairs(input, "tags"),
        }
    };
    Run {
        id: text(info, "run_id"),
        experiment: text(info, "experiment_id"),
        name: text(info, "run_name"),
        user_id: text(info, "user_id"),
        status: text(info, "status"),
        start_time: int(info, "start_time"),
        end_time: info["end_time"].as_i64(),
        stage: Stage::read(&text(info, "lifecycle_stage")),
        deleted_at: None,
        stays_at: None,
        params: pairs(data, "params"),
        tags: pairs(data, "tags"),
        datasets: list(&from["inputs"], "dataset_inputs").map(dataset).collect(),
        artifact_uri: text(info, "artifact_uri"),
    }
}

/// The names of the metrics that a run has.
pub(super) fn metric_names(run: &Value) -> Vec<String> {
    list(&run["data"], "metrics").map(|metric| text(metric, "key")).collect()
}

/// The models that went into a run, and those that came out with the step.
pub(super) fn models_of(run: &Value) -> (Vec<String>, Vec<(String, i64)>) {
    let id = |model: &Value| text(model, "model_id");
    let inputs = list(&run["inputs"], "model_inputs").map(id).collect();
    let outputs = list(&run["outputs"], "model_outputs").map(|one| (id(one), int(one, "step")));
    (inputs, outputs.collect())
}

pub(super) fn points(page: &Value) -> impl Iterator<Item = Point> + use<'_> {
    list(page, "metrics").map(|point| Point {
        timestamp: int(point, "timestamp"),
        step: int(point, "step"),
        value: double(&point["value"]),
    })
}

pub(super) fn logged_model(from: &Value) -> LoggedModel {
    let (info, data) = (&from["info"], &from["data"]);
    let metric = |metric: &Value| ModelMetric {
        key: text(metric, "key"),
        value: double(&metric["value"]),
        timestamp: int(metric, "timestamp"),
        step: int(metric, "step"),
        run: text(metric, "run_id"),
        dataset_name: some_text(metric, "dataset_name"),
        dataset_digest: some_text(metric, "dataset_digest"),
    };
    LoggedModel {
        id: text(info, "model_id"),
        experiment: text(info, "experiment_id"),
        name: text(info, "name"),
        model_type: text(info, "model_type"),
        source_run: some_text(info, "source_run_id"),
        status: match info["status"].as_str() {
            Some("LOGGED_MODEL_PENDING") => 1,
            Some("LOGGED_MODEL_UPLOAD_FAILED") => 3,
            _ => 2,
        },
        created_at: int(info, "creation_timestamp_ms"),
        updated_at: int(info, "last_updated_timestamp_ms"),
        params: pairs(data, "params"),
        tags: pairs(info, "tags"),
        metrics: list(data, "metrics").map(metric).collect(),
        artifact_uri: text(info, "artifact_uri"),
        ..LoggedModel::default()
    }
}

/// A registered model without its versions.
pub(super) fn registered_model(from: &Value) -> RegisteredModel {
    let number = |alias: &Value| alias["version"].as_str().and_then(|text| text.parse().ok());
    RegisteredModel {
        name: text(from, "name"),
        description: text(from, "description"),
        created_at: int(from, "creation_timestamp"),
        updated_at: int(from, "last_updated_timestamp"),
        tags: pairs(from, "tags"),
        aliases: list(from, "aliases")
            .filter_map(|alias| Some((text(alias, "alias"), number(alias)?)))
            .collect(),
        ..RegisteredModel::default()
    }
}

pub(super) fn version(from: &Value, location: String) -> Version {
    Version {
        version: text(from, "version").parse().unwrap_or_default(),
        description: some_text(from, "description"),
        stage: text(from, "current_stage"),
        source: text(from, "source"),
        location,
        run_id: some_text(from, "run_id"),
        run_link: text(from, "run_link"),
        logged_model: some_text(from, "model_id"),
        created_by: text(from, "user_id"),
        created_at: int(from, "creation_timestamp"),
        updated_at: int(from, "last_updated_timestamp"),
        tags: pairs(from, "tags"),
    }
}
