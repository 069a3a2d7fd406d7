//! Out of an answer of the REST protocol, what was asked for.

use serde_json::{Map, Value};

use crate::document::{Field, Refusal};
use crate::schema::{Kind, Link, Type};

/// What is still to be looked up for an object: where, and what of it.
#[derive(Debug)]
pub(crate) struct Missing<'f> {
    /// The steps from the root of the answer.
    pub(crate) place: Vec<Step>,
    pub(crate) link: Link,
    /// The object that it is looked up by.
    pub(crate) of: Value,
    pub(crate) field: &'f Field,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    At(usize),
}

/// Refuses what there is not, whatever the answer will be.
pub(crate) fn check(of: &Type, fields: &[Field]) -> Result<(), Refusal> {
    for field in fields.iter().filter(|field| field.name != "__typename") {
        let name = &field.name;
        let Some((_, kind)) = of.field(name) else {
            return Err(format!("Cannot query field '{name}' on type '{}'.", of.name));
        };
        let inner = match kind {
            Kind::One(inner) | Kind::Many(inner) => Some(inner),
            Kind::Linked(link) => Some(link.leads_to()),
            Kind::Nothing => continue,
            _ => None,
        };
        match inner {
            Some(inner) if !field.fields.is_empty() => check(inner, &field.fields)?,
            Some(_) => return Err(format!("Field '{name}' must have a selection of subfields.")),
            None if !field.fields.is_empty() => {
                return Err(format!("Field '{name}' must not have a selection of subfields."));
            }
            None => {}
        }
    }
    Ok(())
}

/// Takes apart what was answered, and notes what is still missing.
#[derive(Debug, Default)]
pub(crate) struct Projection<'f> {
    pub(crate) missing: Vec<Missing<'f>>,
    place: Vec<Step>,
}

impl<'f> Projection<'f> {
    /// The fields of an object; they have been checked.
    pub(crate) fn object(&mut self, of: &Type, fields: &'f [Field], value: &Value) -> Value {
        let mut all = Map::new();
        for field in fields {
            let found = match of.field(&field.name) {
                Some((theirs, kind)) => {
                    self.place.push(Step::Key(field.key.clone()));
                    let found = self.value(kind, field, value, value.get(theirs));
                    self.place.pop();
                    found
                }
                None => Value::from(of.name),
            };
            all.insert(field.key.clone(), found);
        }
        Value::Object(all)
    }

    fn value(
        &mut self,
        kind: Kind,
        field: &'f Field,
        around: &Value,
        value: Option<&Value>,
    ) -> Value {
        match kind {
            Kind::Nothing => Value::Null,
            Kind::Text => Value::from(value.and_then(Value::as_str).unwrap_or_default()),
            Kind::Long => {
                Value::from(value.and_then(Value::as_i64).unwrap_or_default().to_string())
            }
            Kind::Flag => Value::from(value.and_then(Value::as_bool).unwrap_or_default()),
            // What is no number in JSON, such as NaN, is told as a text there, and as nothing here.
            Kind::Float => match value {
                None => Value::from(0.0),
                Some(value) => value.as_f64().map_or(Value::Null, Value::from),
            },
            Kind::Texts => value.cloned().unwrap_or_else(|| Value::Array(Vec::new())),
            Kind::One(of) => {
                let empty = Value::Object(Map::new());
                self.object(of, &field.fields, value.unwrap_or(&empty))
            }
            Kind::Many(of) => {
                let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                let mut all = Vec::with_capacity(items.len());
                for (at, item) in items.iter().enumerate() {
                    self.place.push(Step::At(at));
                    all.push(self.object(of, &field.fields, item));
                    self.place.pop();
                }
                Value::Array(all)
            }
            Kind::Linked(link) => {
                let of = around.get("info").cloned().unwrap_or_default();
                self.missing.push(Missing { place: self.place.clone(), link, of, field });
                Value::Null
            }
        }
    }
}

/// Puts what was looked up in its place.
pub(crate) fn put(whole: &mut Value, place: &[Step], found: Value) {
    let mut at = whole;
    for step in place {
        let inner = match step {
            Step::Key(key) => at.get_mut(key),
            Step::At(index) => at.get_mut(index),
        };
        let Some(inner) = inner else { return };
        at = inner;
    }
    *at = found;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::read;
    use crate::schema::{GET_RUN, LIST_ARTIFACTS};

    fn projected(of: &'static Type, text: &str, value: &Value) -> Result<(Value, usize), Refusal> {
        let (_, fields) = read(text, None, &Map::new())?;
        check(of, &fields)?;
        let mut projection = Projection::default();
        let found = projection.object(of, &fields, value);
        Ok((found, projection.missing.len()))
    }

    #[test]
    fn what_is_not_there_reads_as_nothing_of_its_kind() {
        let listed =
            json!({"files": [{"path": "a", "is_dir": true}, {"path": "b", "file_size": 7}]});
        let text = "{ files { path isDir fileSize __typename } rootUri apiError { message } }";
        let expected = json!({
            "files": [
                {"path": "a", "isDir": true, "fileSize": "0", "__typename": "MlflowFileInfo"},
                {"path": "b", "isDir": false, "fileSize": "7", "__typename": "MlflowFileInfo"},
            ],
            "rootUri": "",
            "apiError": null,
        });
        assert_eq!(projected(&LIST_ARTIFACTS, text, &listed).unwrap(), (expected, 0));
    }

    #[test]
    fn nan_is_nothing_and_links_are_noted() {
        let run = json!({"run": {"info": {"experiment_id": "3"}, "data": {"metrics": [
            {"key": "a", "value": "NaN", "step": 2}, {"key": "b", "value": 1.5}]}}});
        let text = "{ run { data { metrics { key value step } } experiment { name } } }";
        let (mut found, missing) = projected(&GET_RUN, text, &run).unwrap();
        assert_eq!(missing, 1);
        let metrics = &found["run"]["data"]["metrics"];
        assert_eq!(metrics[0], json!({"key": "a", "value": null, "step": "2"}));
        assert_eq!(metrics[1], json!({"key": "b", "value": 1.5, "step": "0"}));
        let place = [Step::Key("run".into()), Step::Key("experiment".into())];
        put(&mut found, &place, json!({"name": "x"}));
        assert_eq!(found["run"]["experiment"]["name"], "x");
    }

    #[test]
    fn what_there_is_not_is_refused() {
        for (text, why) in [
            ("{ nothing }", "Cannot query field 'nothing' on type 'MlflowGetRunResponse'"),
            ("{ run }", "must have a selection"),
            ("{ run { info { status { x } } } }", "must not have a selection"),
            ("{ run { info } }", "must have a selection"),
            ("{ run { data { metrics { x } } } }", "Cannot query field 'x'"),
            ("{ run { modelVersions { x } } }", "on type 'MlflowModelVersion'"),
        ] {
            let refusal = projected(&GET_RUN, text, &json!({})).unwrap_err();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
    }
}
