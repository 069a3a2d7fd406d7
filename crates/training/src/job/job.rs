//! What a job is.

use falaj_base::{Name, PrincipalId, ProjectId, Resource, TenantId, Timestamp};
use falaj_governance::tenancy::Project;
use schemars::JsonSchema;
use serde::Serialize;

use super::definition::Definition;
use super::state::{State, Tally};
use crate::name::JobId;

/// A job as it is shown.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Job {
    pub id: JobId,
    pub name: String,
    pub state: State,
    /// Why it is in that state, where there is something to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub pool: Name,
    /// The zones it may run in.
    pub zones: Vec<Name>,
    pub tasks: Tally,
    /// The run that it is tracked as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment_id: Option<String>,
    pub created_at: Timestamp,
    pub created_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When somebody asked for its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_requested_at: Option<Timestamp>,
    /// Since when a start of it does not use what it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    pub definition: Definition,
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) tenant: TenantId,
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) project: ProjectId,
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) owner: Owner,
}

/// Whom a job acts for.
#[derive(Clone, Debug)]
pub struct Owner {
    pub id: PrincipalId,
    pub home: Option<TenantId>,
    /// Whether it is the platform itself, which has no tokens.
    pub is_system: bool,
}

impl Default for Owner {
    fn default() -> Self {
        Self { id: PrincipalId::from_uuid(uuid::Uuid::nil()), home: None, is_system: true }
    }
}

/// What everything about a job is authorised on.
pub(crate) fn resource(project: &Project, id: &str, absent: bool) -> Resource {
    let resource = if absent {
        Resource::absent("job", id, project.scope())
    } else {
        Resource::new("job", id, project.scope())
    };
    resource.with(project.attributes())
}
