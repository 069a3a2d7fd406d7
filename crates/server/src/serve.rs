//! `falaj serve`: opens everything, listens, and stops in the right order.
//!
//! Stopping: nothing new is accepted and readiness says no; running requests finish; workers
//! finish and give their leases back; what is still in memory is written; traces are sent.

use std::net::SocketAddr;
use std::path::PathBuf;

use falaj_base::{Result, Secret};
use falaj_features::knowledge::metrics::FreshnessCollector;
use falaj_features::stream::StreamCollector;
use falaj_serving::ServingCollector;
use falaj_store::lease::Leases;
use falaj_store::worker::Worker;
use falaj_training::Reach;
use falaj_training::telemetry::metrics::TelemetryCollector;
use falaj_web::Module;
use prometheus_client::collector::Collector;

use crate::config::Config;
use crate::data_dir::DataDir;
use crate::http::{self, App, Description, Doors, Drain, Listener, Readiness, Route, Transport};
use crate::metrics::Metrics;
use crate::modules::modules;
use crate::services::Services;
use crate::telemetry::Telemetry;
use crate::workers::Driver;
use crate::{first_start, process, start_pages};

/// Runs the platform until `shutdown` resolves. `announce` is told where it listens and, on a
/// first start, the administrator's token: to be shown once, never logged.
pub async fn serve(
    config: &Config,
    shutdown: impl Future<Output = ()>,
    announce: impl FnOnce(&Started),
) -> Result<()> {
    serve_with(config, |_| Vec::new(), shutdown, announce).await
}

/// The same, with modules of the caller's beside the platform's own.
pub async fn serve_with(
    config: &Config,
    further: impl FnOnce(&Services) -> Vec<Module>,
    shutdown: impl Future<Output = ()>,
    announce: impl FnOnce(&Started),
) -> Result<()> {
    let telemetry = Telemetry::install(&config.telemetry)?;
    process::harden();
    let outcome = match Server::start_with(config, further).await {
        Ok(server) => {
            announce(server.started());
            let tidying = tokio::spawn(start_pages::give_back());
            server.run(shutdown).await;
            tidying.abort();
            Ok(())
        }
        Err(error) => Err(error),
    };
    telemetry.flush().await;
    outcome
}

/// What became known at the start.
#[derive(Debug)]
pub struct Started {
    pub address: SocketAddr,
    /// `http://127.0.0.1:7470`
    pub url: String,
    pub data_dir: PathBuf,
    pub admin_token_file: PathBuf,
    /// The administrator's token, if this start made it.
    pub admin_token: Option<Secret>,
    /// The certificate clients must trust, if the server made its own.
    pub certificate: Option<PathBuf>,
}

/// A server that listens, and has not yet begun to answer.
#[derive(Debug)]
pub struct Server {
    started: Started,
    listener: Listener,
    doors: Doors,
    table: Vec<Route>,
    services: Services,
    workers: Vec<Worker>,
    leases: Leases,
    metrics: Metrics,
    drain: Drain,
    grace: std::time::Duration,
    patience: std::time::Duration,
    /// Held until the very end: another server must not start on the same files before.
    data_dir: DataDir,
}

impl Server {
    /// Opens the stores, makes what a fresh installation needs, and binds the port.
    pub async fn start(config: &Config) -> Result<Self> {
        Self::start_with(config, |_| Vec::new()).await
    }

    /// The same, with modules of the caller's beside the platform's own.
    pub async fn start_with(
        config: &Config,
        further: impl FnOnce(&Services) -> Vec<Module>,
    ) -> Result<Self> {
        config.check()?;
        let data_dir = DataDir::open(&config.data_dir)?;
        let transport = Transport::prepare(&config.server, &config.tls, data_dir.path())?;
        let services = Services::open(config, data_dir.path()).await?;
        let admin_token = first_start::prepare(config, &services, &data_dir).await?;

        let serving = ServingCollector::new(services.serving.clone());
        let streams = StreamCollector::new(services.features.clone());
        let fresh = FreshnessCollector::new(services.features.clone());
        let used = TelemetryCollector::new(services.training.clone());
        let others: Vec<Box<dyn Collector>> =
            vec![Box::new(serving), Box::new(streams), Box::new(fresh), Box::new(used)];
        let metrics = Metrics::new(Some(services.db.clone()), others);
        let leases = Leases::new(services.db.clone(), data_dir.server_id());
        services.features.lead(leases.clone());
        let drain = Drain::new();
        let description = Description::default();
        let readiness = Readiness::new(services.db.clone(), drain.clone());
        let mut modules = modules(&services, config);
        modules.extend(further(&services));
        modules.push(http::module(readiness, metrics.clone(), description.clone()));
        let workers = modules.iter_mut().flat_map(|module| module.workers.drain(..)).collect();
        let (doors, table) = compose(config, &services, modules, description, &metrics, &drain)?;

        let listener = Listener::bind(&config.server, &config.limits, transport).await?;
        let started = started(&listener, &data_dir, admin_token)?;
        services.training.reached_at(Reach {
            url: started.url.clone(),
            certificate: started.certificate.clone(),
        });
        Ok(Self {
            leases,
            grace: config.server.drain_grace.get(),
            patience: config.server.drain_timeout.get(),
            started,
            listener,
            doors,
            table,
            services,
            workers,
            metrics,
            drain,
            data_dir,
        })
    }

    #[must_use]
    pub fn started(&self) -> &Started {
        &self.started
    }

    /// Every route, for the test that walks them all.
    #[must_use]
    pub fn route_table(&self) -> &[Route] {
        &self.table
    }

    #[must_use]
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Answers until `shutdown` resolves, then stops in order.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        tracing::info!(url = self.started.url, "ready");
        let driver = Driver::new(self.leases, self.metrics, self.drain.clone());
        self.workers.into_iter().for_each(|worker| driver.start(worker));
        let stop = async {
            shutdown.await;
            tracing::info!("stopping");
            self.drain.announce(self.grace).await;
        };
        tokio::join!(self.listener.serve(self.doors, self.drain.clone()), stop);
        driver.finish(self.patience).await;
        self.services.flush().await;
        if let Err(error) = self.services.db.scrub().await {
            tracing::warn!(error = error.chain(), "the write-ahead log was not emptied");
        }
        tracing::info!("stopped");
        drop(self.data_dir);
    }
}

fn compose(
    config: &Config,
    services: &Services,
    modules: Vec<Module>,
    description: Description,
    metrics: &Metrics,
    drain: &Drain,
) -> Result<(Doors, Vec<Route>)> {
    http::build(App {
        server: &config.server,
        limits: &config.limits,
        modules,
        description,
        db: services.db.clone(),
        gate: services.gate.clone(),
        authenticator: services.authenticator.clone(),
        metrics: metrics.clone(),
        drain: drain.clone(),
    })
}

fn started(
    listener: &Listener,
    data_dir: &DataDir,
    admin_token: Option<Secret>,
) -> Result<Started> {
    let address = listener.local_addr()?;
    let certificate = match listener.transport() {
        Transport::Tls { generated, .. } => generated.clone(),
        Transport::Plain => None,
    };
    Ok(Started {
        url: format!("{}://{address}", listener.transport().scheme()),
        address,
        data_dir: data_dir.path().to_owned(),
        admin_token_file: data_dir.admin_token_path(),
        admin_token,
        certificate,
    })
}
