//! What is known about a view beside its values.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::{InProject, path};
use crate::client::Client;
use crate::commands::dataset::VALUES;
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::Column;

/// A view.
#[derive(Debug, Args)]
pub(super) struct OfView {
    /// Its name.
    view: String,
    #[command(flatten)]
    place: InProject,
}

impl OfView {
    async fn get(&self, client: &Client, what: &str) -> Result<Value> {
        client.get(&path(&self.place, &["views", &self.view, what])).await
    }
}

const FRESHNESS: &[Column] = &[
    ("view", "view"),
    ("version", "version"),
    ("newest event", "newest_event"),
    ("newest known", "newest_known"),
    ("age in seconds", "age_seconds"),
    ("allowed", "allowed"),
    ("stale since", "stale_since"),
    ("looked at", "checked_at"),
];
const LINEAGE: &[Column] = &[
    ("view", "view"),
    ("version", "version"),
    ("entities", "up.entities"),
    ("sources", "up.sources"),
    ("computed from", "up.views"),
    ("services", "down.services"),
    ("views on demand", "down.views"),
    ("training sets", "down.training_sets"),
    ("datasets", "down.datasets"),
    ("runs", "down.runs"),
];
const SKEW: &[Column] = &[
    ("view", "view"),
    ("version", "version"),
    ("at", "at"),
    ("entities", "entities"),
    ("values compared", "compared"),
    ("values that differ", "mismatches"),
    ("allowed share", "threshold"),
];
const LAST: &[Column] = &[
    ("view", "view"),
    ("version", "version"),
    ("every", "every"),
    ("tried at", "tried_at"),
    ("failure", "failure"),
    ("compared at", "result.at"),
    ("entities", "result.entities"),
    ("values compared", "result.compared"),
    ("values that differ", "result.mismatches"),
    ("features that differ", "result.features"),
    ("more than allowed", "result.above"),
];
const DIFFERING: &[Column] =
    &[("feature", "feature"), ("differ", "mismatches"), ("samples", "samples")];

pub(super) async fn freshness(of: OfView, ctx: &Context, client: &Client) -> Result<()> {
    ctx.output.record(&of.get(client, "freshness").await?, FRESHNESS)
}

pub(super) async fn lineage(of: OfView, ctx: &Context, client: &Client) -> Result<()> {
    ctx.output.record(&of.get(client, "lineage").await?, LINEAGE)
}

/// Which statistics.
#[derive(Debug, Args)]
pub(super) struct Profile {
    #[command(flatten)]
    of: OfView,
    /// Show what was counted last, and count nothing.
    #[arg(long)]
    last: bool,
}

impl Profile {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let found = if self.last {
            self.of.get(client, "statistics").await?
        } else {
            let path = path(&self.of.place, &["views", &self.of.view, "profile"]);
            client.create(&path, json!({})).await?
        };
        if ctx.output.is_json() {
            return ctx.output.json(&found);
        }
        let (rows, at) = (&found["rows"], found["at"].as_str().unwrap_or_default());
        ctx.output.say(&format!("{rows} rows, counted at {at}"));
        ctx.output.list(found["columns"].as_array().map_or(&[], Vec::as_slice), VALUES)
    }
}

/// What is compared.
#[derive(Debug, Args)]
pub(super) struct Check {
    #[command(flatten)]
    of: OfView,
    /// How many entities, taken at random.
    #[arg(long, default_value_t = 1000)]
    entities: u32,
    /// The share of values that may differ, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    threshold: f64,
    /// Show what was found last, and compare nothing.
    #[arg(long, conflicts_with_all = ["entities", "threshold"])]
    last: bool,
}

impl Check {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        if self.last {
            return ctx.output.record(&self.of.get(client, "check").await?, LAST);
        }
        let path = path(&self.of.place, &["views", &self.of.view, "check"]);
        let body = json!({ "entities": self.entities, "threshold": self.threshold });
        let call = client.call(Method::POST, &path)?.body(body);
        let found = client.json(call).await?;
        ctx.output.record(&found, SKEW)?;
        let differing = found["features"].as_array().map_or(&[][..], Vec::as_slice);
        if !ctx.output.is_json() && !differing.is_empty() {
            ctx.output.list(differing, DIFFERING)?;
        }
        if found["above"] == true {
            let text = format!("{} of {} values differ", found["mismatches"], found["compared"]);
            return Err(Failure::failed(text));
        }
        Ok(())
    }
}
