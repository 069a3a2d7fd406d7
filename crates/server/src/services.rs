//! What the domains stand on, opened in the order they need each other.

use std::path::Path;
use std::sync::Arc;

use falaj_base::{Clock, Result};
use falaj_catalog::Datasets;
use falaj_features::Features;
use falaj_governance::audit::Audit;
use falaj_governance::authz::CedarGate;
use falaj_governance::epoch::Epoch;
use falaj_governance::identity::Authenticator;
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::Tenancy;
use falaj_mlflow::Places;
use falaj_registry::Registry;
use falaj_serving::Serving;
use falaj_store::db::Db;
use falaj_store::keys::Keys;
use falaj_store::objects::Objects;
use falaj_traces::Traces;
use falaj_tracking::Tracking;
use falaj_tracking::artifact::SignedUrls;
use falaj_training::{Floor, Training};
use zeroize::Zeroizing;

use crate::config::Config;
use crate::http::Transport;
use crate::modules;

/// The opened floor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Services {
    pub db: Db,
    pub keys: Keys,
    pub objects: Objects,
    pub epoch: Epoch,
    pub audit: Arc<Audit>,
    pub gate: Arc<CedarGate>,
    pub authenticator: Arc<Authenticator>,
    pub tenancy: Tenancy,
    pub residency: Residency,
    pub places: Places,
    pub tracking: Tracking,
    pub registry: Registry,
    pub traces: Traces,
    pub serving: Serving,
    pub datasets: Datasets,
    pub features: Features,
    pub training: Training,
    pub artifact_urls: SignedUrls,
}

impl Services {
    /// Opens the database, brings its schema up to date, and builds everything on it.
    pub async fn open(config: &Config, data_dir: &Path) -> Result<Self> {
        let location = config.database.location(data_dir);
        let db = Db::open(&location, &config.database, Clock::System).await?;
        db.migrate(&modules::migrations()).await?;
        let keys = Keys::open(&config.keys, data_dir, db.clone()).await?;
        let reply_key = keys.platform_secret("idempotent-replies")?;
        db.seal_replies_with(&reply_key)?;
        let objects = Objects::open(&config.objects, data_dir, db.clone(), keys.clone())?;
        let epoch = Epoch::load(db.clone()).await?;
        let audit = Audit::open(&config.audit, db.clone(), &keys, data_dir).await?;
        let actions = modules::actions();
        let gate = CedarGate::open(db.clone(), epoch.clone(), &actions, &config.authz).await?;
        let authenticator = Authenticator::new(
            db.clone(),
            epoch.clone(),
            config.identity.clone(),
            &token_pepper(&keys)?,
            audit.reads().clone(),
            Clock::System,
        )?;
        let tenancy = Tenancy::new(db.clone(), epoch.clone(), keys.home().clone());
        let tracking = Tracking::new(
            config.tracking.clone(),
            db.clone(),
            objects.clone(),
            audit.reads().clone(),
        );
        tracking.settle().await?;
        tenancy.before_deleting("traces", falaj_traces::forget_project);
        tenancy.before_deleting("tracking", falaj_tracking::experiment::forget_project);
        let registry =
            Registry::new(config.registry.clone(), tracking.clone(), tenancy.clone(), keys.clone());
        let data = Some(data_dir.to_owned());
        let serving = Serving::new(config.serving.clone(), registry.clone(), data)?;
        let places = Places::new(tenancy.clone(), epoch.clone());
        let authenticator = Arc::new(authenticator);
        let floor = Floor {
            db: db.clone(),
            objects: objects.clone(),
            tracking: tracking.clone(),
            tenancy: tenancy.clone(),
            places: places.clone(),
            authenticator: Some(authenticator.clone()),
        };
        let installation = audit.verifier_key().name().to_owned();
        let training =
            Training::open(config.training.clone(), floor, keys.home(), data_dir, &installation)?;
        Ok(Self {
            places,
            training,
            datasets: Datasets::new(
                config.datasets.clone(),
                db.clone(),
                objects.clone(),
                audit.reads().clone(),
                tenancy.clone(),
                data_dir,
            ),
            features: Features::new(
                config.features.clone(),
                db.clone(),
                objects.clone(),
                audit.reads().clone(),
                data_dir,
            ),
            registry,
            serving,
            traces: Traces::new(config.traces.clone(), tracking.clone()),
            tracking,
            artifact_urls: SignedUrls::new(
                &*keys.platform_secret("artifact-urls")?,
                config.identity.public_url.clone(),
                Transport::is_encrypted(&config.server, &config.tls),
            ),
            tenancy,
            residency: Residency::new(db.clone()),
            gate: Arc::new(gate),
            authenticator,
            db,
            keys,
            objects,
            epoch,
            audit,
        })
    }

    /// What is still in memory and must not be lost.
    pub async fn flush(&self) {
        self.serving.flush().await;
        self.features.stop().await;
        self.features.flush();
        if let Err(error) = self.authenticator.flush_uses().await {
            tracing::warn!(error = error.chain(), "last-used times were not written");
        }
        if let Err(error) = self.audit.reads().flush().await {
            tracing::error!(error = error.chain(), "audit entries of reads were not written");
        }
    }
}

/// The secret without which no token works.
pub fn token_pepper(keys: &Keys) -> Result<Zeroizing<[u8; 32]>> {
    keys.platform_secret("token-pepper")
}
