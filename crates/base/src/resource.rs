//! What an action is done *to*, as far as a policy may look at it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{ProjectId, TenantId};

/// Where in the tree something lives. A role bound on a scope holds for everything below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    Platform,
    Tenant(TenantId),
    Project(TenantId, ProjectId),
}

impl Scope {
    #[must_use]
    pub const fn tenant(&self) -> Option<TenantId> {
        match self {
            Self::Platform => None,
            Self::Tenant(tenant) | Self::Project(tenant, _) => Some(*tenant),
        }
    }

    #[must_use]
    pub const fn project(&self) -> Option<ProjectId> {
        match self {
            Self::Platform | Self::Tenant(_) => None,
            Self::Project(_, project) => Some(*project),
        }
    }

    /// Whether `other` is this scope or lies below it.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        match self {
            Self::Platform => true,
            Self::Tenant(tenant) => other.tenant() == Some(*tenant),
            Self::Project(..) => self == other,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform => f.write_str("platform"),
            Self::Tenant(tenant) => write!(f, "{tenant}"),
            Self::Project(tenant, project) => write!(f, "{tenant}/{project}"),
        }
    }
}

/// What a policy may ask about a resource beyond its place in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attributes {
    /// The residency zone the resource lies in.
    pub zone: Option<String>,
    /// For instance `public`, `internal`, `pii`.
    pub classification: Option<String>,
    /// What the data may be used for.
    pub purpose: Option<String>,
    pub tags: BTreeMap<String, String>,
}

/// Where an action would put or move data, and whether the residency rules let it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    pub zone: String,
    pub allowed: bool,
}

/// One thing an action is done to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// A plain noun: `tenant`, `project`, `object`.
    pub kind: &'static str,
    /// The id, or for something not yet made the id it will have.
    pub id: String,
    pub scope: Scope,
    pub attributes: Attributes,
    /// What the caller called it, if that was not its id. A refusal repeats this and never the
    /// id, so that *not yours* reads like *not there*.
    pub shown: Option<String>,
    /// Whether the caller named something that does not exist: see [`Resource::absent`].
    pub absent: bool,
    pub destination: Option<Destination>,
}

impl Resource {
    #[must_use]
    pub fn new(kind: &'static str, id: impl fmt::Display, scope: Scope) -> Self {
        Self {
            kind,
            id: id.to_string(),
            scope,
            attributes: Attributes::default(),
            shown: None,
            absent: false,
            destination: None,
        }
    }

    /// Something the caller named and that is not there. It is authorised like the real thing, in
    /// the scope it would lie in, so that a caller without rights leaves the same trace; whether
    /// allowed or refused, the answer is then `Error::not_found(kind, name)`.
    #[must_use]
    pub fn absent(kind: &'static str, name: impl fmt::Display, scope: Scope) -> Self {
        Self { absent: true, ..Self::new(kind, name, scope) }
    }

    /// The platform itself: what listing tenants, reading metrics or taking a backup act on.
    #[must_use]
    pub fn platform() -> Self {
        Self::new("platform", "platform", Scope::Platform)
    }

    #[must_use]
    pub fn with(mut self, attributes: Attributes) -> Self {
        self.attributes = attributes;
        self
    }

    #[must_use]
    pub fn in_zone(mut self, zone: impl Into<String>) -> Self {
        self.attributes.zone = Some(zone.into());
        self
    }

    /// Notes the name the caller used, which is what a refusal repeats.
    #[must_use]
    pub fn shown_as(mut self, name: impl fmt::Display) -> Self {
        self.shown = Some(name.to_string());
        self
    }

    /// Notes the zone that data would go to and what the residency rules say to that.
    #[must_use]
    pub fn bound_for(mut self, zone: impl Into<String>, allowed: bool) -> Self {
        self.destination = Some(Destination { zone: zone.into(), allowed });
        self
    }

    /// The name to use towards the caller.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.shown.as_deref().unwrap_or(&self.id)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.id)
    }
}
