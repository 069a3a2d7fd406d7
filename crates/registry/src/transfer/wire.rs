//! What an import of models sends and is told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A version. Times are in milliseconds since 1970.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct VersionIn {
    pub(super) version: i64,
    pub(super) description: Option<String>,
    /// None, Staging, Production or Archived.
    pub(super) stage: String,
    /// Where it was registered from, in terms of this server.
    pub(super) source: String,
    /// Where its files are: `mlflow-artifacts:/…` if they came here.
    pub(super) location: String,
    pub(super) run_id: Option<String>,
    #[serde(default)]
    pub(super) run_link: String,
    pub(super) logged_model: Option<String>,
    #[serde(default)]
    pub(super) created_by: String,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
    #[serde(default)]
    pub(super) tags: Vec<(String, String)>,
}

/// A model, with some or all of its versions.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelIn {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
    /// The greatest number that a version ever had, deleted ones included.
    pub(super) last_version: i64,
    #[serde(default)]
    pub(super) tags: Vec<(String, String)>,
    /// Each points at a version that was sent with it or before.
    #[serde(default)]
    pub(super) aliases: Vec<(String, i64)>,
    #[serde(default)]
    pub(super) versions: Vec<VersionIn>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Models {
    pub(super) models: Vec<ModelIn>,
    /// Tell what is here, and change nothing.
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// What is here of a model. A digest is a count and a sum that does not depend on order.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ModelHere {
    pub(super) name: String,
    /// Whether it is new, or would be.
    pub(super) created: bool,
    pub(super) tags: String,
    pub(super) aliases: String,
    pub(super) versions: String,
    /// Moves that did not come along.
    pub(super) left_out: Vec<LeftOut>,
}

/// An alias or a stage that a version had there and did not get here: a rule is in the way, or its
/// files could not be checked.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LeftOut {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) alias: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stage: Option<String>,
    pub(super) version: i64,
    /// Where the alias points, or the stage that the version is in, instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instead: Option<String>,
    pub(super) why: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ModelsHere {
    pub(super) models: Vec<ModelHere>,
}
