//! `falaj queue`: quotas of a tenant.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{InProject, fields, pair, text};
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::Column;

/// See and set the quotas of a tenant's queues
#[derive(Debug, Args)]
pub(crate) struct Queue {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// List the queues of a tenant
    #[command(after_help = "Example:\n  falaj queue list -t acme -p vision")]
    List {
        #[command(flatten)]
        place: InProject,
    },
    /// Make a queue, or say anew what it has
    ///
    /// What is not given is not limited. The name `tenant` stands for all queues of the tenant
    /// together; only admins of the platform set that.
    #[command(after_help = "Examples:\n  \
        falaj queue set research --cpu 64 --gpus 8 -t acme -p vision\n  \
        falaj queue set llm --parent research --gpus 4 --no-borrow -t acme\n  \
        falaj queue set tenant --gpus 16 -t acme")]
    Set(Box<Set>),
    /// Remove a queue that has no jobs
    #[command(after_help = "Example:\n  falaj queue remove llm -t acme -p vision")]
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: InProject,
    },
}

#[derive(Debug, Args)]
struct Set {
    /// Its name.
    name: String,
    /// The queue above it; it cannot be changed later.
    #[arg(long)]
    parent: Option<String>,
    /// Cores that are its own.
    #[arg(long)]
    cpu: Option<f64>,
    /// Memory that is its own, such as 512GiB.
    #[arg(long)]
    memory: Option<String>,
    /// GPUs that are its own.
    #[arg(long)]
    gpus: Option<f64>,
    /// GPUs of one type that are its own; may be given several times.
    #[arg(long, value_name = "TYPE=COUNT", value_parser = pair)]
    gpu_type: Vec<(String, String)>,
    /// It takes nothing of what others leave unused.
    #[arg(long)]
    no_borrow: bool,
    /// Others may use nothing of what it leaves unused.
    #[arg(long)]
    no_lend: bool,
    /// Its weight among its siblings where shares are compared.
    #[arg(long)]
    weight: Option<u32>,
    #[command(flatten)]
    place: InProject,
}

const QUEUES: &[Column] = &[
    ("name", "name"),
    ("below", "parent"),
    ("cores", "quota.cpu"),
    ("memory", "quota.memory"),
    ("GPUs", "quota.gpus"),
    ("borrows", "borrow"),
    ("lends", "lend"),
    ("weight", "weight"),
    ("cores held", "held.cpu"),
    ("GPUs held", "held.gpus"),
    ("share", "held.share"),
    ("used of late", "held.used"),
];

fn path<'a>(place: &'a InProject, rest: &[&'a str]) -> Vec<&'a str> {
    let mut path = vec!["t", &place.place.tenant, &place.project, "api", "queues"];
    path.extend(rest);
    path
}

/// Nothing of anything.
fn nothing(types: &Map<String, Value>) -> Value {
    let types: Map<String, Value> = types.keys().map(|name| (name.clone(), json!(0.0))).collect();
    json!({ "cpu": 0.0, "memory": "0B", "gpus": 0.0, "gpu_types": types })
}

impl Queue {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let (client, out) = (ctx.client()?, ctx.output);
        match self.command {
            Commands::List { place } => {
                let call = client.call(Method::GET, &path(&place, &[]))?;
                out.list(&client.list(call).await?, QUEUES)
            }
            Commands::Set(set) => {
                let made = client.put(&path(&set.place, &[&set.name]), set.body()?).await?;
                out.done(&made, &format!("queue {} is set", set.name))
            }
            Commands::Remove { name, place } => {
                let call = client.call(Method::DELETE, &path(&place, &[&name]))?;
                let gone = client.json(call.body(json!({}))).await?;
                out.done(&gone, &format!("queue {name} is removed"))
            }
        }
    }
}

impl Set {
    fn body(&self) -> Result<Value> {
        let mut types = Map::new();
        for (name, count) in &self.gpu_type {
            let count: f64 = count
                .parse()
                .map_err(|_| Failure::usage(format!("--gpu-type {name}={count}: no number")))?;
            types.insert(name.clone(), json!(count));
        }
        let quota = fields([
            ("cpu", self.cpu.map(Value::from)),
            ("memory", text(self.memory.as_ref())),
            ("gpus", self.gpus.map(Value::from)),
            ("gpu_types", (!types.is_empty()).then(|| Value::Object(types.clone()))),
        ]);
        Ok(fields([
            ("parent", text(self.parent.as_ref())),
            ("quota", Some(quota)),
            ("borrow", self.no_borrow.then(|| nothing(&types))),
            ("lend", self.no_lend.then(|| nothing(&types))),
            ("weight", self.weight.map(Value::from)),
        ]))
    }
}
