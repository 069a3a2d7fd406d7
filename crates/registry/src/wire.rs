//! Models and versions as MLflow's clients write and read them.

use falaj_base::Result;
use falaj_mlflow::error::{invalid, missing, refused};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::Model;
use crate::tag::Tags;
use crate::version::Version;

/// An empty reply: `{}`.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Nothing {}

/// A tag.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct KeyValue {
    key: Option<String>,
    value: Option<String>,
}

/// The pairs of a list; an absent value is an empty one.
pub(crate) fn pairs(list: Vec<KeyValue>) -> Result<Tags> {
    let pair = |(at, tag): (usize, KeyValue)| {
        let key = tag.key.filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| missing(&format!("tags[{at}].key")))?;
        Ok((key, tag.value.unwrap_or_default()))
    };
    list.into_iter().enumerate().map(pair).collect()
}

impl From<(String, String)> for KeyValue {
    fn from((key, value): (String, String)) -> Self {
        Self { key: Some(key), value: Some(value) }
    }
}

fn tags(tags: Tags) -> Vec<KeyValue> {
    tags.into_iter().map(KeyValue::from).collect()
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AliasShape {
    alias: String,
    version: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelShape {
    name: String,
    creation_timestamp: i64,
    last_updated_timestamp: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    latest_versions: Vec<VersionShape>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<AliasShape>,
}

impl From<Model> for ModelShape {
    fn from(model: Model) -> Self {
        let alias =
            |(alias, version): (String, i64)| AliasShape { alias, version: version.to_string() };
        Self {
            name: model.name,
            creation_timestamp: model.created_at,
            last_updated_timestamp: model.updated_at,
            description: model.description,
            latest_versions: model.latest.into_iter().map(without_aliases).collect(),
            tags: tags(model.tags),
            aliases: model.aliases.into_iter().map(alias).collect(),
        }
    }
}

/// A version as it stands in its model, which lists the aliases itself.
fn without_aliases(version: Version) -> VersionShape {
    VersionShape { aliases: Vec::new(), ..VersionShape::from(version) }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VersionShape {
    name: String,
    version: String,
    creation_timestamp: i64,
    last_updated_timestamp: i64,
    current_stage: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<KeyValue>,
    run_link: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<String>,
    /// The logged model it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    model_id: Option<String>,
}

impl From<Version> for VersionShape {
    fn from(version: Version) -> Self {
        Self {
            name: version.name,
            version: version.number.to_string(),
            creation_timestamp: version.created_at,
            last_updated_timestamp: version.updated_at,
            current_stage: version.stage.as_str(),
            description: version.description,
            source: version.source,
            run_id: version.run_id,
            // A version is there when its request is answered.
            status: "READY",
            tags: tags(version.tags),
            run_link: version.run_link,
            aliases: version.aliases,
            model_id: version.logged_model,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShownModel {
    registered_model: ModelShape,
}

impl From<Model> for ShownModel {
    fn from(model: Model) -> Self {
        Self { registered_model: model.into() }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShownVersion {
    model_version: VersionShape,
}

impl From<Version> for ShownVersion {
    fn from(version: Version) -> Self {
        Self { model_version: version.into() }
    }
}

/// How many results a search may give.
pub(crate) fn limit(asked: Option<i64>, usual: i64, most: i64) -> Result<usize> {
    let asked = asked.unwrap_or(usual);
    if asked > most {
        let why = format!("it must be at most {most}");
        return Err(invalid("max_results", &Value::from(asked.to_string()), &why));
    }
    let positive = usize::try_from(asked).ok().filter(|asked| *asked > 0);
    positive.ok_or_else(|| {
        let text = "Invalid value for max_results. It must be a positive integer, but got";
        refused(format!("{text} {asked}")).at("max_results")
    })
}

/// Where a page of a search begins.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Offset {
    pub(crate) offset: usize,
}
