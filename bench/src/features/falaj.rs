//! Falaj as an operator starts it, with a folder of tables that sources may read.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use falaj_testkit::{Client, Sandbox, Setup};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::python::Took;
use crate::process;

const POLL: Duration = Duration::from_millis(50);

pub(super) struct Falaj {
    server: Sandbox,
    pub(super) client: Client,
    _settings: TempDir,
}

impl Falaj {
    /// With these settings below `[features]`.
    pub(super) async fn start(data: Option<&Path>, settings: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("falaj-bench-features-").tempdir()?;
        let root = data.map_or_else(String::new, |path| {
            let path = path.display();
            format!(
                "source_roots = [{{ name = \"lake\", path = \"{path}\", tenant = \"default\" }}]\n"
            )
        });
        let file = folder.path().join("falaj.toml");
        std::fs::write(&file, format!("[features]\n{root}{settings}\n"))?;
        // One principal sends everything here; the limit on one principal is not what is measured.
        let server = Setup::default()
            .arg("--config")
            .arg(file.display().to_string())
            .env("FALAJ_LIMITS_REQUESTS_PER_SECOND", "10000000")
            .env("FALAJ_LIMITS_REQUEST_BURST", "10000000")
            .start()
            .await?;
        let client = server.admin()?;
        Ok(Self { server, client, _settings: folder })
    }

    pub(super) fn pid(&self) -> Result<u32> {
        self.server.pid().context("the server is not running")
    }

    pub(super) fn address(&self) -> Result<SocketAddr> {
        Ok(self.server.url().trim_start_matches("http://").parse()?)
    }

    pub(super) fn token(&self) -> Result<String> {
        self.server.admin_token()
    }

    pub(super) fn cpu(&self) -> Result<f64> {
        process::cpu_seconds(&[self.pid()?])
    }

    /// The most that it had resident so far, in megabytes.
    pub(super) fn peak(&self) -> Result<f64> {
        process::peak_resident(self.pid()?)
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Result<Value> {
        let answer = self.client.post(path, &body).await?;
        ensure!(answer.status.is_success(), "{path}: {} {}", answer.status, answer.text());
        if answer.text().is_empty() { Ok(Value::Null) } else { answer.json() }
    }

    /// The request that is sent over and over.
    pub(super) fn request(&self, path: &str, body: &Value) -> Result<String> {
        let (address, token, body) = (self.address()?, self.token()?, body.to_string());
        Ok(format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    /// Keeps a file as an object of the project.
    pub(super) async fn put(&self, name: &str, path: &Path) -> Result<()> {
        let bytes = std::fs::read(path)?;
        let to = format!("/v1/tenants/default/projects/default/objects/{name}");
        let answer = self.client.put(&to, bytes).await?;
        ensure!(answer.status.is_success(), "{to}: {} {}", answer.status, answer.text());
        Ok(())
    }

    /// Makes a training set; tells what that took of the server, and writes the set to a file.
    pub(super) async fn join(&self, wanted: Value, to: &Path) -> Result<Took> {
        let (used, began) = (self.cpu()?, Instant::now());
        let mut set = self.post("/api/features/training-sets", wanted).await?;
        let path = format!("/api/features/training-sets/{}", set["id"].as_str().unwrap_or("?"));
        while set["state"] == json!("waiting") {
            tokio::time::sleep(POLL).await;
            set = self.client.get(&path).await?.json()?;
        }
        ensure!(set["state"] == json!("ready"), "the training set failed: {set}");
        let wall = began.elapsed().as_secs_f64();
        let took = Took { cpu: self.cpu()? - used, wall, peak: self.peak()? };
        let data = self.client.get(&format!("{path}/data")).await?;
        ensure!(data.status.is_success(), "{path}/data: {}", data.status);
        std::fs::write(to, &data.body)?;
        Ok(took)
    }
}
