//! Keys for things that leave the database: backups.

use std::path::Path;
use std::sync::Arc;

use falaj_base::{Error, Result, code};

use super::{KeyManager, Keys, KeysConfig, Wrapped, connect, manager};
use crate::seal::DataKey;

impl Keys {
    /// Wraps a key with the root key of the platform's own zone.
    pub async fn wrap(&self, name: &str, key: &DataKey) -> Result<Wrapped> {
        manager(&self.0.managers, &self.0.home)?.wrap(name, key).await
    }
}

/// The key manager of the platform's own zone, without a database: what a restore starts from.
pub async fn home_manager(config: &KeysConfig, data_dir: &Path) -> Result<Arc<dyn KeyManager>> {
    let managers = config.managers();
    let home = managers.iter().find(|manager| manager.zone == config.zone).ok_or_else(|| {
        let text = format!("zone `{}` has no key manager", config.zone);
        Error::new(&code::INVALID_CONFIG, text).at("keys")
    })?;
    connect(home, data_dir, false).await
}
