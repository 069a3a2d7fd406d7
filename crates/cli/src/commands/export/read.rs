//! Replies of MLflow's protocol as records.

use falaj_base::Timestamp;
use falaj_moving::record::{
    Assessment, Dataset, Experiment, LoggedModel, ModelMetric, Pairs, Point, RegisteredModel, Run,
    Stage, Trace, Version,
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

/// A time in milliseconds.
fn moment(value: &Value) -> i64 {
    let time = value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    time.map(|time| time.micros() / 1000).unwrap_or_default()
}

/// `1.5s` in milliseconds.
fn duration(value: &Value) -> Option<i64> {
    let text = value.as_str()?.strip_suffix('s')?;
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let thousandths: i64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    Some(sign * (whole.parse::<i64>().ok()? * 1000 + thousandths))
}

fn map(value: &Value) -> Pairs {
    let all = value.as_object().into_iter().flatten();
    let mut pairs: Pairs = all
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    pairs.sort();
    pairs
}

/// A trace without its spans.
pub(super) fn trace(from: &Value, experiment: &str) -> Trace {
    let mut assessments: Vec<Assessment> = list(from, "assessments").map(assessment).collect();
    assessments.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    let state = text(from, "state");
    Trace {
        id: text(from, "trace_id"),
        experiment: experiment.to_owned(),
        timestamp: moment(&from["request_time"]),
        duration: duration(&from["execution_duration"]),
        // In the word of the tables.
        state: if state.is_empty() { "STATE_UNSPECIFIED".to_owned() } else { state },
        client_request_id: some_text(from, "client_request_id"),
        request_preview: some_text(from, "request_preview"),
        response_preview: some_text(from, "response_preview"),
        tags: map(&from["tags"]),
        metadata: map(&from["trace_metadata"]),
        assessments,
    }
}

fn assessment(from: &Value) -> Assessment {
    let (feedback, expectation, issue) = (&from["feedback"], &from["expectation"], &from["issue"]);
    let serialized = expectation["serialized_value"]["value"].as_str().map(str::to_owned);
    let (kind, value) = if issue.is_object() {
        ("issue", issue.to_string())
    } else if expectation.is_object() {
        ("expectation", serialized.unwrap_or_else(|| expectation["value"].to_string()))
    } else {
        ("feedback", feedback["value"].to_string())
    };
    let object = |value: &Value| value.is_object().then(|| value.to_string());
    Assessment {
        id: text(from, "assessment_id"),
        name: text(from, "assessment_name"),
        kind: kind.to_owned(),
        value,
        error: object(&feedback["error"]),
        source_type: text(&from["source"], "source_type"),
        source_id: some_text(&from["source"], "source_id"),
        span: some_text(from, "span_id"),
        rationale: some_text(from, "rationale"),
        metadata: object(&from["metadata"]),
        overrides: some_text(from, "overrides"),
        valid: from["valid"] != false,
        created_at: moment(&from["create_time"]),
        updated_at: moment(&from["last_update_time"]),
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
