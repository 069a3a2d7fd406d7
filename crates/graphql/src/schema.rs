//! The types that can be asked for. Names are those of MLflow's schema, since its pages tell
//! objects apart by them.

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Text,
    /// A whole number, written as text: readers in JavaScript would lose digits.
    Long,
    Float,
    Flag,
    Texts,
    One(&'static Type),
    Many(&'static Type),
    /// Looked up by what the object around it says.
    Linked(Link),
    /// What is never there.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    ExperimentOfRun,
    VersionsOfRun,
}

impl Link {
    /// The type of what is looked up.
    pub(crate) fn leads_to(self) -> &'static Type {
        match self {
            Self::ExperimentOfRun => &EXPERIMENT,
            Self::VersionsOfRun => &VERSION,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Type {
    pub(crate) name: &'static str,
    /// What a field is called here, and in the REST protocol.
    pub(crate) fields: &'static [(&'static str, &'static str, Kind)],
}

impl Type {
    pub(crate) fn field(&self, name: &str) -> Option<(&'static str, Kind)> {
        let found = self.fields.iter().find(|(ours, _, _)| *ours == name);
        found.map(|(_, theirs, kind)| (*theirs, *kind))
    }
}

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $shown:literal { $($ours:literal $theirs:literal $kind:expr,)* })*) => {$(
        $(#[$doc])*
        pub(crate) static $name: Type =
            Type { name: $shown, fields: &[$(($ours, $theirs, $kind),)*] };
    )*};
}

use Kind::{Flag, Float, Linked, Long, Many, Nothing, One, Text, Texts};

types! {
    TEST = "Test" { "output" "output" Text, }

    PAIR_OF_EXPERIMENT = "MlflowExperimentTag" { "key" "key" Text, "value" "value" Text, }
    PAIR_OF_RUN = "MlflowRunTag" { "key" "key" Text, "value" "value" Text, }
    PAIR_OF_INPUT = "MlflowInputTag" { "key" "key" Text, "value" "value" Text, }
    PAIR_OF_VERSION = "MlflowModelVersionTag" { "key" "key" Text, "value" "value" Text, }
    PARAM = "MlflowParam" { "key" "key" Text, "value" "value" Text, }
    MODEL_PARAM = "MlflowModelParam" { "name" "name" Text, "value" "value" Text, }

    EXPERIMENT = "MlflowExperiment" {
        "experimentId" "experiment_id" Text,
        "name" "name" Text,
        "artifactLocation" "artifact_location" Text,
        "lifecycleStage" "lifecycle_stage" Text,
        "lastUpdateTime" "last_update_time" Long,
        "creationTime" "creation_time" Long,
        "tags" "tags" Many(&PAIR_OF_EXPERIMENT),
        "effectiveTraceArchivalRetention" "effective_trace_archival_retention" Text,
        "workspace" "workspace" Text,
    }

    GET_EXPERIMENT = "MlflowGetExperimentResponse" {
        "experiment" "experiment" One(&EXPERIMENT),
        "apiError" "api_error" Nothing,
    }

    METRIC = "MlflowMetricExtension" {
        "key" "key" Text,
        "value" "value" Float,
        "timestamp" "timestamp" Long,
        "step" "step" Long,
        "datasetName" "dataset_name" Text,
        "datasetDigest" "dataset_digest" Text,
        "modelId" "model_id" Text,
        "runId" "run_id" Text,
    }

    RUN_INFO = "MlflowRunInfo" {
        "runId" "run_id" Text,
        "runUuid" "run_uuid" Text,
        "runName" "run_name" Text,
        "experimentId" "experiment_id" Text,
        "userId" "user_id" Text,
        "status" "status" Text,
        "startTime" "start_time" Long,
        "endTime" "end_time" Long,
        "artifactUri" "artifact_uri" Text,
        "lifecycleStage" "lifecycle_stage" Text,
    }

    RUN_DATA = "MlflowRunData" {
        "metrics" "metrics" Many(&METRIC),
        "params" "params" Many(&PARAM),
        "tags" "tags" Many(&PAIR_OF_RUN),
    }

    DATASET = "MlflowDataset" {
        "name" "name" Text,
        "digest" "digest" Text,
        "sourceType" "source_type" Text,
        "source" "source" Text,
        "schema" "schema" Text,
        "profile" "profile" Text,
    }

    DATASET_INPUT = "MlflowDatasetInput" {
        "tags" "tags" Many(&PAIR_OF_INPUT),
        "dataset" "dataset" One(&DATASET),
    }

    MODEL_INPUT = "MlflowModelInput" { "modelId" "model_id" Text, }
    MODEL_OUTPUT = "MlflowModelOutput" { "modelId" "model_id" Text, "step" "step" Long, }

    RUN_INPUTS = "MlflowRunInputs" {
        "datasetInputs" "dataset_inputs" Many(&DATASET_INPUT),
        "modelInputs" "model_inputs" Many(&MODEL_INPUT),
    }

    RUN_OUTPUTS = "MlflowRunOutputs" { "modelOutputs" "model_outputs" Many(&MODEL_OUTPUT), }

    RUN = "MlflowRunExtension" {
        "info" "info" One(&RUN_INFO),
        "data" "data" One(&RUN_DATA),
        "inputs" "inputs" One(&RUN_INPUTS),
        "outputs" "outputs" One(&RUN_OUTPUTS),
        "experiment" "experiment" Linked(Link::ExperimentOfRun),
        "modelVersions" "model_versions" Linked(Link::VersionsOfRun),
    }

    GET_RUN = "MlflowGetRunResponse" { "run" "run" One(&RUN), "apiError" "api_error" Nothing, }

    SEARCH_RUNS = "MlflowSearchRunsResponse" {
        "runs" "runs" Many(&RUN),
        "nextPageToken" "next_page_token" Text,
        "apiError" "api_error" Nothing,
    }

    FILE = "MlflowFileInfo" {
        "path" "path" Text,
        "isDir" "is_dir" Flag,
        "fileSize" "file_size" Long,
    }

    LIST_ARTIFACTS = "MlflowListArtifactsResponse" {
        "rootUri" "root_uri" Text,
        "files" "files" Many(&FILE),
        "nextPageToken" "next_page_token" Text,
        "apiError" "api_error" Nothing,
    }

    POINT = "MlflowMetricWithRunId" {
        "key" "key" Text,
        "value" "value" Float,
        "timestamp" "timestamp" Long,
        "step" "step" Long,
        "runId" "run_id" Text,
    }

    HISTORIES = "MlflowGetMetricHistoryBulkIntervalResponse" {
        "metrics" "metrics" Many(&POINT),
        "apiError" "api_error" Nothing,
    }

    SUMMARY = "MlflowDatasetSummary" {
        "experimentId" "experiment_id" Text,
        "name" "name" Text,
        "digest" "digest" Text,
        "context" "context" Text,
    }

    SEARCH_DATASETS = "MlflowSearchDatasetsResponse" {
        "datasetSummaries" "dataset_summaries" Many(&SUMMARY),
        "apiError" "api_error" Nothing,
    }

    VERSION = "MlflowModelVersion" {
        "name" "name" Text,
        "version" "version" Text,
        "creationTimestamp" "creation_timestamp" Long,
        "lastUpdatedTimestamp" "last_updated_timestamp" Long,
        "userId" "user_id" Text,
        "currentStage" "current_stage" Text,
        "description" "description" Text,
        "source" "source" Text,
        "runId" "run_id" Text,
        "status" "status" Text,
        "statusMessage" "status_message" Text,
        "tags" "tags" Many(&PAIR_OF_VERSION),
        "runLink" "run_link" Text,
        "aliases" "aliases" Texts,
        "modelId" "model_id" Text,
        "modelParams" "model_params" Many(&MODEL_PARAM),
        "modelMetrics" "model_metrics" Many(&METRIC),
        "deploymentJobState" "deployment_job_state" Nothing,
    }

    SEARCH_VERSIONS = "MlflowSearchModelVersionsResponse" {
        "modelVersions" "model_versions" Many(&VERSION),
        "nextPageToken" "next_page_token" Text,
        "apiError" "api_error" Nothing,
    }
}
