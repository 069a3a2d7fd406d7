//! `falaj feature get`: the latest values of some entities.

use clap::Args;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::path;
use crate::client::Client;
use crate::commands::InProject;
use crate::context::Context;
use crate::exit::{Failure, Result};

#[derive(Debug, Args)]
pub(super) struct Get {
    /// Features: `view`, `view:feature` or `view@VERSION:feature`.
    #[arg(value_name = "FEATURE", required_unless_present = "service")]
    features: Vec<String>,
    /// A feature service, in place of features.
    #[arg(long, conflicts_with = "features")]
    service: Option<String>,
    /// The values of a join key, one for each entity; once for each join key.
    #[arg(long = "entity", value_name = "KEY=VALUE,…", required = true)]
    entities: Vec<String>,
    #[command(flatten)]
    place: InProject,
}

/// What each letter of a status means.
const STATUS: [(char, &str); 4] = [('p', ""), ('n', "null"), ('m', "missing"), ('e', "expired")];

impl Get {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let entities = entities(&self.entities)?;
        let mut body = json!({ "entities": entities });
        match &self.service {
            Some(service) => body["service"] = service.as_str().into(),
            None => body["features"] = json!(self.features),
        }
        let call = client.call(Method::POST, &path(&self.place, &["online"]))?.body(body);
        let found = client.json(call).await?;
        if ctx.output.is_json() {
            return ctx.output.json(&found);
        }
        let names: Vec<String> = found["features"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(ToOwned::to_owned))
            .collect();
        let keys: Vec<String> = entities.keys().cloned().collect();
        let rows: Vec<Value> = rows(&found, &entities, &names).collect();
        ctx.output.table(&rows, &[keys, names].concat())
    }
}

/// A row for each entity: its keys, and its values or why there are none.
fn rows<'a>(
    found: &'a Value,
    entities: &'a Map<String, Value>,
    names: &'a [String],
) -> impl Iterator<Item = Value> + 'a {
    let values = found["values"].as_array().into_iter().flatten();
    values.enumerate().map(move |(entity, values)| {
        let mut row = Map::new();
        for (key, of) in entities {
            row.insert(key.clone(), of[entity].clone());
        }
        let letters = found["status"][entity].as_str().unwrap_or_default();
        for ((name, value), letter) in names.iter().zip(0..).zip(letters.chars()) {
            let value = &values[value];
            let word = STATUS.iter().find(|(known, _)| *known == letter).map_or("", |it| it.1);
            let shown = if word.is_empty() { value.clone() } else { format!("({word})").into() };
            row.insert(name.clone(), shown);
        }
        Value::Object(row)
    })
}

/// `driver_id=1,2` as lists of values. What reads as a whole number is one.
fn entities(given: &[String]) -> Result<Map<String, Value>> {
    let mut entities = Map::new();
    for one in given {
        let Some((key, values)) = one.split_once('=') else {
            let text = format!("`{one}` is no KEY=VALUE,VALUE");
            return Err(Failure::usage(text).hint("for instance --entity driver_id=1,2"));
        };
        let values: Vec<Value> = values.split(',').map(value).collect();
        if entities.insert(key.to_owned(), Value::Array(values)).is_some() {
            return Err(Failure::usage(format!("the join key {key} is given twice")));
        }
    }
    Ok(entities)
}

/// A text in quotes is one, whatever stands in it.
pub(super) fn value(text: &str) -> Value {
    if let Some(inside) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        return inside.into();
    }
    match text {
        "true" => true.into(),
        "false" => false.into(),
        "" | "null" => Value::Null,
        text => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_lists_by_key() {
        let given = ["id=1,-2,x".to_owned(), "day=\"7\",true,".to_owned()];
        let expected = json!({ "id": [1, -2, "x"], "day": ["7", true, null] });
        assert_eq!(Value::Object(entities(&given).unwrap()), expected);
        for bad in [vec!["id".to_owned()], vec!["a=1".to_owned(), "a=2".to_owned()]] {
            assert!(entities(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_not_there_says_why() {
        let found = json!({ "features": ["s:a", "s:b"], "values": [[7, null], [null, null]],
            "status": ["pn", "me"] });
        let entities = entities(&["id=1,2".to_owned()]).unwrap();
        let names = ["s:a".to_owned(), "s:b".to_owned()];
        let rows: Vec<_> = rows(&found, &entities, &names).collect();
        assert_eq!(rows[0], json!({ "id": 1, "s:a": 7, "s:b": "(null)" }));
        assert_eq!(rows[1], json!({ "id": 2, "s:a": "(missing)", "s:b": "(expired)" }));
    }
}
