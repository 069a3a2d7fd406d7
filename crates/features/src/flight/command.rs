//! What Feast's offline store asks for.

use arrow_schema::{DataType, Schema};
use falaj_base::{Error, Result, code};
use serde::Deserialize;
use serde_json::Value;

use crate::reference::Reference;
use crate::training::What;

/// The command of an exchange. Newer clients send more, which is passed over.
#[derive(Debug, Deserialize)]
struct Command {
    api: String,
    #[serde(default)]
    feature_refs: Vec<String>,
    #[serde(default)]
    full_feature_names: bool,
    #[serde(default)]
    entity_df_sql: Option<Value>,
    #[serde(default)]
    start_date: Option<Value>,
    #[serde(default)]
    end_date: Option<Value>,
}

/// The features that a command asks for.
pub(super) fn read(bytes: &[u8]) -> Result<What> {
    let command: Command = serde_json::from_slice(bytes).map_err(|error| {
        Error::new(&code::MALFORMED_BODY, format!("the command is not one of Feast's: {error}"))
    })?;
    if command.api != "get_historical_features" {
        let allowed = "get_historical_features";
        return Err(Error::invalid("api", command.api, allowed));
    }
    let given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    if given(&command.entity_df_sql) {
        let allowed = "a table of entities: SQL is not run here";
        return Err(Error::invalid("entity_df_sql", "given", allowed));
    }
    if given(&command.start_date) || given(&command.end_date) {
        let allowed = "a table of entities with a time for each row";
        return Err(Error::invalid("start_date", "given", allowed));
    }
    let features: Result<Vec<Reference>> = command
        .feature_refs
        .iter()
        .enumerate()
        .map(|(place, text)| {
            text.parse::<Reference>().map_err(|error| error.at(format!("feature_refs[{place}]")))
        })
        .collect();
    Ok(What {
        features: features?,
        full_feature_names: command.full_feature_names,
        ..What::default()
    })
}

/// The column that Feast takes for the time of a row: `event_timestamp`, or the only one of times.
pub(super) fn time_column(schema: &Schema) -> Result<String> {
    const USUAL: &str = "event_timestamp";
    if schema.column_with_name(USUAL).is_some() {
        return Ok(USUAL.to_owned());
    }
    let times: Vec<_> = schema
        .fields()
        .iter()
        .filter(|field| matches!(field.data_type(), DataType::Timestamp(..)))
        .map(|field| field.name().clone())
        .collect();
    if let [only] = times.as_slice() {
        return Ok(only.clone());
    }
    let found = if times.is_empty() { "absent".to_owned() } else { times.join(", ") };
    Err(Error::invalid("moments", found, "a column `event_timestamp`, or one of times"))
}

#[cfg(test)]
mod tests {
    use arrow_schema::{Field, TimeUnit};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_is_read_and_others_are_refused() {
        let good = json!({
            "command_id": "x", "api": "get_historical_features", "feature_view_names": ["v"],
            "name_aliases": [null], "feature_refs": ["v:a", "v@v2:b"], "project": "p",
            "full_feature_names": true,
        });
        let what = read(good.to_string().as_bytes()).unwrap();
        assert!(what.full_feature_names);
        assert_eq!(what.features[1].version, Some(2));
        for (field, value) in [
            ("api", json!("offline_write_batch")),
            ("entity_df_sql", json!("SELECT 1")),
            ("start_date", json!("2026-01-01")),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            assert_eq!(read(bad.to_string().as_bytes()).unwrap_err().field(), Some(field));
        }
        assert!(read(b"{").is_err());
    }

    #[test]
    fn the_time_is_found_as_feast_finds_it() {
        let time = || DataType::Timestamp(TimeUnit::Nanosecond, None);
        let schema = |names: &[&str]| {
            Schema::new(names.iter().map(|it| Field::new(*it, time(), true)).collect::<Vec<_>>())
        };
        assert_eq!(time_column(&schema(&["a", "event_timestamp"])).unwrap(), "event_timestamp");
        assert_eq!(time_column(&schema(&["a"])).unwrap(), "a");
        assert!(time_column(&schema(&["a", "b"])).is_err());
        assert!(time_column(&schema(&[])).is_err());
    }
}
