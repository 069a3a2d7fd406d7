//! The project on the server: what an import sends to it and asks of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest;
use falaj_base::hex;
use falaj_moving::artifact::{File, Folder};
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

/// On whose terms things are brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A store is taken over.
    Import,
    /// What was logged to a store is added.
    Sync,
}

impl Way {
    const fn word(self) -> &'static str {
        match self {
            Self::Import => "import",
            Self::Sync => "sync",
        }
    }
}

/// A run or logged model that came from a store: as what it looked like there, and whether it is
/// `active`, `deleted` or `gone` here.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    pub(crate) mark: Option<String>,
    pub(crate) stage: String,
}

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
        self.mlflow_of("2.0", method, below)
    }

    /// The same of its third version.
    pub(crate) fn mlflow_3(&self, method: Method, below: &str) -> Result<Call> {
        self.mlflow_of("3.0", method, below)
    }

    fn mlflow_of(&self, version: &str, method: Method, below: &str) -> Result<Call> {
        let mut path = vec!["t", &self.tenant, &self.name, "api", version];
        path.extend(below.split('/'));
        self.client.call(method, &path)
    }

    /// Where OpenTelemetry sends spans.
    pub(crate) fn traces(&self) -> Result<Call> {
        self.client.call(Method::POST, &["t", &self.tenant, &self.name, "v1", "traces"])
    }

    /// Sends a batch of an import, or asks what came.
    pub(crate) async fn import(&self, kind: &str, body: &impl Serialize) -> Result<Value> {
        self.bring(Way::Import, kind, body).await
    }

    /// Sends a batch. Sending it twice is the same as once, so it is tried again.
    pub(crate) async fn bring(&self, way: Way, kind: &str, body: &impl Serialize) -> Result<Value> {
        let body = serde_json::to_value(body).map_err(|e| Failure::failed(e.to_string()))?;
        self.again(self.call(Method::POST, &[way.word(), kind])?.body(body)).await
    }

    /// Sends what can be sent twice, until it is answered.
    pub(crate) async fn again(&self, call: Call) -> Result<Value> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.client.json(call.clone()).await {
                Err(failure) if failure.is_passing() && tries < TRIES => {
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
        let mut asked =
            json!({ "runs": runs, "logged_models": logged_models, "series": !runs.is_empty() });
        let mut found = HashMap::new();
        loop {
            let mut here = self.import("check", &asked).await?;
            for kind in ["runs", "logged_models"] {
                let Value::Array(items) = here[kind].take() else { continue };
                for item in items {
                    if let Some(id) = item["id"].as_str() {
                        found.insert(id.to_owned(), item);
                    }
                }
            }
            // What one request had no room for.
            let left = here["left"].take();
            let some = |kind: &str| left[kind].as_array().is_some_and(|ids| !ids.is_empty());
            if !some("runs") && !some("logged_models") {
                return Ok(found);
            }
            asked = left;
        }
    }

    /// What the server says of these traces, by id.
    pub(crate) async fn trace_infos(
        &self,
        ids: impl Iterator<Item = &str>,
    ) -> Result<HashMap<String, Value>> {
        let ids: Vec<&str> = ids.collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let call = self.mlflow_3(Method::POST, "mlflow/traces/batchGetInfos")?;
        let mut reply = self.again(call.body(json!({ "trace_ids": ids }))).await?;
        let Value::Array(infos) = reply["trace_infos"].take() else { return Ok(HashMap::new()) };
        let named = |info: Value| Some((info["trace_id"].as_str()?.to_owned(), info));
        Ok(infos.into_iter().filter_map(named).collect())
    }

    /// What came from a store, by id.
    pub(crate) async fn came(&self, source: &str) -> Result<HashMap<String, Came>> {
        let mut found = HashMap::new();
        let mut after = String::new();
        loop {
            let page = self.import("marks", &json!({ "source": source, "after": after })).await?;
            for one in page["marks"].as_array().into_iter().flatten() {
                let text = |field: &str| one[field].as_str().map(str::to_owned);
                let came = Came { mark: text("mark"), stage: text("stage").unwrap_or_default() };
                found.insert(text("id").unwrap_or_default(), came);
            }
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut after),
                None => return Ok(found),
            }
        }
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
    pub(crate) async fn put(
        &self,
        folder: &Folder,
        file: &File,
        to: &str,
        from: (Way, &str),
    ) -> Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.put_once(folder, file, to, from).await {
                Err(failure) if failure.is_passing() && tries < TRIES => {
                    tokio::time::sleep(WAIT * tries).await;
                }
                result => return result,
            }
        }
    }

    async fn put_once(
        &self,
        folder: &Folder,
        file: &File,
        to: &str,
        (way, source): (Way, &str),
    ) -> Result<()> {
        let mut path = vec![way.word(), "artifacts"];
        path.extend(to.split('/'));
        path.extend(file.path.split('/'));
        let call = self.call(Method::PUT, &path)?.query("source", Some(source)).streaming();
        let call = call.header(CONTENT_LENGTH, HeaderValue::from(file.size));
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
            format!("{to}/{}: the server stored something else than was read", file.path),
        ))
    }
}
