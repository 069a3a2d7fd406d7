//! One of the two servers being compared.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use falaj_testkit::{Sandbox, Setup};

use super::client::{Connection, text_field};
use super::original::Original;
use crate::process;

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    address: SocketAddr,
    token: Option<String>,
    server: Server,
    names: AtomicUsize,
}

enum Server {
    Falaj(Sandbox),
    Mlflow(Original),
}

impl Peer {
    pub(crate) async fn falaj(database: Option<String>) -> Result<Self> {
        // One principal sends everything here; the limit on one principal is not what is measured.
        let mut setup = Setup::default()
            .env("FALAJ_LIMITS_REQUESTS_PER_SECOND", "10000000")
            .env("FALAJ_LIMITS_REQUEST_BURST", "10000000");
        if let Some(url) = database {
            setup = setup.database_url(url);
        }
        let server = setup.start().await?;
        let address = server.url().trim_start_matches("http://").parse()?;
        let token = Some(server.admin_token()?);
        let names = AtomicUsize::new(0);
        Ok(Self { name: "Falaj", address, token, server: Server::Falaj(server), names })
    }

    pub(crate) async fn mlflow(python: &Path, database: Option<String>) -> Result<Self> {
        let server = Original::start(python, database).await?;
        let address = server.address();
        let names = AtomicUsize::new(0);
        Ok(Self { name: "MLflow", address, token: None, server: Server::Mlflow(server), names })
    }

    /// The original, where this is it: it is filled by SQL.
    pub(crate) fn original(&self) -> Option<&Original> {
        match &self.server {
            Server::Falaj(_) => None,
            Server::Mlflow(server) => Some(server),
        }
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        Connection::open(self.address, self.token.as_deref()).await
    }

    pub(crate) async fn new_experiment(&self) -> Result<String> {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        let body = format!(r#"{{"name":"bench-{number}"}}"#);
        let mut connection = self.connect().await?;
        let reply = connection.post("/api/2.0/mlflow/experiments/create", &body).await?;
        text_field(reply, "experiment_id")
    }

    pub(crate) async fn new_run(&self, experiment: &str) -> Result<String> {
        // A second run that says the same of itself would be taken for a repeated request.
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        let body =
            format!(r#"{{"experiment_id":"{experiment}","start_time":1,"run_name":"r{number}"}}"#);
        let mut connection = self.connect().await?;
        let reply = connection.post("/api/2.0/mlflow/runs/create", &body).await?;
        text_field(reply, "run_id")
    }

    /// User and system time of every process of the server so far.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        process::cpu_seconds(&process::tree(self.pid()?)?)
    }

    /// Resident memory of every process of the server, in megabytes; what they share counts once.
    pub(crate) fn resident(&self) -> Result<f64> {
        process::resident(&process::tree(self.pid()?)?)
    }

    /// The most that the server's own process had resident so far, in megabytes.
    pub(crate) fn peak_resident(&self) -> Result<f64> {
        process::peak_resident(self.pid()?)
    }

    fn pid(&self) -> Result<u32> {
        match &self.server {
            Server::Falaj(server) => server.pid().context("the server is not running"),
            Server::Mlflow(server) => Ok(server.pid()),
        }
    }
}
