//! What a version freezes of a transformation.

use falaj_transform::window::Function;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::definition::spec::Column;
use crate::name::FeatureName;

/// How the features of a view are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TransformForm {
    /// The columns of the source's rows, beside keys and times.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aggregates: Vec<AggregateForm>,
    /// Of a view that is computed on demand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputForm>,
}

/// An aggregate, its times in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AggregateForm {
    pub name: FeatureName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<FeatureName>,
    pub function: Function,
    pub window_us: i64,
    pub hop_us: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile: Option<Share>,
}

/// A share from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Share(pub f64);

/// What is no number is no share, and so each is equal to itself.
impl Eq for Share {}

/// Something that a view on demand is computed from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputForm {
    /// What the SQL calls it, and its type.
    #[serde(flatten)]
    pub column: Column,
    /// The feature that it is; something of the request, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature: Option<FeatureOf>,
}

/// A feature of one version of a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeatureOf {
    pub view: FeatureName,
    pub version: i64,
    /// The SHA-256 of the view's version.
    pub hash: String,
    pub feature: FeatureName,
}
