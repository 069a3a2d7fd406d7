//! What can be set about the registry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of the registry API. Those that MLflow has itself follow it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RegistryConfig {
    /// The longest description of a model or a version, in characters.
    pub max_description: usize,
    /// The longest source or run link of a version, in characters.
    pub max_source: usize,
    /// The most models in one request of an import, and the most versions, aliases or tags of each.
    pub max_import_batch: usize,
    /// The longest value of a tag, in characters.
    pub max_tag_value: usize,
    /// The most tags in one request.
    pub max_tags: usize,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            max_description: 100_000,
            max_source: 2048,
            max_import_batch: 10_000,
            max_tag_value: 100_000,
            max_tags: 1000,
        }
    }
}
