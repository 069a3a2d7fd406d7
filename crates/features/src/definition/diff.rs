//! What changed between two versions of a definition, and what depends on it.

use falaj_base::{Error, Result};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::form::Form;

/// One thing that differs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Difference {
    /// Where: `fields.trips.type`.
    pub field: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub before: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub after: Value,
}

/// All that differs between two forms of one definition.
pub fn differences(before: &Form, after: &Form) -> Result<Vec<Difference>> {
    let json = |form: &Form| -> Result<Value> {
        let mut json = match form {
            Form::Entity(form) => serde_json::to_value(form),
            Form::Source(form) => serde_json::to_value(form),
            Form::View(form) => serde_json::to_value(form),
            Form::Service(form) => serde_json::to_value(form),
        }
        .map_err(Error::internal)?;
        if let (Form::Service(_), Value::Object(fields)) = (form, &mut json) {
            // The picks say it all, and more exactly.
            fields.remove("features");
        }
        Ok(json)
    };
    let mut found = Vec::new();
    compare("", &json(before)?, &json(after)?, &mut found);
    Ok(found)
}

fn compare(at: &str, before: &Value, after: &Value, found: &mut Vec<Difference>) {
    if before == after {
        return;
    }
    let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, old) in old {
                compare(&below(name), old, new.get(name).unwrap_or(&Value::Null), found);
            }
            for (name, new) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                compare(&below(name), &Value::Null, new, found);
            }
        }
        (Value::Array(old), Value::Array(new)) if named(old) && named(new) => {
            let by = |all: &[Value], name: &Value| {
                all.iter().find(|one| key(one) == Some(name)).cloned().unwrap_or(Value::Null)
            };
            let before = found.len();
            for name in old.iter().filter_map(key) {
                compare(&below(&text(name)), &by(old, name), &by(new, name), found);
            }
            for name in new.iter().filter_map(key).filter(|name| by(old, name).is_null()) {
                compare(&below(&text(name)), &Value::Null, &by(new, name), found);
            }
            if found.len() == before {
                // The same in another order, which decides the order of columns.
                let names = |all: &[Value]| all.iter().filter_map(key).cloned().collect();
                found.push(Difference {
                    field: at.to_owned(),
                    before: names(old),
                    after: names(new),
                });
            }
        }
        _ => found.push(Difference {
            field: at.to_owned(),
            before: before.clone(),
            after: after.clone(),
        }),
    }
}

/// What an item of a list is known by.
fn key(item: &Value) -> Option<&Value> {
    item.get("name").or_else(|| item.get("view"))
}

fn named(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|item| key(item).is_some())
}

fn text(name: &Value) -> String {
    name.as_str().unwrap_or_default().to_owned()
}
