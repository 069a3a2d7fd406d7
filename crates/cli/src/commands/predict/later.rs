//! Requests that are answered later: submitted, looked at, fetched, cancelled.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use falaj_oip::HEADER_LENGTH;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use super::super::InProject;
use crate::client::{Client, bounded};
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::Column;

/// The largest answer that is read.
const MAX_ANSWER: usize = 1 << 30;
/// How often it is asked whether a request has ended: at first, and at most.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(5);

const COLUMNS: &[Column] = &[
    ("id", "id"),
    ("state", "state"),
    ("submitted", "submitted_at"),
    ("by", "submitted_by"),
    ("finished", "finished_at"),
    ("expires", "expires_at"),
    ("attempts", "attempts"),
    ("error", "error.message"),
];

#[derive(Debug, Args)]
pub(super) struct LaterArgs {
    /// A file with one request as JSON, to be answered later; its id is printed.
    #[arg(long, value_name = "FILE")]
    later: Option<PathBuf>,
    /// Wait for the answer and print it.
    #[arg(long, requires = "later")]
    wait: bool,
    /// The URL that is called when it has ended; the server lists the hosts that it calls.
    #[arg(long, value_name = "URL", requires = "later")]
    callback: Option<String>,
    /// How long it may wait to be answered, such as 1h.
    #[arg(long, value_name = "TIME", requires = "later")]
    expires_in: Option<String>,
    /// Who goes first among those that wait, 1 to 3.
    #[arg(long, value_name = "N", requires = "later",
          value_parser = clap::value_parser!(u8).range(1..=3))]
    priority: Option<u8>,
    /// The version that is to answer.
    #[arg(long, value_name = "VERSION", requires = "later")]
    model_version: Option<String>,
    /// Show how far a request is.
    #[arg(long, value_name = "ID")]
    status: Option<String>,
    /// Fetch what was answered.
    #[arg(long, value_name = "ID")]
    result: Option<String>,
    /// Cancel a request, or forget one that has ended.
    #[arg(long, value_name = "ID")]
    cancel: Option<String>,
    /// List your requests; those of all callers for who operates the endpoint.
    #[arg(long)]
    requests: bool,
}

impl LaterArgs {
    pub(super) async fn run(
        &self,
        ctx: &Context,
        client: &Client,
        place: &InProject,
        endpoint: &str,
        out: Option<&Path>,
    ) -> Result<()> {
        let queue = Queue { ctx, client, place, endpoint };
        if out.is_some() && self.result.is_none() && !self.wait {
            let text = "--out is for --batch, which needs it, --result and --wait";
            return Err(Failure::usage(text));
        }
        match (&self.later, &self.status, &self.result, &self.cancel) {
            (Some(file), ..) => {
                let made = self.submit(&queue, file).await?;
                if !self.wait {
                    return ctx.output.record(&made, COLUMNS);
                }
                let id = made["id"].as_str().unwrap_or_default().to_owned();
                queue.ended(&id).await?;
                queue.fetch(&id, out).await
            }
            (_, Some(id), ..) => ctx.output.record(&client.get(&queue.path(&[id])).await?, COLUMNS),
            (_, _, Some(id), _) => queue.fetch(id, out).await,
            (.., Some(id)) => {
                let gone = client.delete(&queue.path(&[id])).await?;
                ctx.output.done(&gone, &format!("cancelled or forgot {id}"))
            }
            _ => {
                let call = client.call(Method::GET, &queue.path(&[]))?;
                ctx.output.list(&client.list(call).await?, COLUMNS)
            }
        }
    }

    /// Sends the file as it is: what is in it is the server's to judge.
    async fn submit(&self, queue: &Queue<'_>, file: &Path) -> Result<Value> {
        let cannot = |error| Failure::usage(format!("cannot read {}: {error}", file.display()));
        let body = tokio::fs::read(file).await.map_err(cannot)?;
        let priority = self.priority.map(|priority| priority.to_string());
        let call = queue
            .client
            .call(Method::POST, &queue.path(&[]))?
            .query("callback", self.callback.as_deref())
            .query("expires_in", self.expires_in.as_deref())
            .query("priority", priority.as_deref())
            .query("version", self.model_version.as_deref())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .streaming();
        let reply = queue.client.upload(call, body.into()).await?;
        let reply = bounded(reply, MAX_ANSWER).await?;
        serde_json::from_slice(&reply)
            .map_err(|error| Failure::failed(format!("the server's answer is not JSON: {error}")))
    }
}

/// The requests of one endpoint.
struct Queue<'a> {
    ctx: &'a Context,
    client: &'a Client,
    place: &'a InProject,
    endpoint: &'a str,
}

impl<'a> Queue<'a> {
    fn path(&self, rest: &[&'a str]) -> Vec<&'a str> {
        let mut path = self.place.path(&["endpoints", self.endpoint, "requests"]);
        path.extend(rest);
        path
    }

    /// Waits until a request has ended.
    async fn ended(&self, id: &str) -> Result<()> {
        let mut pause = FIRST_LOOK;
        loop {
            let path = self.place.path(&["endpoints", self.endpoint, "requests", id]);
            let request = self.client.get(&path).await?;
            let state = request["state"].as_str().unwrap_or_default();
            if !matches!(state, "queued" | "running") {
                return Ok(());
            }
            self.ctx.output.detail(|| format!("{id} is {state}"));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    async fn fetch(&self, id: &str, out: Option<&Path>) -> Result<()> {
        let path = self.place.path(&["endpoints", self.endpoint, "requests", id, "result"]);
        let reply = self.client.send(self.client.call(Method::GET, &path)?.streaming()).await?;
        let length = reply.headers().get(HEADER_LENGTH).cloned();
        let body = bounded(reply, MAX_ANSWER).await?;
        let Some(out) = out else {
            return match (length, serde_json::from_slice(&body)) {
                (None, Ok(answer)) => self.ctx.output.json(&answer),
                _ => Err(Failure::usage("the answer has raw tensors: name a file with --out")),
            };
        };
        let cannot = |error| Failure::failed(format!("cannot write {}: {error}", out.display()));
        std::fs::File::create(out).and_then(|mut file| file.write_all(&body)).map_err(cannot)?;
        let shown = out.display().to_string();
        let json_part = length.and_then(|length| length.to_str().ok().map(str::to_owned));
        let told = serde_json::json!({ "out": shown, "header_length": json_part });
        self.ctx.output.done(&told, &format!("wrote {} bytes to {shown}", body.len()))
    }
}
