//! What an artifact is.

use falaj_base::{BlobId, ProjectId, Resource, Scope, TenantId, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::path::ArtifactPath;
use crate::experiment::ExperimentId;
use crate::run::RunId;

/// A file, without its content.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// Changes whenever the content does.
    pub id: Uuid,
    pub path: ArtifactPath,
    pub experiment: Option<ExperimentId>,
    pub run: Option<RunId>,
    pub model: Option<String>,
    /// The content; absent if it lies in parts.
    pub(super) blob: Option<BlobId>,
    /// Bytes of content.
    pub size: u64,
    pub content_type: String,
    pub created_at: Timestamp,
}

impl Artifact {
    /// Whether the content is one piece, whose digest is known without reading it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.blob.is_some()
    }

    /// The name under which it refers to its blob.
    pub(super) fn claim(&self) -> String {
        self.id.simple().to_string()
    }

    /// What reading it by a signed URL is recorded on.
    pub(super) fn resource(&self, tenant: TenantId, project: ProjectId) -> Resource {
        recorded_on((tenant, project), self.experiment, self.path.as_str())
    }

    /// What events and the audit log say of it.
    pub(super) fn shown(&self) -> serde_json::Value {
        serde_json::json!({
            "path": self.path.as_str(),
            "size": self.size,
            "experiment_id": self.experiment.map(|id| id.to_string()),
            "run_id": self.run.map(|id| id.to_string()),
            "model_id": self.model,
        })
    }
}

/// What acts on a path are recorded on where the caller's own rights were looked at before.
pub(super) fn recorded_on(
    (tenant, project): (TenantId, ProjectId),
    experiment: Option<ExperimentId>,
    path: &str,
) -> Resource {
    let scope = Scope::Project(tenant, project);
    match experiment {
        Some(id) => Resource::new("experiment", format!("{project}/{id}"), scope),
        None => Resource::new("artifact", format!("{project}/{path}"), scope),
    }
}

#[allow(clippy::ref_option, reason = "serde hands over a reference")]
fn nothing(size: &Option<u64>) -> bool {
    size.unwrap_or_default() == 0
}

/// An entry of a list, as clients read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileInfo {
    pub path: String,
    pub is_dir: bool,
    /// Bytes; absent for folders, and, as in MLflow, for empty files.
    #[serde(skip_serializing_if = "nothing")]
    pub file_size: Option<u64>,
}
