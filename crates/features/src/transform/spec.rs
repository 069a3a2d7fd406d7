//! What the author of a definition writes.

use falaj_base::HumanDuration;
use falaj_transform::window::Function;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::definition::spec::Column;
use crate::name::FeatureName;
use crate::reference::Reference;

/// Kinds of views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ViewKind {
    /// Features that lie in rows of a source, or are made of them.
    #[default]
    Rows,
    /// Features that are computed when they are asked for.
    OnDemand,
}

impl ViewKind {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(crate) fn is_rows(&self) -> bool {
        *self == Self::Rows
    }
}

/// A feature that is an aggregate over a window of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    pub name: FeatureName,
    /// What is aggregated: a column of the source or, with `sql`, one that it selects. Without it,
    /// `count` counts events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<FeatureName>,
    pub function: Function,
    /// How far back events count.
    pub window: HumanDuration,
    /// How long the tiles are that the window is made of; it divides the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop: Option<HumanDuration>,
    /// Of a quantile: which, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub quantile: Option<f64>,
}

/// What a view that is computed on demand is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "`view:feature`, { name, type } of what comes with a request, or \
                               { feature, name } of a feature under another name"
)]
pub enum Input {
    /// `view:feature`, called as the feature is.
    Feature(Reference),
    /// A feature under another name.
    Renamed(Renamed),
    /// What comes with a request.
    Request(Column),
}

/// A feature under another name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Renamed {
    pub feature: Reference,
    pub name: FeatureName,
}
