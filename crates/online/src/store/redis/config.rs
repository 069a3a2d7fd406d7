//! What can be set about Redis.

use std::path::PathBuf;

use falaj_base::{HumanDuration, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Redis as the online store, shared by several servers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// Where it is: `redis://[user:password@]host:port/database`, or `rediss://` for TLS. Without
    /// it the online store is a file in the data directory.
    pub url: Secret,
    /// The certificates (PEM) that its TLS is checked against, if not those of the system.
    pub ca: Option<PathBuf>,
    /// What every key begins with, so that several installations can share it.
    pub prefix: String,
    /// How long connecting or an answer may take.
    pub timeout: HumanDuration,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: Secret::default(),
            ca: None,
            prefix: "falaj:".to_owned(),
            timeout: HumanDuration::from_secs(1),
        }
    }
}
