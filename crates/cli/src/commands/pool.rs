//! `falaj pool`: where jobs can run.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::InProject;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// See where jobs can run
#[derive(Debug, Args)]
pub(crate) struct Pool {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// List pools and their nodes
    #[command(after_help = "Example:\n  falaj pool list -t acme -p vision")]
    List {
        #[command(flatten)]
        place: InProject,
    },
}

const NODES: &[Column] = &[
    ("pool", "pool"),
    ("kind", "kind"),
    ("node", "name"),
    ("zone", "zone"),
    ("cores", "cpu"),
    ("memory MiB", "memory_mib"),
    ("GPUs", "gpus"),
    ("type", "gpu_type"),
    ("rack", "rack"),
    ("spot", "spot"),
    ("price", "price"),
];

impl Pool {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let (client, out) = (ctx.client()?, ctx.output);
        let Commands::List { place } = self.command;
        let path = ["t", &place.place.tenant, &place.project, "api", "pools"];
        let pools = client.list(client.call(Method::GET, &path)?).await?;
        if out.is_json() {
            return out.json(&Value::Array(pools));
        }
        let mut rows = Vec::new();
        for pool in &pools {
            for node in pool["nodes"].as_array().into_iter().flatten() {
                let mut row = node.clone();
                row["pool"] = pool["name"].clone();
                row["kind"] = json!(pool["kind"]);
                rows.push(row);
            }
        }
        out.list(&rows, NODES)
    }
}
