//! What the records of a dataset have in them: which fields, and what kind of value stands in each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// How many fields of each part are listed, and how long a listed name is: a list that nobody can
/// read helps nobody.
const MAX_FIELDS: usize = 1000;
const MAX_NAME: usize = 250;

/// A record's fields, each with its value as it was sent.
pub(super) type Fields = BTreeMap<String, Box<RawValue>>;

/// The kind that each field had when it was first seen. Written as clients read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    inputs: BTreeMap<String, String>,
    outputs: Outputs,
    expectations: BTreeMap<String, String>,
    version: String,
}

/// Outputs need not be an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Outputs {
    Fields(BTreeMap<String, String>),
    Value(String),
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            inputs: BTreeMap::new(),
            outputs: Outputs::Fields(BTreeMap::new()),
            expectations: BTreeMap::new(),
            version: "1.0".to_owned(),
        }
    }
}

impl Shape {
    /// Notes what is new in a record.
    pub(super) fn learn(
        &mut self,
        inputs: &Fields,
        outputs: Option<&RawValue>,
        expectations: Option<&Fields>,
    ) {
        add(&mut self.inputs, inputs);
        if let Some(expectations) = expectations {
            add(&mut self.expectations, expectations);
        }
        let Some(outputs) = outputs.filter(|outputs| kind(outputs) != "null") else { return };
        match (&mut self.outputs, serde_json::from_str::<Fields>(outputs.get())) {
            (Outputs::Fields(known), Ok(fields)) => add(known, &fields),
            (Outputs::Fields(known), Err(_)) if known.is_empty() => {
                self.outputs = Outputs::Value(kind(outputs).to_owned());
            }
            _ => {}
        }
    }
}

fn add(known: &mut BTreeMap<String, String>, fields: &Fields) {
    for (name, value) in fields {
        if name.len() <= MAX_NAME && known.len() < MAX_FIELDS {
            known.entry(name.clone()).or_insert_with(|| kind(value).to_owned());
        }
    }
}

/// The kind of a value, in the words of clients. A value that was read begins with what it is.
fn kind(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'"') => "string",
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b't' | b'f') => "boolean",
        Some(b'n') | None => "null",
        Some(_) if value.get().contains(['.', 'e', 'E']) => "float",
        Some(_) => "integer",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn learned(records: &[(&str, &str, &str)]) -> serde_json::Value {
        let mut shape = Shape::default();
        for (inputs, outputs, expectations) in records {
            let outputs: Box<RawValue> = serde_json::from_str(outputs).unwrap();
            let expectations = serde_json::from_str(expectations).unwrap();
            let inputs = serde_json::from_str(inputs).unwrap();
            shape.learn(&inputs, Some(&outputs), Some(&expectations));
        }
        serde_json::to_value(&shape).unwrap()
    }

    #[test]
    fn the_first_sight_of_a_field_counts() {
        let one =
            r#"{"s": "x", "i": 1, "f": 1.5, "e": 1e3, "n": null, "b": false, "a": [], "o": {}}"#;
        let shape = learned(&[(one, "{}", "{}"), (r#"{"s": 1}"#, r#"{"y": 1}"#, r#"{"z": true}"#)]);
        let kinds = json!({"s": "string", "i": "integer", "f": "float", "e": "float", "n": "null",
            "b": "boolean", "a": "array", "o": "object"});
        assert_eq!(shape["inputs"], kinds);
        assert_eq!(shape["outputs"], json!({"y": "integer"}));
        assert_eq!(shape["expectations"], json!({"z": "boolean"}));
        assert_eq!(shape["version"], "1.0");
        let again: Shape = serde_json::from_value(shape.clone()).unwrap();
        assert_eq!(serde_json::to_value(&again).unwrap(), shape);
    }

    #[test]
    fn outputs_may_be_anything() {
        assert_eq!(learned(&[("{}", "\"x\"", "{}")])["outputs"], "string");
        assert_eq!(learned(&[("{}", "null", "{}")])["outputs"], json!({}));
        let mixed = [("{}", "\"x\"", "{}"), ("{}", r#"{"y": 1}"#, "{}")];
        assert_eq!(learned(&mixed)["outputs"], "string");
    }

    #[test]
    fn it_stays_small() {
        let many: BTreeMap<String, i32> = (0..2000).map(|n| (format!("k{n}"), n)).collect();
        let many = serde_json::to_string(&many).unwrap();
        let long = format!("{{\"{}\": 1}}", "k".repeat(300));
        let shape = learned(&[(&long, "{}", "{}"), (&many, &many, &many)]);
        for part in ["inputs", "outputs", "expectations"] {
            assert_eq!(shape[part].as_object().unwrap().len(), MAX_FIELDS, "{part}");
        }
    }
}
