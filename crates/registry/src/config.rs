//! What can be set about the registry.

use falaj_base::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::version::SourcePattern;
use crate::webhook::WebhooksConfig;

/// Limits of the registry API. Those that MLflow has itself follow it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RegistryConfig {
    /// The longest description of a model or a version, in characters.
    pub max_description: usize,
    /// The longest source or run link of a version, in characters.
    pub max_source: usize,
    /// A regular expression that the source of every new version must match, such as
    /// `^mlflow-artifacts:/`. Without one any source is taken that is safe to follow.
    pub version_sources: Option<SourcePattern>,
    /// The most models in one request of an import, and the most versions, aliases or tags of each.
    pub max_import_batch: usize,
    /// The longest value of a tag, in characters.
    pub max_tag_value: usize,
    /// The most tags in one request.
    pub max_tags: usize,
    /// The most files a version may have to be signed. A signature and a bill of materials name
    /// each of them.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_signed_files: usize,
    /// How much may be read within a request to sign a version that the background work has not
    /// come to yet. Only files that were uploaded in parts must be read.
    pub inline_hashing: ByteSize,
    /// How many versions may be read within requests at the same time. Whoever comes next waits,
    /// and after a while is told to ask again.
    #[schemars(range(min = 1, max = 1000))]
    pub inline_at_once: usize,
    /// The most fields of a model card.
    pub max_card_fields: usize,
    /// Where webhooks may go.
    pub webhooks: WebhooksConfig,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            max_description: 100_000,
            max_source: 2048,
            version_sources: None,
            max_import_batch: 10_000,
            max_tag_value: 100_000,
            max_tags: 1000,
            max_signed_files: 10_000,
            inline_hashing: ByteSize::gib(1),
            inline_at_once: 4,
            max_card_fields: 100,
            webhooks: WebhooksConfig::default(),
        }
    }
}
