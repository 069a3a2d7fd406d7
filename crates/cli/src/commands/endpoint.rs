//! `falaj endpoint`: names under which models answer.

mod traffic;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::{InProject, Sure, fields};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// See, pause, roll back and delete endpoints
#[derive(Debug, Args)]
pub(crate) struct Endpoint {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// List the endpoints of a project
    #[command(after_help = "Example:\n  falaj endpoint list -t acme -p vision")]
    List {
        #[command(flatten)]
        place: InProject,
    },
    /// Show an endpoint
    #[command(after_help = "Example:\n  falaj endpoint show churn -t acme -p vision --output json")]
    Show {
        #[command(flatten)]
        which: Named,
    },
    /// Show how the traffic of an endpoint goes: shares, errors, times, outcomes, decisions
    #[command(after_help = "Example:\n  falaj endpoint traffic churn -t acme -p vision")]
    Traffic {
        #[command(flatten)]
        which: Named,
    },
    /// Show what an endpoint was asked to serve, newest first
    #[command(after_help = "Example:\n  falaj endpoint history churn -t acme -p vision")]
    History {
        #[command(flatten)]
        which: Named,
    },
    /// Go back to what an endpoint served before
    #[command(after_help = "Examples:\n  falaj endpoint rollback churn -t acme -p vision\n  \
        falaj endpoint rollback churn --to 3")]
    Rollback {
        #[command(flatten)]
        which: Named,
        /// The revision; the one before the last change if absent.
        #[arg(long, value_name = "REVISION")]
        to: Option<i64>,
    },
    /// Stop answering and give the memory back
    #[command(after_help = "Example:\n  falaj endpoint pause churn -t acme -p vision")]
    Pause {
        #[command(flatten)]
        which: Named,
    },
    /// Answer again
    #[command(after_help = "Example:\n  falaj endpoint resume churn -t acme -p vision")]
    Resume {
        #[command(flatten)]
        which: Named,
    },
    /// Delete an endpoint; its models stay
    #[command(after_help = "Example:\n  falaj endpoint delete churn -t acme -p vision --yes")]
    Delete {
        #[command(flatten)]
        which: Named,
        #[command(flatten)]
        sure: Sure,
    },
}

/// An endpoint of a project.
#[derive(Debug, Args)]
struct Named {
    /// Its name.
    name: String,
    #[command(flatten)]
    place: InProject,
}

impl Named {
    fn path<'a>(&'a self, verb: Option<&'a str>) -> Vec<&'a str> {
        let rest: Vec<&str> = ["endpoints", &self.name].into_iter().chain(verb).collect();
        self.place.path(&rest)
    }
}

pub(super) const COLUMNS: &[Column] = &[
    ("name", "name"),
    ("revision", "revision"),
    ("serves", "serves"),
    ("state", "state"),
    ("held back", "held_back"),
    ("updated by", "updated_by"),
    ("updated", "updated_at"),
];
const HISTORY: &[Column] =
    &[("revision", "revision"), ("asked for", "asked"), ("by", "by"), ("at", "at")];

impl Endpoint {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        let out = ctx.output;
        match self.command {
            Commands::List { place } => {
                let call = client.call(Method::GET, &place.path(&["endpoints"]))?;
                let found = client.list(call).await?;
                out.list(&found.into_iter().map(shown).collect::<Vec<_>>(), COLUMNS)
            }
            Commands::Show { which } => {
                let found = client.json(client.call(Method::GET, &which.path(None))?).await?;
                out.record(&shown(found), COLUMNS)
            }
            Commands::Traffic { which } => {
                let call = client.call(Method::GET, &which.path(Some("traffic")))?;
                traffic::show(out, &client.json(call).await?)
            }
            Commands::History { which } => {
                let call = client.call(Method::GET, &which.path(Some("revisions")))?;
                let mut found = client.json(call).await?;
                let list = found["revisions"].as_array_mut().map(std::mem::take);
                let list = list.unwrap_or_default().into_iter().map(|mut revision| {
                    let variants = revision["spec"]["variants"].as_array();
                    let asked: Vec<_> = variants.into_iter().flatten().map(asked).collect();
                    revision["asked"] = json!(asked);
                    revision
                });
                out.list(&list.collect::<Vec<_>>(), HISTORY)
            }
            Commands::Rollback { which, to } => {
                let body = fields([("revision", to.map(Value::from))]);
                let call = client.call(Method::POST, &which.path(Some("rollback")))?.body(body);
                out.record(&shown(client.json(call).await?), COLUMNS)
            }
            Commands::Pause { which } => {
                let call = client.call(Method::POST, &which.path(Some("pause")))?;
                out.record(&shown(client.json(call).await?), COLUMNS)
            }
            Commands::Resume { which } => {
                let call = client.call(Method::POST, &which.path(Some("resume")))?;
                out.record(&shown(client.json(call).await?), COLUMNS)
            }
            Commands::Delete { which, sure } => {
                confirm(sure.yes, &format!("Deleting the endpoint {}", which.name), &which.name)
                    .await?;
                let gone = client.delete(&which.path(None)).await?;
                out.done(&gone, &format!("deleted {}", which.name))
            }
        }
    }
}

/// A variant in a few words.
fn asked(variant: &Value) -> String {
    let text = |key: &str| variant[key].as_str().unwrap_or_default().to_owned();
    let which = match (variant["version"].as_i64(), variant["alias"].as_str()) {
        (Some(version), _) => format!("/{version}"),
        (None, Some(alias)) => format!("@{alias}"),
        (None, None) => String::new(),
    };
    let model = match (variant["remote"]["model"].as_str(), variant["remote"]["url"].as_str()) {
        (Some(model), Some(url)) => format!("{model} at {url}"),
        _ => text("model") + &which,
    };
    format!("{}={model}:{}", text("name"), variant["weight"])
}

/// Adds what a table shows of an endpoint.
pub(super) fn shown(mut endpoint: Value) -> Value {
    let variants: Vec<Value> = endpoint["spec"]["variants"].as_array().cloned().unwrap_or_default();
    let running: Vec<Value> = endpoint["running"].as_array().cloned().unwrap_or_default();
    let version = |variant: &Value| {
        running
            .iter()
            .find(|running| running["variant"] == variant["name"])
            .map(|running| running.get("remote").unwrap_or(&running["version"]).clone())
    };
    let serves = variants.iter().map(|variant| {
        format!("{} (version {})", asked(variant), version(variant).unwrap_or_default())
    });
    endpoint["serves"] = serves.collect();
    let held: Vec<&Value> =
        running.iter().map(|running| &running["held_back"]).filter(|why| !why.is_null()).collect();
    endpoint["held_back"] = json!(held);
    let paused = endpoint["paused"].as_bool().unwrap_or_default();
    endpoint["state"] = if paused { "paused" } else { "answering" }.into();
    endpoint
}
