//! The project on the server: what an import sends to it and asks of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest;
use falaj_base::hex;
use falaj_moving::artifact::Folder;
use futures::{StreamExt, TryStreamExt};
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, HeaderValue};
use serde::Serialize;
use serde_json::{Value, json};

use crate::client::{Call, Client, bounded};
use crate::commands::InProject;
use crate::exit::{Exit, Failure, Result};

/// How often something is tried that the server could not answer, and the first wait between.
const TRIES: u32 = 5;
const WAIT: Duration = Duration::from_millis(500);
/// The largest reply to a file.
const MAX_REPLY: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Project {
    pub(crate) client: Client,
    tenant: String,
    name: String,
}

impl Project {
    pub(crate) fn new(client: Client, place: InProject) -> Self {
        Self { client, tenant: place.place.tenant, name: place.project }
    }

    /// A call below the project's own part of the API.
    pub(crate) fn call(&self, method: Method, below: &[&str]) -> Result<Call> {
        let mut path = vec!["v1", "tenants", &self.tenant, "projects", &self.name];
        path.extend(below);
        self.client.call(method, &path)
    }

    /// A call of MLflow's protocol in the project.
    pub(crate) fn mlflow(&self, method: Method, below: &str) -> Result<Call> {
        let mut path = vec!["t", &self.tenant, &self.name, "api", "2.0"];
        path.extend(below.split('/'));
        self.client.call(method, &path)
    }

    /// Sends a batch of an import. Sending it twice is the same as once, so it is tried again.
    pub(crate) async fn import(&self, kind: &str, body: &impl Serialize) -> Result<Value> {
        let body = serde_json::to_value(body).map_err(|e| Failure::failed(e.to_string()))?;
        let mut tries = 0;
        loop {
            tries += 1;
            let call = self.call(Method::POST, &["import", kind])?.body(body.clone());
            match self.client.json(call).await {
                Err(failure) if failure.exit() == Exit::Unavailable && tries < TRIES => {
                    tokio::time::sleep(WAIT * tries).await;
                }
                result => return result,
            }
        }
    }

    /// What the server has of these runs and logged models, by id.
    pub(crate) async fn check(
        &self,
        runs: &[&str],
        logged_models: &[&str],
    ) -> Result<HashMap<String, Value>> {
        let asked = json!({ "runs": runs, "logged_models": logged_models });
        let mut here = self.import("check", &asked).await?;
        let mut found = HashMap::new();
        for kind in ["runs", "logged_models"] {
            let Value::Array(items) = here[kind].take() else { continue };
            for item in items {
                if let Some(id) = item["id"].as_str() {
                    found.insert(id.to_owned(), item);
                }
            }
        }
        Ok(found)
    }

    /// The files below a folder: their sizes and digests by path.
    pub(crate) async fn files(
        &self,
        folder: &str,
    ) -> Result<HashMap<String, (u64, Option<String>)>> {
        let mut found = HashMap::new();
        let mut after = String::new();
        loop {
            let asked = json!({ "folder": folder, "after": after });
            let page = self.import("files", &asked).await?;
            for file in page["files"].as_array().into_iter().flatten() {
                let path = file["path"].as_str().unwrap_or_default().to_owned();
                let sha256 = file["sha256"].as_str().map(str::to_owned);
                found.insert(path, (file["size"].as_u64().unwrap_or_default(), sha256));
            }
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut after),
                None => return Ok(found),
            }
        }
    }

    /// Sends a file, and checks that what was stored is what was read.
    pub(crate) async fn put(&self, folder: &Folder, file: &str, size: u64, to: &str) -> Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.put_once(folder, file, size, to).await {
                Err(failure) if failure.exit() == Exit::Unavailable && tries < TRIES => {
                    tokio::time::sleep(WAIT * tries).await;
                }
                result => return result,
            }
        }
    }

    async fn put_once(&self, folder: &Folder, file: &str, size: u64, to: &str) -> Result<()> {
        let mut path = vec!["import", "artifacts"];
        path.extend(to.split('/'));
        path.extend(file.split('/'));
        let call = self.call(Method::PUT, &path)?.streaming();
        let call = call.header(CONTENT_LENGTH, HeaderValue::from(size));
        let sum = Arc::new(Mutex::new(Some(digest::Context::new(&digest::SHA256))));
        let seen = sum.clone();
        let pieces = folder.read(file).await?.inspect_ok(move |piece| {
            if let Some(sum) = seen.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                sum.update(piece);
            }
        });
        let body = reqwest::Body::wrap_stream(pieces.boxed());
        let reply = bounded(self.client.upload(call, body).await?, MAX_REPLY).await?;
        let stored: Value =
            serde_json::from_slice(&reply).map_err(|e| Failure::failed(e.to_string()))?;
        let ours = sum.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ours = ours.map(|sum| hex(sum.finish().as_ref()));
        if stored["sha256"].as_str() == ours.as_deref() {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Verification,
            format!("{to}/{file}: the server stored something else than was read"),
        ))
    }
}
