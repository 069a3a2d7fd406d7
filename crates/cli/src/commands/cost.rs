//! `falaj cost`: what jobs have used and cost.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::InProject;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// See what jobs have used and cost
#[derive(Debug, Args)]
pub(crate) struct Cost {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Add up what was reserved, and what that costs by the price book
    #[command(after_help = "Examples:\n  \
        falaj cost report --by job -t acme -p vision\n  \
        falaj cost report --by project --from 2026-05-01T00:00:00Z -t acme")]
    Report {
        /// What the lines are about.
        #[arg(long, default_value = "queue", value_parser = ["tenant", "project", "queue", "job"])]
        by: String,
        /// Only what was used since.
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// Only what was used until then.
        #[arg(long, value_name = "TIME")]
        to: Option<String>,
        #[command(flatten)]
        place: InProject,
    },
}

const LINES: &[Column] = &[
    ("what", "key"),
    ("name", "name"),
    ("starts", "starts"),
    ("core hours", "core_hours"),
    ("GiB hours", "memory_gib_hours"),
    ("GPU hours", "gpu_hours"),
    ("cost", "cost"),
];

impl Cost {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let (client, out) = (ctx.client()?, ctx.output);
        let Commands::Report { by, from, to, place } = self.command;
        let path = ["t", &place.place.tenant, &place.project, "api", "costs"];
        let call = client
            .call(Method::GET, &path)?
            .query("by", Some(&by))
            .query("from", from.as_deref())
            .query("to", to.as_deref());
        let mut lines = client.list(call).await?;
        if out.is_json() {
            return out.json(&Value::Array(lines));
        }
        for line in &mut lines {
            for field in ["core_hours", "memory_gib_hours", "gpu_hours", "cost"] {
                let number = line[field].as_f64().unwrap_or(0.0);
                line[field] = json!(format!("{number:.4}"));
            }
        }
        out.list(&lines, LINES)
    }
}
