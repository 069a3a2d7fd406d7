//! What a project is.

use std::collections::BTreeMap;

use falaj_base::{Attributes, Name, ProjectId, Resource, Scope, TenantId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A project inside a tenant: where experiments, models, data and jobs live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Project {
    pub id: ProjectId,
    pub tenant_id: TenantId,
    /// The tenant's name.
    pub tenant: Name,
    pub name: Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    pub zone: Name,
    /// How sensitive its contents are, for policies: `public`, `internal`, `pii`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classification: Option<String>,
    /// What its data may be used for, for policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub created_at: Timestamp,
}

impl Project {
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::Project(self.tenant_id, self.id)
    }

    /// The attributes that things inside the project inherit.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        Attributes {
            zone: Some(self.zone.to_string()),
            classification: self.classification.clone(),
            purpose: self.purpose.clone(),
            tags: self.tags.clone(),
        }
    }

    #[must_use]
    pub fn resource(&self) -> Resource {
        Resource::new("project", self.id, self.scope())
            .with(self.attributes())
            .shown_as(format!("{}/{}", self.tenant, self.name))
    }
}

/// What is needed to create one.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewProject {
    pub name: Name,
    #[schemars(length(max = 256))]
    pub display_name: Option<String>,
    /// The tenant's own zone if absent.
    pub zone: Option<Name>,
    #[schemars(length(max = 64))]
    pub classification: Option<String>,
    #[schemars(length(max = 256))]
    pub purpose: Option<String>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// What can be changed later. An absent field stays as it is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectPatch {
    #[schemars(length(max = 256))]
    pub display_name: Option<String>,
    #[schemars(length(max = 64))]
    pub classification: Option<String>,
    #[schemars(length(max = 256))]
    pub purpose: Option<String>,
    pub tags: Option<BTreeMap<String, String>>,
}
