//! What a dataset is.

use std::collections::BTreeMap;
use std::fmt;

use falaj_base::{Error, HumanDuration, Resource, Result, Timestamp};
use falaj_governance::tenancy::Project;
use falaj_store::db::{FromValue, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::name::DatasetName;
use crate::version::Tag;

const MAX_KEY: usize = 64;
const MAX_COLUMN: usize = 256;
const MAX_OWNER: usize = 256;
const MAX_DESCRIPTION: usize = 4096;
const MAX_LABELS: usize = 64;
const MAX_LABEL: usize = 256;
const MAX_CLASSIFICATION: usize = 63;

/// The id of a dataset, under which its files are claimed: a name may be used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatasetId(String);

impl DatasetId {
    pub(crate) fn new() -> Self {
        Self(format!("dset_{}", Uuid::now_v7().simple()))
    }
}

impl fmt::Display for DatasetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&DatasetId> for Value {
    fn from(id: &DatasetId) -> Self {
        Self::Text(id.0.clone())
    }
}

impl FromValue for DatasetId {
    fn from_value(value: &Value) -> Option<Self> {
        String::from_value(value).map(Self)
    }
}

/// How long old versions are kept. The latest and those with a tag always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keep {
    /// So many of the newest versions; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub versions: Option<u32>,
    /// Those that are younger than this; all if absent. A version is removed once neither rule
    /// keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age: Option<HumanDuration>,
}

impl Keep {
    /// Whether anything is ever removed.
    pub(crate) fn ends(&self) -> bool {
        self.versions.is_some() || self.age.is_some()
    }
}

/// What people say of a dataset. It is changed in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Described {
    /// The columns that tell one row from another, for comparisons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// Who answers for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// For searches and policies.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How sensitive it is, for policies: `public`, `internal`, `pii`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classification: Option<String>,
    /// How long old versions are kept; for ever if absent.
    pub keep: Keep,
}

/// A request for a dataset.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDataset {
    pub name: DatasetName,
    #[serde(default)]
    pub key: Vec<String>,
    #[serde(default)]
    pub owner: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub classification: Option<String>,
    #[serde(default)]
    pub keep: Keep,
}

impl NewDataset {
    pub(crate) fn split(self) -> (DatasetName, Described) {
        let Self { name, key, owner, description, labels, classification, keep } = self;
        (name, Described { key, owner, description, labels, classification, keep })
    }
}

/// A dataset as it is shown.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Dataset {
    pub name: DatasetName,
    #[serde(flatten)]
    pub about: Described,
    /// The number of its latest version; absent while it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    pub created_at: Timestamp,
    pub created_by: String,
    pub updated_at: Timestamp,
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) id: DatasetId,
}

impl Dataset {
    /// What everything about it is authorised on.
    #[must_use]
    pub fn resource(&self, project: &Project) -> Resource {
        described(project, &self.name, &self.about)
    }
}

/// What a dataset of this name is authorised on, there or not.
pub(crate) fn resource(project: &Project, name: &str, absent: bool) -> Resource {
    let id = format!("{}/{name}", project.id);
    let resource = if absent {
        Resource::absent("dataset", id, project.scope())
    } else {
        Resource::new("dataset", id, project.scope())
    };
    resource.with(project.attributes()).shown_as(name)
}

/// The same with what a policy may look at.
pub(crate) fn described(project: &Project, name: &DatasetName, about: &Described) -> Resource {
    let mut resource = resource(project, name.as_str(), false);
    if let Some(classification) = &about.classification {
        resource.attributes.classification = Some(classification.clone());
    }
    resource.attributes.tags.extend(about.labels.clone());
    resource
}

impl Described {
    pub(crate) fn check(&self) -> Result<()> {
        if self.key.len() > MAX_KEY {
            return Err(Error::invalid(
                "key",
                self.key.len(),
                format!("at most {MAX_KEY} columns"),
            ));
        }
        for (place, column) in self.key.iter().enumerate() {
            let field = format!("key[{place}]");
            bounded(&field, column, MAX_COLUMN)?;
            if self.key[..place].contains(column) {
                return Err(Error::invalid(field, column, "each column once"));
            }
        }
        for (field, text, most) in [
            ("owner", &self.owner, MAX_OWNER),
            ("description", &self.description, MAX_DESCRIPTION),
            ("classification", &self.classification, MAX_CLASSIFICATION),
        ] {
            text.as_ref().map_or(Ok(()), |text| bounded(field, text, most))?;
        }
        if self.labels.len() > MAX_LABELS {
            return Err(Error::invalid(
                "labels",
                self.labels.len(),
                format!("at most {MAX_LABELS}"),
            ));
        }
        for (key, value) in &self.labels {
            bounded("labels", key, MAX_LABEL)?;
            if value.len() > MAX_LABEL || value.contains('\0') {
                let allowed = format!("at most {MAX_LABEL} bytes of text");
                return Err(Error::invalid(format!("labels.{key}"), value, allowed));
            }
        }
        if self.keep.versions == Some(0) {
            return Err(Error::invalid("keep.versions", 0, "at least 1"));
        }
        Ok(())
    }
}

fn bounded(field: &str, text: &str, most: usize) -> Result<()> {
    if text.is_empty() || text.len() > most || text.contains('\0') {
        return Err(Error::invalid(field, text, format!("1 to {most} bytes of text")));
    }
    Ok(())
}
