//! What a model says about itself in its `MLmodel` file: flavours, signature, input example.
//!
//! It is the word of whoever logged the model: shown, and never acted upon.

mod yaml;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// What the file is called, at the root of a model.
pub const FILE: &str = "MLmodel";

/// The largest file that is read.
pub const MAX_BYTES: u64 = 1 << 20;

/// The most flavours that are repeated.
const MAX_FLAVORS: usize = 100;

/// The parts of the file that people ask for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct MlModel {
    /// Such as `python_function` and `sklearn`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flavors: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_example: Option<InputExample>,
    /// The version of MLflow that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mlflow_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
}

/// What goes in and comes out: MLflow's own schemas, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Signature {
    #[serde(skip_serializing_if = "Value::is_null")]
    pub inputs: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub outputs: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub params: Value,
}

/// Where the example lies, and what it is.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct InputExample {
    /// The file, from the model's root.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The example itself, if it is JSON and not too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
}

impl MlModel {
    /// Reads the file. One that is not understood says nothing.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let Some(Value::Object(file)) = yaml::read(text) else { return Self::default() };
        let at = |key: &str| file.get(key).unwrap_or(&Value::Null);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let flavors = at("flavors").as_object().into_iter().flatten();
        let example = at("saved_input_example_info");
        Self {
            flavors: flavors.take(MAX_FLAVORS).map(|(name, _)| name.clone()).collect(),
            signature: at("signature").as_object().map(|signature| {
                let part = |key: &str| schema(signature.get(key));
                Signature {
                    inputs: part("inputs"),
                    outputs: part("outputs"),
                    params: part("params"),
                }
            }),
            input_example: text(&example["artifact_path"]).map(|path| InputExample {
                path,
                kind: text(&example["type"]),
                content: None,
            }),
            mlflow_version: text(at("mlflow_version")),
            created: text(at("utc_time_created")),
        }
    }
}

/// A schema is JSON inside a text; what is not stays the text it is.
fn schema(value: Option<&Value>) -> Value {
    match value {
        Some(Value::String(text)) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
        }
        Some(value) => value.clone(),
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_model_of_today() {
        let text = "\
flavors:
  python_function:
    loader_module: mlflow.sklearn
  sklearn:
    pickled_model: model.pkl
mlflow_version: 3.17.2
saved_input_example_info:
  artifact_path: input_example.json
  type: ndarray
signature:
  inputs: '[{\"type\": \"tensor\", \"tensor-spec\": {\"dtype\": \"float64\", \"shape\":
    [-1, 2]}}]'
  outputs: null
  params: null
utc_time_created: '2026-01-02 03:04:05.678'
";
        let model = MlModel::read(text);
        assert_eq!(model.flavors, ["python_function", "sklearn"]);
        let signature = model.signature.unwrap();
        assert_eq!(signature.inputs[0]["tensor-spec"]["shape"], json!([-1, 2]));
        assert_eq!(signature.outputs, Value::Null);
        assert_eq!(model.input_example.unwrap().path, "input_example.json");
        assert_eq!(model.created.as_deref(), Some("2026-01-02 03:04:05.678"));
        assert_eq!(MlModel::read("\0\u{1}"), MlModel::default());
    }
}
