//! The few calls of MLflow's protocol that running a command needs.

use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::client::{Call, Client};
use crate::commands::InProject;
use crate::exit::{Exit, Failure, Result};

pub(super) struct Mlflow<'a> {
    pub(super) client: &'a Client,
    pub(super) place: &'a InProject,
}

impl Mlflow<'_> {
    fn call(&self, method: Method, path: &[&str]) -> Result<Call> {
        let mut whole = vec!["api", "2.0"];
        whole.extend(path);
        let project = format!("{}/{}", self.place.place.tenant, self.place.project);
        let project = HeaderValue::from_str(&project)
            .map_err(|_| Failure::usage(format!("`{project}` is not a project")))?;
        let header = HeaderName::from_static("x-falaj-project");
        Ok(self.client.call(method, &whole)?.header(header, project))
    }

    async fn post(&self, path: &[&str], body: Value) -> Result<Value> {
        self.client.json(self.call(Method::POST, path)?.body(body)).await
    }

    /// The id of the experiment with this name, which is made if it is not there.
    pub(super) async fn experiment(&self, name: &str) -> Result<String> {
        let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
        let call = self
            .call(Method::GET, &["mlflow", "experiments", "get-by-name"])?
            .query("experiment_name", Some(name));
        match self.client.json(call).await {
            Ok(found) => Ok(text(&found["experiment"]["experiment_id"])),
            Err(failure) if failure.exit() == Exit::NotFound => {
                let body = json!({ "name": name });
                let made = self.post(&["mlflow", "experiments", "create"], body).await?;
                Ok(text(&made["experiment_id"]))
            }
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn create_run(
        &self,
        experiment: &str,
        name: Option<&str>,
        user: &str,
        tags: &[(String, String)],
    ) -> Result<Value> {
        let tags: Vec<Value> =
            tags.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
        let body = json!({
            "experiment_id": experiment, "run_name": name, "user_id": user,
            "start_time": now(), "tags": tags,
        });
        self.post(&["mlflow", "runs", "create"], body)
            .await
            .map(|mut made| made["run"]["info"].take())
    }

    pub(super) async fn end_run(&self, run: &str, status: &str) -> Result<()> {
        let body = json!({ "run_id": run, "status": status, "end_time": now() });
        self.post(&["mlflow", "runs", "update"], body).await.map(drop)
    }

    /// Stores a file at a path among the project's artifacts.
    pub(super) async fn put(&self, path: &str, bytes: Vec<u8>) -> Result<()> {
        let mut whole = vec!["mlflow-artifacts", "artifacts"];
        whole.extend(path.split('/'));
        let kind = HeaderValue::from_static("application/octet-stream");
        let call = self.call(Method::PUT, &whole)?.header(CONTENT_TYPE, kind).streaming();
        self.client.upload(call, reqwest::Body::from(bytes)).await.map(drop)
    }

    /// A file's bytes, at most so many.
    pub(super) async fn get(&self, path: &str, most: usize) -> Result<Vec<u8>> {
        let mut whole = vec!["mlflow-artifacts", "artifacts"];
        whole.extend(path.split('/'));
        let response = self.client.send(self.call(Method::GET, &whole)?).await?;
        crate::client::bounded(response, most).await
    }
}

/// The time in MLflow's unit.
fn now() -> i64 {
    chrono::Utc::now().timestamp_millis()
}
