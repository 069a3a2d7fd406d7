//! What a training set is asked to be, and what it was made of.

use std::collections::BTreeMap;

use falaj_base::{Error, Result, Timestamp};
use falaj_catalog::name::DatasetName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::VersionId;
use crate::definition::form::Pick;
use crate::name::FeatureName;
use crate::reference::Reference;
use crate::source::SourceRead;

/// A request for a training set.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// What people call it.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub name: Option<String>,
    /// `view`, `view:feature` or `view@VERSION:feature`.
    #[serde(default)]
    pub features: Vec<Reference>,
    /// A feature service, in place of features.
    #[serde(default)]
    pub service: Option<FeatureName>,
    /// The version of the service; the latest if absent.
    #[serde(default)]
    pub service_version: Option<i64>,
    /// The column of moments that tells the time of each row; `event_timestamp` if absent.
    #[serde(default)]
    pub event_time: Option<String>,
    /// Only what was known at this time, beside what was known at each row's own.
    #[serde(default)]
    pub as_of: Option<Timestamp>,
    /// Whether what became known after a moment may answer it all the same, as other feature
    /// stores do. A model that was trained so has seen the future.
    #[serde(default)]
    pub hindsight: bool,
    /// Call columns `view__feature` rather than `feature`.
    #[serde(default)]
    pub full_feature_names: bool,
    /// The moments: columns by name, each a list with one value for each row.
    #[serde(default)]
    pub moments: Option<BTreeMap<String, Vec<Value>>>,
    /// The moments: a Parquet file among the objects of the project.
    #[serde(default)]
    pub moments_object: Option<String>,
    /// Make the result a version of this dataset as well, which is made if there is none.
    #[serde(default)]
    pub register: Option<DatasetName>,
}

/// The dataset that a set becomes a version of, and whose version that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    pub dataset: DatasetName,
    pub by: String,
}

/// Which features, and by which rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct What {
    pub features: Vec<Reference>,
    pub service: Option<FeatureName>,
    pub service_version: Option<i64>,
    pub event_time: Option<String>,
    pub as_of: Option<Timestamp>,
    pub hindsight: bool,
    pub full_feature_names: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register: Option<Register>,
}

impl What {
    pub(crate) fn time(&self) -> &str {
        self.event_time.as_deref().unwrap_or("event_timestamp")
    }
}

/// The features of one version of a view, and what their columns are called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Chosen {
    #[serde(flatten)]
    pub pick: Pick,
    /// The columns of the result, feature by feature.
    pub columns: Vec<String>,
}

/// What is to be done, with everything found that a name could mean: kept until it is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) what: What,
    pub(crate) chosen: Vec<Chosen>,
    /// The numbers of the versions of views, as they are chosen.
    pub(crate) views: Vec<VersionId>,
}

/// How manifests are written now. The first kind had the SHA-256 of files in the place of their BLAKE3.
pub(super) const FORMAT: u32 = 2;

/// What a training set was made of. Its SHA-256 is the set's digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    pub format: u32,
    pub features: Vec<Chosen>,
    pub event_time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
    pub hindsight: bool,
    /// The SHA-256 of the file of moments.
    pub moments: String,
    #[schemars(with = "Vec<serde_json::Value>")]
    pub(crate) sources: Vec<SourceRead>,
    pub rows: u64,
    /// The SHA-256 of the file.
    pub sha256: String,
    /// The digest of the set that this one is, without rows that were erased since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_rows_of: Option<String>,
}

impl Wanted {
    pub(crate) fn what(&self) -> What {
        What {
            features: self.features.clone(),
            service: self.service.clone(),
            service_version: self.service_version,
            event_time: self.event_time.clone(),
            as_of: self.as_of,
            hindsight: self.hindsight,
            full_feature_names: self.full_feature_names,
            register: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.name.as_ref().is_some_and(|name| name.is_empty() || name.len() > 256) {
            let name = self.name.as_deref().unwrap_or_default();
            return Err(Error::invalid("name", name, "1 to 256 bytes"));
        }
        let texts = [
            ("name", &self.name),
            ("event_time", &self.event_time),
            ("moments_object", &self.moments_object),
        ];
        for (field, text) in texts {
            if let Some(text) = text.as_deref().filter(|text| text.contains('\0')) {
                return Err(Error::invalid(field, text, "no NUL"));
            }
        }
        match (&self.moments, &self.moments_object) {
            (None, None) => {
                Err(Error::invalid("moments", "absent", "columns, or `moments_object`"))
            }
            (Some(_), Some(object)) => {
                Err(Error::invalid("moments_object", object, "nothing beside `moments`"))
            }
            _ => Ok(()),
        }
    }
}
