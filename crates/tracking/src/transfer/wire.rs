//! What an import sends and is told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::experiment::Stage;

/// Whether something was there or in the bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum StageIn {
    #[default]
    Active,
    Deleted,
}

impl From<StageIn> for Stage {
    fn from(stage: StageIn) -> Self {
        match stage {
            StageIn::Active => Self::Active,
            StageIn::Deleted => Self::Deleted,
        }
    }
}

/// An experiment. Times are in milliseconds since 1970.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExperimentIn {
    /// Its id there; kept if it is free here.
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) stage: StageIn,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
    #[serde(default)]
    pub(super) tags: Vec<(String, String)>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExperimentsIn {
    /// A name for the store that they come from, the same every time.
    pub(super) source: String,
    pub(super) experiments: Vec<ExperimentIn>,
    /// Tell what would happen, and change nothing.
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// Where an experiment landed.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Landed {
    /// Its id there.
    pub(super) source: String,
    /// Its id here.
    pub(super) id: String,
    /// Whether it is new.
    pub(super) created: bool,
    /// Whether it is in the bin here.
    pub(super) stage: Stage,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LandedAll {
    pub(super) experiments: Vec<Landed>,
}

/// A dataset that went into a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DatasetIn {
    pub(super) name: String,
    pub(super) digest: String,
    pub(super) source_type: String,
    pub(super) source: String,
    pub(super) schema: Option<String>,
    pub(super) profile: Option<String>,
    #[serde(default)]
    pub(super) tags: Vec<(String, String)>,
}

/// A run, without its points.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunIn {
    pub(super) id: String,
    /// The experiment's id here.
    pub(super) experiment: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) user_id: String,
    /// RUNNING, SCHEDULED, FINISHED, FAILED or KILLED.
    pub(super) status: String,
    pub(super) start_time: i64,
    pub(super) end_time: Option<i64>,
    #[serde(default)]
    pub(super) stage: StageIn,
    pub(super) deleted_at: Option<i64>,
    /// Where its files are, if they stay where they are; absent if they come here.
    pub(super) artifact_uri: Option<String>,
    #[serde(default)]
    pub(super) params: Vec<(String, String)>,
    #[serde(default)]
    pub(super) tags: Vec<(String, String)>,
    #[serde(default)]
    pub(super) datasets: Vec<DatasetIn>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Runs {
    /// A name for the store that they come from, the same every time.
    pub(super) source: String,
    pub(super) runs: Vec<RunIn>,
}

/// Points of one metric of one run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SeriesIn {
    pub(super) run: String,
    pub(super) key: String,
    /// Base64 of 24 bytes for each point: timestamp, step and value, little endian.
    pub(super) points: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Points {
    /// A name for the store that they come from, the same every time.
    pub(super) source: String,
    pub(super) series: Vec<SeriesIn>,
}

/// A metric that describes a logged model.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelMetricIn {
    pub(super) key: String,
    /// A number as text, which keeps every digit; `NaN` is one.
    pub(super) value: String,
    pub(super) timestamp: i64,
    pub(super) step: i64,
    pub(super) run: String,
    pub(super) dataset_name: Option<String>,
    pub(super) dataset_digest: Option<String>,
}

/// A logged model, and the runs that used or made it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LoggedModelIn {
    pub(super) id: String,
    /// The experiment's id here.
    pub(super) experiment: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) model_type: String,
    pub(super) source_run: Option<String>,
    /// 1 pending, 2 ready, 3 failed.
    pub(super) status: i64,
    #[serde(default)]
    pub(super) stage: StageIn,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
    pub(super) artifact_uri: Option<String>,
    #[serde(default)]
    pub(super) params: Vec<(String, String)>,
    #[serde(default)]
    pub(super) tags: Vec<(String, String)>,
    #[serde(default)]
    pub(super) metrics: Vec<ModelMetricIn>,
    /// The runs it went into.
    #[serde(default)]
    pub(super) inputs: Vec<String>,
    /// The runs it came out of, and at which step.
    #[serde(default)]
    pub(super) outputs: Vec<(String, i64)>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LoggedModels {
    /// A name for the store that they come from, the same every time.
    pub(super) source: String,
    pub(super) logged_models: Vec<LoggedModelIn>,
}

/// How much a batch brought.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Imported {
    pub(super) count: usize,
    /// What a sync does not touch: it was deleted or purged here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) left_out: Vec<LeftAlone>,
}

/// A run or logged model that nothing was written to, and what became of it here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct LeftAlone {
    pub(super) id: String,
    pub(super) stage: StageHere,
}

/// Which runs and logged models to look at.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Asked {
    pub(super) runs: Vec<String>,
    pub(super) logged_models: Vec<String>,
    /// Whether to tell each metric of a run by itself as well.
    pub(super) series: bool,
}

/// What is here of a run. A digest is a count and a sum that does not depend on order.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RunHere {
    pub(super) id: String,
    pub(super) experiment: String,
    pub(super) status: &'static str,
    pub(super) stage: &'static str,
    pub(super) params: String,
    pub(super) tags: String,
    pub(super) points: String,
    pub(super) datasets: String,
    /// Of each metric its name and the digest of its points, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) series: Option<Vec<(String, String)>>,
}

/// What is here of a logged model.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ModelHere {
    pub(super) id: String,
    pub(super) experiment: String,
    pub(super) stage: &'static str,
    pub(super) params: String,
    pub(super) tags: String,
    pub(super) metrics: String,
    /// The runs it went into and came out of.
    pub(super) links: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Here {
    pub(super) runs: Vec<RunHere>,
    pub(super) logged_models: Vec<ModelHere>,
    /// Those that one request had no room for: ask for them again.
    pub(super) left: Asked,
}

/// Which of what came from a source to tell, after which.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MarksAsked {
    pub(super) source: String,
    /// `next` of the reply before.
    #[serde(default)]
    pub(super) after: String,
}

/// Whether something that came is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum StageHere {
    Active,
    Deleted,
    /// It was purged.
    Gone,
}

/// Something that came from a source.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Marked {
    /// Of a run or a logged model.
    pub(super) id: String,
    /// What the source said it looked like when all of it had come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mark: Option<String>,
    pub(super) stage: StageHere,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Marks {
    pub(super) marks: Vec<Marked>,
    /// What to ask after for more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

/// Runs and logged models of which all came over: each with what its source looked like.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settled {
    pub(super) source: String,
    #[serde(default)]
    pub(super) runs: Vec<(String, String)>,
    #[serde(default)]
    pub(super) logged_models: Vec<(String, String)>,
}

/// Which files to list: those below a folder of the project, after a name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FilesAsked {
    /// `<experiment>/<run>/artifacts`, or `<experiment>/models/<model>/artifacts`.
    pub(super) folder: String,
    #[serde(default)]
    pub(super) after: String,
}

/// One file.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct FileHere {
    /// From the folder.
    pub(super) path: String,
    pub(super) size: u64,
    /// Absent if it was sent in parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct FilesHere {
    pub(super) files: Vec<FileHere>,
    /// What to ask after for more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}
