//! What can be set about the latest values.

use falaj_base::{ByteSize, HumanDuration, Name};
use falaj_online::store::{EmbeddedConfig, RedisConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the latest values lie, and how many are read at a time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OnlineConfig {
    /// A file in the data directory; used if no Redis is named.
    pub embedded: EmbeddedConfig,
    /// A Redis that several servers share.
    pub redis: RedisConfig,
    /// Entities in one request at most.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_entities: usize,
    /// Values in one reply at most: entities times features.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub max_values: usize,
    /// Bytes of one reply at most, and of the rows that are read for it.
    pub max_reply: ByteSize,
    /// Bytes of the values of one row at most, when it is pushed or materialised.
    pub max_row: ByteSize,
    /// How long a request waits for the store to be opened, and filled where it was lost.
    pub patience: HumanDuration,
    /// The residency zone that the store lies in; the project's own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
    /// How far in the future an event may lie when it is pushed: clocks differ.
    pub max_ahead: HumanDuration,
}

impl Default for OnlineConfig {
    fn default() -> Self {
        Self {
            embedded: EmbeddedConfig::default(),
            redis: RedisConfig::default(),
            max_entities: 10_000,
            max_values: 1_000_000,
            max_reply: ByteSize::mib(64),
            max_row: ByteSize::kib(256),
            patience: HumanDuration::from_secs(5),
            zone: None,
            max_ahead: HumanDuration::from_mins(5),
        }
    }
}
