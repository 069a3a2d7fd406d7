//! `falaj pool`: where jobs can run.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::{InProject, fields, text};
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
    /// Let a node take nothing new; what runs there goes on
    #[command(after_help = "Example:\n  falaj pool drain gpu3 --pool hpc")]
    Drain(Node),
    /// Let a node take jobs, for the first time or again
    #[command(after_help = "Example:\n  falaj pool resume gpu3 --pool hpc")]
    Resume {
        #[command(flatten)]
        node: Node,
        /// Where its ranks reach each other.
        #[arg(long)]
        address: Option<String>,
    },
    /// Let a node go when nothing runs there any more
    #[command(after_help = "Examples:\n  \
        falaj pool release gpu3 --pool hpc\n  \
        falaj pool release gpu3 --pool hpc --gone")]
    Release {
        #[command(flatten)]
        node: Node,
        /// It is gone already, with everything on it.
        #[arg(long)]
        gone: bool,
    },
}

#[derive(Debug, Args)]
struct Node {
    /// Its name.
    #[arg(value_name = "NODE")]
    name: String,
    /// Its pool.
    #[arg(long)]
    pool: String,
    #[command(flatten)]
    place: InProject,
}

impl Node {
    fn path(&self) -> [&str; 8] {
        let InProject { place, project } = &self.place;
        ["t", &place.tenant, project, "api", "pools", &self.pool, "nodes", &self.name]
    }
}

const NODES: &[Column] = &[
    ("pool", "pool"),
    ("kind", "kind"),
    ("node", "name"),
    ("state", "state"),
    ("zone", "zone"),
    ("cores", "cpu"),
    ("memory MiB", "memory_mib"),
    ("GPUs", "gpus"),
    ("type", "gpu_type"),
    ("GPU MiB", "gpu_memory_mib"),
    ("rack", "rack"),
    ("spot", "spot"),
    ("price", "price"),
    ("away since", "away"),
];

impl Pool {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let (client, out) = (ctx.client()?, ctx.output);
        let place = match self.command {
            Commands::List { place } => place,
            Commands::Drain(node) => {
                let now = client.put(&node.path(), json!({ "drain": true })).await?;
                return out.done(&now, &format!("{} takes nothing new", node.name));
            }
            Commands::Resume { node, address } => {
                let body = fields([("address", text(address.as_ref()))]);
                let now = client.put(&node.path(), body).await?;
                return out.done(&now, &format!("{} takes jobs", node.name));
            }
            Commands::Release { node, gone } => {
                let call = client.call(Method::DELETE, &node.path())?;
                let now = client.json(call.body(json!({ "gone": gone }))).await?;
                let state = now["state"].as_str().unwrap_or_default();
                return out.done(&now, &format!("{} is {state}", node.name));
            }
        };
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
                row["away"] = pool["away"]["since"].clone();
                rows.push(row);
            }
        }
        out.list(&rows, NODES)
    }
}
