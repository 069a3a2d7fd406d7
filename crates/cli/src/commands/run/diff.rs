//! `falaj run diff`.

use clap::Args;
use serde_json::{Value, json};

use crate::client::Client;
use crate::commands::InProject;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// One run.
    left: String,
    /// The other.
    right: String,
    #[command(flatten)]
    place: InProject,
}

const SECTIONS: [&str; 7] =
    ["params", "metrics", "code", "environment", "datasets", "tags", "host"];
const COLUMNS: &[Column] =
    &[("kind", "kind"), ("what", "key"), ("left", "left"), ("right", "right")];

impl Diff {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        let path = self.place.path(&["runs", &self.left, "diff", &self.right]);
        let diff = client.get(&path).await?;
        if ctx.output.is_json() {
            return ctx.output.json(&diff);
        }
        let rows = rows(&diff);
        if rows.is_empty() {
            ctx.output.say("nothing that is on record differs");
            return Ok(());
        }
        if diff["same_recipe"] == true {
            ctx.output.say("the recipes are the same, as far as they are on record");
        }
        ctx.output.list(&rows, COLUMNS)
    }
}

/// A row for each difference, of all kinds.
fn rows(diff: &Value) -> Vec<Value> {
    let mut rows = Vec::new();
    for kind in SECTIONS {
        for one in diff[kind].as_array().into_iter().flatten() {
            let (key, left, right) = (&one["key"], &one["left"], &one["right"]);
            rows.push(json!({ "kind": kind, "key": key, "left": left, "right": right }));
        }
    }
    rows
}
