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

/// A version of another store. Its number there is told; the one here is given when it comes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SyncedVersion {
    pub(super) version: i64,
    /// Where its files are, in terms of this server; empty if they are not here.
    pub(super) source: String,
    pub(super) run_id: Option<String>,
    /// A logged model.
    pub(super) model_id: Option<String>,
    #[serde(default)]
    pub(super) run_link: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) tags: Vec<(String, String)>,
}

/// A model of another store, with some or all of its versions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SyncedModel {
    /// A name for the store that it comes from, the same every time.
    pub(super) source: String,
    pub(super) name: String,
    /// What a new model gets; one that is here keeps its own.
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) tags: Vec<(String, String)>,
    #[serde(default)]
    pub(super) versions: Vec<SyncedVersion>,
}

/// What became of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Registered,
    /// It was registered before, and may have been deleted since.
    Known,
    /// Its model was deleted here.
    LeftOut,
    Refused,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct VersionOutcome {
    /// Its number there.
    pub(super) version: i64,
    pub(super) outcome: Outcome,
    /// Its number here, if it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
}

impl VersionOutcome {
    pub(super) fn of(version: i64, outcome: Outcome) -> Self {
        Self { version, outcome, number: None, why: None }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Synced {
    /// Whether the model is new.
    pub(super) created: bool,
    /// Its name here; none if it was deleted since it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    pub(super) versions: Vec<VersionOutcome>,
}
