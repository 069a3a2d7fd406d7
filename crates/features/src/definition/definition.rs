//! Definitions as they are kept and shown.

use std::sync::Arc;

use falaj_base::{HumanDuration, Resource, Timestamp};
use falaj_governance::tenancy::Project;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::apply::Outcome;
use super::form::{Form, Noun, ViewForm};
use super::spec::{About, CheckEvery};
use crate::name::FeatureName;

/// The number of a version of a definition: small, never used again, the same in every table.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct VersionId(pub i64);

impl From<VersionId> for falaj_store::db::Value {
    fn from(id: VersionId) -> Self {
        Self::Int(id.0)
    }
}

impl std::fmt::Display for VersionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One version of a definition.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Definition {
    /// Which kind it is.
    pub kind: Noun,
    pub name: FeatureName,
    pub version: i64,
    /// The latest version there is.
    pub latest: i64,
    /// The SHA-256 of what it decides.
    pub hash: String,
    pub definition: Form,
    #[serde(flatten)]
    pub about: About,
    /// When this version was declared, and by whom.
    pub created_at: Timestamp,
    pub created_by: String,
    #[serde(skip)]
    #[schemars(skip)]
    pub id: VersionId,
    /// The version that the rows are kept under: that of the first version of a view whose rows are
    /// rows of this one too.
    #[serde(skip)]
    #[schemars(skip)]
    pub rows: VersionId,
}

/// A version of a view, for those who read or write its rows. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ViewVersion(pub(crate) Arc<Definition>);

impl ViewVersion {
    /// None if the definition is of something else.
    #[must_use]
    pub fn of(definition: &Arc<Definition>) -> Option<Self> {
        matches!(definition.definition, Form::View(_)).then(|| Self(definition.clone()))
    }

    #[must_use]
    pub fn id(&self) -> VersionId {
        self.0.id
    }

    /// What its rows are kept under, in the log, in files and online.
    #[must_use]
    pub fn rows(&self) -> VersionId {
        self.0.rows
    }

    #[must_use]
    pub fn name(&self) -> &FeatureName {
        &self.0.name
    }

    #[must_use]
    pub fn version(&self) -> i64 {
        self.0.version
    }

    #[must_use]
    pub fn hash(&self) -> &str {
        &self.0.hash
    }

    /// How old its latest event may be.
    #[must_use]
    pub fn freshness(&self) -> Option<HumanDuration> {
        self.0.about.freshness
    }

    /// How often its latest values are compared with its history.
    #[must_use]
    pub fn check(&self) -> Option<CheckEvery> {
        self.0.about.check
    }

    #[must_use]
    pub fn form(&self) -> &ViewForm {
        match &self.0.definition {
            Form::View(form) => form,
            _ => unreachable!("checked when it was made"),
        }
    }

    /// What everything about it is authorised on.
    #[must_use]
    pub fn resource(&self, project: &Project) -> Resource {
        self.0.resource(project)
    }
}

impl Definition {
    /// What everything about it is authorised on.
    #[must_use]
    pub fn resource(&self, project: &Project) -> Resource {
        described(project, &self.definition, &self.about)
    }
}

/// How a refusal and a *not there* name a definition: alike.
pub(crate) fn shown(noun: Noun, name: &FeatureName) -> String {
    format!("{noun} {name}")
}

/// What a definition of this name is authorised on, there or not. All are of the kind `feature`,
/// so that `feature:read` decides who may know of them.
#[must_use]
pub fn resource(project: &Project, noun: Noun, name: &FeatureName, absent: bool) -> Resource {
    let id = format!("{}/{noun}/{name}", project.id);
    let resource = if absent {
        Resource::absent("feature", id, project.scope())
    } else {
        Resource::new("feature", id, project.scope())
    };
    resource.with(project.attributes()).shown_as(shown(noun, name))
}

/// The same with what a policy may look at.
pub(crate) fn described(project: &Project, form: &Form, about: &About) -> Resource {
    let mut resource = resource(project, form.noun(), form.name(), false);
    let attributes = &mut resource.attributes;
    if let Form::View(view) = form {
        if let Some(classification) = &view.classification {
            attributes.classification = Some(classification.clone());
        }
        if let Some(zone) = &view.zone {
            attributes.zone = Some(zone.to_string());
        }
    }
    attributes.tags.extend(about.tags.clone());
    resource
}

/// What became of a definition, or would.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Applied {
    pub kind: Noun,
    pub name: FeatureName,
    pub outcome: Outcome,
    pub version: i64,
    pub hash: String,
    /// Whether it was asked for; if not, something that it depends on was.
    pub asked: bool,
    /// Of a new version of a view: whether it has the rows of the version before. If not, it begins
    /// without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeps_rows: Option<bool>,
}
