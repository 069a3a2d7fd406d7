//! The whole configuration: one struct of each component, under its own key.

use std::path::PathBuf;

use falaj_base::Result;
use falaj_catalog::DatasetsConfig;
use falaj_features::FeaturesConfig;
use falaj_governance::audit::AuditConfig;
use falaj_governance::authz::AuthzConfig;
use falaj_governance::identity::IdentityConfig;
use falaj_registry::RegistryConfig;
use falaj_serving::ServingConfig;
use falaj_store::db::DatabaseConfig;
use falaj_store::keys::KeysConfig;
use falaj_store::objects::ObjectsConfig;
use falaj_traces::TracesConfig;
use falaj_tracking::TrackingConfig;
use falaj_training::TrainingConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::events::EventsConfig;
pub use crate::http::{LimitsConfig, ServerConfig, TlsConfig, TlsMode};
pub use crate::telemetry::{LogFormat, TelemetryConfig};

/// Everything an operator can set.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the server keeps its files; created on first start, for its own user only.
    #[schemars(with = "String")]
    pub data_dir: PathBuf,
    /// The listener.
    pub server: ServerConfig,
    /// Encryption of connections.
    pub tls: TlsConfig,
    /// What a request may use.
    pub limits: LimitsConfig,
    /// Logs and traces.
    pub telemetry: TelemetryConfig,
    /// The metadata database.
    pub database: DatabaseConfig,
    /// Encryption keys.
    pub keys: KeysConfig,
    /// Where objects lie.
    pub objects: ObjectsConfig,
    /// Who can sign in, and how.
    pub identity: IdentityConfig,
    /// Roles and policies.
    pub authz: AuthzConfig,
    /// The audit log.
    pub audit: AuditConfig,
    /// The event log.
    pub events: EventsConfig,
    /// Experiments and runs.
    pub tracking: TrackingConfig,
    /// Registered models.
    pub registry: RegistryConfig,
    /// Traces of generative AI.
    pub traces: TracesConfig,
    /// Models that answer requests.
    pub serving: ServingConfig,
    /// Datasets and their versions.
    pub datasets: DatasetsConfig,
    /// Features of models.
    pub features: FeaturesConfig,
    /// Jobs, queues and pools.
    pub training: TrainingConfig,
    /// The residency zone of the platform itself; `keys.zone` is its name.
    pub zone: ZoneConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("falaj-data"),
            server: ServerConfig::default(),
            tls: TlsConfig::default(),
            limits: LimitsConfig::default(),
            telemetry: TelemetryConfig::default(),
            database: DatabaseConfig::default(),
            keys: KeysConfig::default(),
            objects: ObjectsConfig::default(),
            identity: IdentityConfig::default(),
            authz: AuthzConfig::default(),
            audit: AuditConfig::default(),
            events: EventsConfig::default(),
            tracking: TrackingConfig::default(),
            registry: RegistryConfig::default(),
            traces: TracesConfig::default(),
            serving: ServingConfig::default(),
            datasets: DatasetsConfig::default(),
            features: FeaturesConfig::default(),
            training: TrainingConfig::default(),
            zone: ZoneConfig::default(),
        }
    }
}

/// The residency zone of the platform itself.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ZoneConfig {
    /// The jurisdiction the zone is declared with on first start, such as `AE`.
    #[schemars(length(min = 1, max = 63))]
    pub jurisdiction: String,
}

impl Default for ZoneConfig {
    fn default() -> Self {
        Self { jurisdiction: "local".to_owned() }
    }
}

impl Config {
    /// Refuses what no single key can tell: rules that span several, or that a schema cannot say.
    pub fn check(&self) -> Result<()> {
        self.limits.check()?;
        self.training.check()?;
        falaj_features::stream::check(&self.features.streams)?;
        self.identity.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_survive_their_text() {
        Config::default().check().unwrap();
        let loaded =
            falaj_base::config::load::<Config>(None, std::iter::empty(), Vec::new()).unwrap();
        assert_eq!(
            serde_json::to_value(&loaded.value).unwrap(),
            serde_json::to_value(Config::default()).unwrap()
        );
    }

    #[test]
    fn a_key_can_be_set_and_a_wrong_one_is_refused() {
        let with = |key: &str, value: &str| {
            let flags = vec![(key.to_owned(), value.to_owned())];
            falaj_base::config::load::<Config>(None, std::iter::empty(), flags)
        };
        let loaded = with("server.listen", "127.0.0.1:9999").unwrap().value;
        assert_eq!(loaded.server.listen.port(), 9999);
        assert!(with("server.listen", "everywhere").is_err());
        assert!(with("server.max_connections", "0").is_err());
        assert!(with("server.lisen", "127.0.0.1:1").is_err());
    }
}
