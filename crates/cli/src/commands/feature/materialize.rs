//! `falaj feature materialize`: rows of sources into the online store, watched.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::path;
use crate::client::Client;
use crate::commands::{InProject, fields};
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::Column;
use crate::output::progress::Ticker;

/// How often it is asked how far a job is.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Materialize {
    /// The views; all that you may write to, if absent.
    #[arg(value_name = "VIEW")]
    views: Vec<String>,
    /// Events from here on; from where the last one ended, if absent.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Events up to here; up to now, if absent.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// From the first event on, whatever was brought before.
    #[arg(long, conflicts_with_all = ["from", "to"])]
    everything: bool,
    /// Do not wait until it is done.
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    place: InProject,
}

const VIEWS: &[Column] = &[
    ("view", "view"),
    ("version", "version"),
    ("state", "state"),
    ("rows", "rows"),
    ("latest", "placed"),
    ("read", "read"),
    ("up to", "to"),
    ("error", "error"),
];

impl Materialize {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let text = |it: &Option<String>| it.as_deref().map(Value::from);
        let body = fields([
            ("views", (!self.views.is_empty()).then(|| json!(self.views))),
            ("from", text(&self.from)),
            ("to", text(&self.to)),
            ("everything", self.everything.then_some(Value::Bool(true))),
        ]);
        let mut job = client.create(&path(&self.place, &["materialize"]), body).await?;
        let id = job["id"].as_str().unwrap_or_default().to_owned();
        if self.detach {
            let said = format!("{id} goes on; `falaj feature jobs {id}` tells how far it is");
            return ctx.output.done(&job, &said);
        }
        let mut ticker = Ticker::new(ctx.output);
        while matches!(job["state"].as_str(), Some("waiting" | "running")) {
            ticker.tick(|| line(&job));
            tokio::time::sleep(LOOK).await;
            job = client.get(&path(&self.place, &["materialize", &id])).await?;
        }
        ticker.clear();
        show(ctx, &job)
    }
}

/// See jobs, or call one off.
#[derive(Debug, Args)]
pub(super) struct Jobs {
    /// The job; all of them if absent.
    id: Option<String>,
    /// Call it off; what it has brought stays.
    #[arg(long, requires = "id")]
    cancel: bool,
    #[command(flatten)]
    place: InProject,
}

const JOBS: &[Column] = &[
    ("id", "id"),
    ("state", "state"),
    ("asked for by", "created_by"),
    ("asked for", "created_at"),
    ("finished", "finished_at"),
    ("error", "error"),
];

impl Jobs {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let Some(id) = &self.id else {
            let call = client.call(reqwest::Method::GET, &path(&self.place, &["materialize"]))?;
            return ctx.output.list(&client.list(call).await?, JOBS);
        };
        let job = if self.cancel {
            client.create(&path(&self.place, &["materialize", id, "cancel"]), json!({})).await?
        } else {
            client.get(&path(&self.place, &["materialize", id])).await?
        };
        if self.cancel {
            return ctx.output.done(&job, &format!("{id} is called off"));
        }
        show(ctx, &job)
    }
}

/// The views of a job; a job that failed ends the command so.
fn show(ctx: &Context, job: &Value) -> Result<()> {
    if ctx.output.is_json() {
        ctx.output.json(job)?;
    } else {
        ctx.output.list(job["views"].as_array().map_or(&[][..], Vec::as_slice), VIEWS)?;
    }
    match job["state"].as_str() {
        Some("failed") => {
            let why = job["error"].as_str().unwrap_or("it could not be done");
            Err(Failure::failed(why.to_owned()))
        }
        Some("cancelled") => Err(Failure::failed("it was called off".to_owned())),
        _ => Ok(()),
    }
}

/// How far a job is, on one line.
fn line(job: &Value) -> String {
    let views = job["views"].as_array().map_or(&[][..], Vec::as_slice);
    let Some(view) = views.iter().find(|view| view["state"] == "running") else {
        return "waiting for its turn".to_owned();
    };
    let number = |name: &str| view[name].as_u64().unwrap_or(0);
    let (read, total) = (number("read"), number("total"));
    let percent = read * 100 / total.max(1);
    let name = view["view"].as_str().unwrap_or_default();
    let (file, files, placed) = (number("file"), number("files"), number("placed"));
    format!(
        "{name}: file {file} of {files}, {read} of {total} rows read ({percent}%), {placed} placed"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_how_far_it_is() {
        let view = json!({ "view": "stats", "state": "running", "read": 50, "total": 200, "file": 1,
            "files": 3, "placed": 7 });
        let job = json!({ "views": [{ "view": "a", "state": "done" }, view] });
        assert_eq!(line(&job), "stats: file 1 of 3, 50 of 200 rows read (25%), 7 placed");
        assert_eq!(line(&json!({ "views": [] })), "waiting for its turn");
    }
}
