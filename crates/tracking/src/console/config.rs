//! What can be set about console logs.

use falaj_base::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of console logs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsoleConfig {
    /// The longest log of one run; more is refused.
    pub max_log: ByteSize,
    /// The largest piece that one request appends, and that one reply shows.
    pub max_piece: ByteSize,
}

impl Default for ConsoleConfig {
    fn default() -> Self {
        Self { max_log: ByteSize::mib(64), max_piece: ByteSize::mib(1) }
    }
}
