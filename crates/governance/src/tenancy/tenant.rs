//! What a tenant is.

use falaj_base::{Name, Resource, Scope, TenantId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A tenant: a customer, a company, a department with walls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tenant {
    pub id: TenantId,
    pub name: Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The zone its own records lie in.
    pub zone: Name,
    /// The zones its projects may lie in.
    pub allowed_zones: Vec<Name>,
    pub created_at: Timestamp,
}

impl Tenant {
    #[must_use]
    pub fn resource(&self) -> Resource {
        Resource::new("tenant", self.id, Scope::Tenant(self.id))
            .in_zone(self.zone.as_str())
            .shown_as(self.name.as_str())
    }
}

/// What is needed to create one.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTenant {
    pub name: Name,
    #[schemars(length(max = 256))]
    pub display_name: Option<String>,
    /// The platform's default zone if absent.
    pub zone: Option<Name>,
    /// Its own zone alone if absent.
    #[schemars(length(max = 32))]
    pub allowed_zones: Option<Vec<Name>>,
}

/// What can be changed later. An absent field stays as it is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantPatch {
    #[schemars(length(max = 256))]
    pub display_name: Option<String>,
    #[schemars(length(max = 32))]
    pub allowed_zones: Option<Vec<Name>>,
}
