//! What an operator may set about keys.

use std::path::{Path, PathBuf};

use falaj_base::{HumanDuration, Name, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the root keys are kept, and how long unwrapped keys stay in memory.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeysConfig {
    /// The key manager of the platform's own zone: `local` or `transit`.
    pub provider: Provider,
    /// The platform's own zone, where its metadata database lies.
    pub zone: Name,
    /// The keyring file of the `local` provider, created on first start with mode 0600. A
    /// relative path lies in the data directory.
    pub keyring: PathBuf,
    /// The `transit` provider: a Vault or OpenBao server.
    pub transit: TransitConfig,
    /// Key managers of further zones, one each.
    pub more: Vec<ManagerConfig>,
    /// How long an unwrapped key may stay in memory: at least half of it is the time an outage of
    /// the key manager is survived. A key destroyed on another server can be used by none, but
    /// lies in memory there for up to this long.
    pub cache_lifetime: HumanDuration,
    /// How many unwrapped keys are kept in memory at most.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub cache_keys: usize,
    /// How many keys are rewrapped per step after a rotation of the root key.
    #[schemars(range(min = 1, max = 10_000))]
    pub rewrap_batch: u32,
}

impl Default for KeysConfig {
    fn default() -> Self {
        let main = ManagerConfig::default();
        Self {
            provider: main.provider,
            zone: main.zone,
            keyring: main.keyring,
            transit: main.transit,
            more: Vec::new(),
            cache_lifetime: HumanDuration::from_mins(10),
            cache_keys: 10_000,
            rewrap_batch: 100,
        }
    }
}

impl KeysConfig {
    /// All managers, the platform's own first.
    #[must_use]
    pub fn managers(&self) -> Vec<ManagerConfig> {
        let main = ManagerConfig {
            provider: self.provider,
            zone: self.zone.clone(),
            keyring: self.keyring.clone(),
            transit: self.transit.clone(),
        };
        std::iter::once(main).chain(self.more.iter().cloned()).collect()
    }
}

/// The key manager of one zone.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ManagerConfig {
    /// `local` or `transit`.
    pub provider: Provider,
    /// The zone whose keys it wraps.
    pub zone: Name,
    /// The keyring file of the `local` provider.
    pub keyring: PathBuf,
    /// The `transit` provider.
    pub transit: TransitConfig,
}

impl Default for ManagerConfig {
    #[allow(clippy::expect_used, reason = "the literal is a valid name, as the tests show")]
    fn default() -> Self {
        Self {
            provider: Provider::Local,
            zone: Name::new("local").expect("`local` is a valid name"),
            keyring: PathBuf::from("keyring.json"),
            transit: TransitConfig::default(),
        }
    }
}

impl ManagerConfig {
    #[must_use]
    pub fn keyring_path(&self, data_dir: &Path) -> PathBuf {
        data_dir.join(&self.keyring)
    }
}

/// Which kind of key manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// A file that only the server's user may read.
    Local,
    /// The transit engine of a Vault or OpenBao server: the root key never leaves it.
    Transit,
}

/// How to reach a transit engine.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TransitConfig {
    /// The server, for example `https://vault.example:8200`. Plain `http` is accepted for a
    /// loopback address only.
    pub address: String,
    /// Where the transit engine is mounted.
    pub mount: String,
    /// The name of the key, of type `aes256-gcm96`; create it before the first start.
    pub key: String,
    /// The token to authenticate with.
    pub token: Secret,
    /// A file to read the token from instead, again whenever the server refuses it: an agent may
    /// renew it there.
    pub token_file: String,
    /// The namespace, if the server has them.
    pub namespace: String,
    /// PEM file with the certificate authorities to trust; empty means the system's.
    pub ca_file: String,
    /// How long one call may take.
    pub timeout: HumanDuration,
    /// How often a failed call is tried again.
    #[schemars(range(max = 10))]
    pub retries: u32,
    /// How many calls may run at once.
    #[schemars(range(min = 1, max = 1000))]
    pub max_in_flight: usize,
}

impl Default for TransitConfig {
    fn default() -> Self {
        Self {
            address: String::new(),
            mount: "transit".to_owned(),
            key: "falaj".to_owned(),
            token: Secret::default(),
            token_file: String::new(),
            namespace: String::new(),
            ca_file: String::new(),
            timeout: HumanDuration::from_secs(5),
            retries: 2,
            max_in_flight: 16,
        }
    }
}
