//! A server with a pool of this machine, and requests to it.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use falaj_testkit::{Sandbox, Setup};
use serde_json::Value;

use crate::process;
use crate::wire::Wire;

/// Where jobs are.
const JOBS: &str = "/t/default/default/api/jobs";

pub(super) struct Site {
    server: Sandbox,
    address: SocketAddr,
    token: String,
    /// While it is there, what waits for its end goes on.
    folder: tempfile::TempDir,
}

impl Site {
    /// A server whose only pool has so many cores, whatever the machine has.
    pub(super) async fn open(cores: usize, database: Option<String>) -> Result<Self> {
        // One principal sends everything here; the limit on one principal is not what is measured.
        let mut setup = Setup::default()
            .env("FALAJ_LIMITS_REQUESTS_PER_SECOND", "10000000")
            .env("FALAJ_LIMITS_REQUEST_BURST", "10000000")
            .env("FALAJ_TRAINING_LOCAL_CPU", cores.to_string())
            .env("FALAJ_TRAINING_LOCAL_MEMORY", "64GiB");
        if let Some(url) = database {
            setup = setup.database_url(url);
        }
        let server = setup.start().await?;
        let address = server.url().trim_start_matches("http://").parse()?;
        let token = server.admin_token()?;
        Ok(Self { server, address, token, folder: tempfile::tempdir()? })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) async fn connect(&self) -> Result<Wire> {
        Wire::connect(self.address).await
    }

    /// A request as it is sent.
    pub(super) fn request(&self, method: &str, below: &str, body: &str) -> String {
        format!(
            "{method} {JOBS}{below} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )
    }

    /// A submission as it is sent.
    pub(super) fn submission(&self, command: &[&str], cpu: f64, count: usize) -> String {
        let body = serde_json::json!({
            "name": "bench",
            "command": command,
            "count": count,
            "resources": { "cpu": cpu, "memory": "16MiB" },
        });
        self.request("POST", "", &body.to_string())
    }

    pub(super) async fn submit(&self, wire: &mut Wire, submission: &str) -> Result<String> {
        let job = ask(wire, submission).await?;
        Ok(job["id"].as_str().context("a job without an id")?.to_owned())
    }

    pub(super) async fn job(&self, wire: &mut Wire, id: &str) -> Result<Value> {
        ask(wire, &self.request("GET", &format!("/{id}"), "")).await
    }

    /// A job that has all cores until this is gone, so that all others wait.
    pub(super) async fn occupy(&self, wire: &mut Wire, cores: usize) -> Result<()> {
        let path = self.folder.path().join("goes-on");
        std::fs::write(&path, "")?;
        let script = format!("while test -e '{}'; do sleep 0.2; done", path.display());
        #[allow(clippy::cast_precision_loss, reason = "a few cores")]
        let whole = self.submission(&["sh", "-c", &script], cores as f64, 1);
        let id = self.submit(wire, &whole).await?;
        loop {
            let state = self.job(wire, &id).await?["state"].clone();
            ensure!(state != "FAILED", "what should occupy the pool failed");
            if state == "RUNNING" {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Seconds of processors that the server has used.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        process::cpu_seconds(&[self.server.pid().context("the server is not running")?])
    }

    pub(super) fn resident_megabytes(&self) -> Result<f64> {
        process::resident(&[self.server.pid().context("the server is not running")?])
    }
}

/// The answer to a request, which must be a 200.
pub(super) async fn ask(wire: &mut Wire, request: &str) -> Result<Value> {
    let (status, body) = wire.ask(request).await?;
    ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(body));
    Ok(serde_json::from_slice(body)?)
}
