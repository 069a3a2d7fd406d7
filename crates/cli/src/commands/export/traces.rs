//! Traces: what is said of them goes into the database, their spans into a file of each.

use std::collections::HashMap;
use std::path::Path;

use falaj_moving::record::Trace;
use falaj_moving::{Source, digest};
use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::mlflow::Move;
use super::read;
use crate::client::broken_stream;
use crate::exit::{Result, file_error};
use crate::inside::inside;
use crate::moving::{Account, Kind, Project};

/// How many traces are asked for at once.
const TRACES: usize = 100;
const FILE: &str = "traces.json";

/// Tags that say where spans are.
const LOCATION: &str = "mlflow.artifactLocation";
const KEPT_IN: &str = "mlflow.trace.spansLocation";

impl Move {
    pub(super) async fn traces(&mut self, experiment: &str) -> Result<()> {
        let mut token: Option<String> = None;
        loop {
            let body = json!({
                "locations": [{
                    "type": "MLFLOW_EXPERIMENT",
                    "mlflow_experiment": { "experiment_id": experiment },
                }],
                "max_results": TRACES,
                "page_token": token,
            });
            let call = self.project.mlflow_3(Method::POST, "mlflow/traces/search")?.body(body);
            let page = self.project.client.json(call).await?;
            for one in page["traces"].as_array().into_iter().flatten() {
                self.one_trace(read::trace(one, experiment)).await?;
            }
            token = page["next_page_token"].as_str().map(str::to_owned);
            if token.is_none() {
                return Ok(());
            }
        }
    }

    async fn one_trace(&mut self, mut trace: Trace) -> Result<()> {
        let folder = format!("{}/traces/{}/artifacts", trace.experiment, trace.id);
        trace.tags.retain(|(key, _)| key != LOCATION && key != KEPT_IN);
        trace.tags.push((LOCATION.to_owned(), format!("mlflow-artifacts:/{folder}")));
        trace.tags.sort();
        match &self.artifacts {
            Some(root) => {
                let file = inside(root, &format!("{folder}/{FILE}"))?;
                fetch(&self.project, &trace.id, &file).await?;
            }
            None => self.account.note("the spans of traces are left out with the files".to_owned()),
        }
        self.database.put_trace(&trace)?;
        self.account.found(Kind::Traces, 1);
        self.account.sent(Kind::Traces, 1);
        self.traces.insert(trace.id.clone(), mark(&trace));
        Ok(())
    }
}

/// A short text that is another one when something of a trace is.
fn mark(trace: &Trace) -> String {
    digest::mark(&[&format!("{trace:?}")])
}

/// Fetches the spans of a trace under another name; the file gets its own when it is there.
async fn fetch(project: &Project, trace: &str, to: &Path) -> Result<()> {
    let folder = to.parent().unwrap_or(to);
    tokio::fs::create_dir_all(folder).await.map_err(file_error("make", folder))?;
    let part = to.with_extension("part");
    let call = project.mlflow_3(Method::GET, "mlflow/get-trace-artifact")?;
    let call = call.query("request_id", Some(trace)).streaming();
    let mut response = project.client.send(call).await?;
    let mut file = tokio::fs::File::create(&part).await.map_err(file_error("write", &part))?;
    while let Some(piece) = response.chunk().await.map_err(|error| broken_stream(&error))? {
        file.write_all(&piece).await.map_err(file_error("write", &part))?;
    }
    file.sync_all().await.map_err(file_error("write", &part))?;
    drop(file);
    tokio::fs::rename(&part, to).await.map_err(file_error("write", to))
}

/// Compares the traces that were written with those that were read.
pub(super) async fn verify(
    written: &Source,
    read: &mut HashMap<String, String>,
    account: &mut Account,
    experiment: &str,
) -> Result<()> {
    let mut after = String::new();
    loop {
        let some = written.traces(experiment, &after, TRACES).await?;
        let Some(last) = some.last() else { return Ok(()) };
        after.clone_from(&last.id);
        for trace in some {
            let was = read.remove(&trace.id);
            account.compare(&format!("trace {}", trace.id), &mark(&trace), was.as_deref());
        }
    }
}
