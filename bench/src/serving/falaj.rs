//! Falaj as an operator starts it, with models that came the way they come: logged with MLflow's
//! API, registered, deployed.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use falaj_testkit::{Answer, Client, Sandbox, Setup};
use http::Method;
use serde_json::{Value, json};

use super::models::Model;
use super::target::Target;

/// A version is signed and tried by workers before it can be deployed.
const DEPLOYED_WITHIN: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(200);

pub(super) struct Falaj {
    server: Sandbox,
    token: String,
    client: Client,
    experiment: String,
}

impl Falaj {
    pub(super) async fn start(library: &Path) -> Result<Self> {
        // One principal sends everything here; the limit on one principal is not what is measured.
        let server = Setup::default()
            .env("FALAJ_SERVING_ONNXRUNTIME", library.display().to_string())
            .env("FALAJ_LIMITS_REQUESTS_PER_SECOND", "10000000")
            .env("FALAJ_LIMITS_REQUEST_BURST", "10000000")
            .start()
            .await?;
        let (token, client) = (server.admin_token()?, server.admin()?);
        let made = mlflow(&client, "experiments/create", json!({ "name": "bench" })).await?;
        let experiment = text(&made["experiment_id"])?;
        Ok(Self { server, token, client, experiment })
    }

    /// Registers a version of a model, call by call as MLflow's client does.
    pub(super) async fn register(&self, model: &Model) -> Result<()> {
        let name = &model.name;
        let wanted = json!({ "name": name });
        // It may be there already, with another version.
        self.client.post("/api/2.0/mlflow/registered-models/create", &wanted).await?;
        let run = json!({ "experiment_id": self.experiment, "start_time": 0 });
        let run = mlflow(&self.client, "runs/create", run).await?;
        let (run, uri) =
            (text(&run["run"]["info"]["run_id"])?, text(&run["run"]["info"]["artifact_uri"])?);
        let place = uri.split_once(':').context("an artifact URI without a scheme")?.1;
        let place = place.trim_start_matches('/');
        let path = format!("/api/2.0/mlflow-artifacts/artifacts/{place}/model/model.onnx");
        let put = self.client.put(&path, model.file.bytes().clone()).await?;
        anyhow::ensure!(put.status.is_success(), "{path}: {} {}", put.status, put.text());
        let version = json!({ "name": name, "run_id": run, "source": format!("{uri}/model") });
        mlflow(&self.client, "model-versions/create", version).await.map(drop)
    }

    /// Deploys variants under a name; returns when they answer.
    pub(super) async fn deploy(&self, endpoint: &str, spec: Value) -> Result<()> {
        let path = format!("/v1/tenants/default/projects/default/endpoints/{endpoint}");
        let body = json!({ "spec": spec });
        let until = Instant::now() + DEPLOYED_WITHIN;
        loop {
            let answer = Answer::of(self.client.request(Method::PUT, &path).json(&body)).await?;
            if answer.status.is_success() {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("{path}: {} {}", answer.status, answer.text());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    pub(super) fn target(&self, endpoint: &str, model: &Model) -> Result<Target> {
        let address: SocketAddr = self.server.url().trim_start_matches("http://").parse()?;
        Target::new("Falaj", address, self.pid()?, Some(&self.token), (endpoint, model))
    }

    pub(super) fn pid(&self) -> Result<u32> {
        self.server.pid().context("the server is not running")
    }
}

async fn mlflow(client: &Client, call: &str, body: Value) -> Result<Value> {
    let answer = client.post(&format!("/api/2.0/mlflow/{call}"), &body).await?;
    anyhow::ensure!(answer.status.is_success(), "{call}: {} {}", answer.status, answer.text());
    answer.json()
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("{value} is no text"))?.to_owned())
}
