//! `falaj experiment`: named collections of runs, in folders.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use super::{InProject, Sure, fields, pair, pairs};
use crate::client::Client;
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::output::{Column, printable};

mod tree;

/// Create, list, delete and purge experiments
#[derive(Debug, Args)]
pub(crate) struct Experiment {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Create an experiment; slashes in its name make folders
    #[command(after_help = "Example:\n  falaj experiment create vision/resnet -t acme -p vision")]
    Create {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: InProject,
        /// A tag as name=value; may be given several times.
        #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = pair)]
        tags: Vec<(String, String)>,
    },
    /// List the experiments you may see
    #[command(after_help = "Example:\n  falaj experiment list --folder vision -t acme -p vision")]
    List {
        #[command(flatten)]
        place: InProject,
        /// Only what lies in this folder, at any depth.
        #[arg(long)]
        folder: Option<String>,
        /// Those that are there, those that were deleted, or all.
        #[arg(long, default_value = "active", value_parser = ["active", "deleted", "all"])]
        view: String,
    },
    /// Show the experiments as a tree of folders
    #[command(after_help = "Example:\n  falaj experiment tree -t acme -p vision")]
    Tree {
        #[command(flatten)]
        place: InProject,
        /// Only what lies in this folder.
        #[arg(long)]
        folder: Option<String>,
    },
    /// Show one experiment
    #[command(after_help = "Example:\n  falaj experiment show vision/resnet -t acme -p vision")]
    Show {
        /// Its id or its name.
        experiment: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Delete an experiment and its runs; `restore` brings them back
    #[command(after_help = "Example:\n  falaj experiment delete 7 -t acme -p vision")]
    Delete {
        /// Its id or its name.
        experiment: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Bring a deleted experiment and its runs back
    #[command(after_help = "Example:\n  falaj experiment restore 7 -t acme -p vision")]
    Restore {
        /// Its id or its name.
        experiment: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Delete a deleted experiment for good, with everything in it
    #[command(after_help = "Example:\n  falaj experiment purge 7 -t acme -p vision --yes")]
    Purge {
        /// Its id or its name.
        experiment: String,
        #[command(flatten)]
        place: InProject,
        /// Also if it is not deleted.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        sure: Sure,
    },
}

const COLUMNS: &[Column] = &[
    ("id", "experiment_id"),
    ("name", "name"),
    ("stage", "lifecycle_stage"),
    ("created", "created_at"),
    ("tags", "tags"),
];
const FIELDS: &[Column] = &[
    ("id", "experiment_id"),
    ("name", "name"),
    ("folder", "folder"),
    ("stage", "lifecycle_stage"),
    ("artifacts", "artifact_location"),
    ("created", "created_at"),
    ("updated", "updated_at"),
    ("tags", "tags"),
];
/// What a purge tells.
pub(super) const GONE: &[Column] =
    &[("files", "files"), ("bytes", "bytes"), ("still clearing away", "pending")];

impl Experiment {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        match self.command {
            Commands::Create { name, place, tags } => {
                let body = fields([("name", Some(name.into())), ("tags", pairs(&tags))]);
                let call = client.call(Method::POST, &place.path(&["experiments"]))?.body(body);
                ctx.output.record(&client.json(call).await?, FIELDS)
            }
            Commands::List { place, folder, view } => {
                let items = list(&client, &place, folder.as_deref(), &view).await?;
                ctx.output.list(&items, COLUMNS)
            }
            Commands::Tree { place, folder } => {
                let items = list(&client, &place, folder.as_deref(), "active").await?;
                if ctx.output.is_json() {
                    return ctx.output.json(&tree::json(&items));
                }
                ctx.output.text(printable(&tree::text(&items), true).trim_end())
            }
            Commands::Show { experiment, place } => {
                ctx.output.record(&find(&client, &place, &experiment).await?, FIELDS)
            }
            Commands::Delete { experiment, place } => {
                let id = id(&client, &place, &experiment).await?;
                let gone = client.delete(&place.path(&["experiments", &id])).await?;
                ctx.output.done(&gone, &format!("deleted experiment {id}; `restore` undoes it"))
            }
            Commands::Restore { experiment, place } => {
                let id = id(&client, &place, &experiment).await?;
                let path = place.path(&["experiments", &id, "restore"]);
                let back = client.json(client.call(Method::POST, &path)?).await?;
                ctx.output.done(&back, &format!("restored experiment {id}"))
            }
            Commands::Purge { experiment, place, force, sure } => {
                let id = id(&client, &place, &experiment).await?;
                let what = format!("Purging experiment {experiment}");
                confirm(sure.yes, &what, &experiment).await?;
                let path = place.path(&["experiments", &id, "purge"]);
                let body = fields([("force", force.then_some(true.into()))]);
                let call = client.call(Method::POST, &path)?.body(body);
                ctx.output.record(&client.json(call).await?, GONE)
            }
        }
    }
}

async fn list(
    client: &Client,
    place: &InProject,
    folder: Option<&str>,
    view: &str,
) -> Result<Vec<Value>> {
    let call = client
        .call(Method::GET, &place.path(&["experiments"]))?
        .query("folder", folder)
        .query("view", Some(view))
        .query("page_size", Some("1000"));
    client.list(call).await
}

/// An experiment by its id, or else by its name.
pub(super) async fn find(client: &Client, place: &InProject, which: &str) -> Result<Value> {
    let is_id = !which.is_empty() && which.bytes().all(|byte| byte.is_ascii_digit());
    if is_id {
        return client.get(&place.path(&["experiments", which])).await;
    }
    let call = client
        .call(Method::GET, &place.path(&["experiments"]))?
        .query("name", Some(which))
        .query("view", Some("all"));
    client.list(call).await?.into_iter().next().ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no experiment {which:?} here"))
            .hint("`falaj experiment list` shows those you may see")
    })
}

pub(super) async fn id(client: &Client, place: &InProject, which: &str) -> Result<String> {
    let found = find(client, place, which).await?;
    let id = found["experiment_id"].as_str().map(str::to_owned);
    id.ok_or_else(|| Failure::failed("the server's answer names no experiment"))
}
