//! `falaj model`: registered models, from registration to retirement.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::{InProject, Sure, pair};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

mod alias;
pub(in crate::commands) mod api;
mod approval;
mod card;
mod download;
mod local;
mod policy;
mod proof;

use api::Api;

/// Register, sign, promote and fetch models
#[derive(Debug, Args)]
pub(crate) struct Model {
    #[command(subcommand)]
    command: Commands,
}

/// One version of one model.
#[derive(Debug, Args)]
struct Which {
    /// The model.
    name: String,
    /// The version's number.
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    version: u32,
    #[command(flatten)]
    place: InProject,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// List the models of a project
    #[command(after_help = "Example:\n  falaj model list -t acme -p vision")]
    List {
        #[command(flatten)]
        place: InProject,
        /// Only those that fit an MLflow filter.
        #[arg(long, value_name = "FILTER")]
        filter: Option<String>,
    },
    /// Show a model
    #[command(after_help = "Example:\n  falaj model show diabetes -t acme -p vision")]
    Show {
        /// The model.
        name: String,
        #[command(flatten)]
        place: InProject,
    },
    /// List the versions of a model
    #[command(after_help = "Example:\n  falaj model versions diabetes -t acme -p vision")]
    Versions {
        /// The model.
        name: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Register a version, and the model if there is none of that name
    #[command(after_help = "Examples:\n  \
        falaj model register diabetes runs:/0a1b2c3d4e5f60718293a4b5c6d7e8f9/model --run \
        0a1b2c3d4e5f60718293a4b5c6d7e8f9\n  \
        falaj model register diabetes models:/m-0a1b2c3d4e5f60718293a4b5c6d7e8f9 --logged-model \
        m-0a1b2c3d4e5f60718293a4b5c6d7e8f9")]
    Register {
        /// The model.
        name: String,
        /// Where it comes from: `runs:/…`, `models:/…` or an address.
        source: String,
        #[command(flatten)]
        place: InProject,
        /// The run it comes from.
        #[arg(long)]
        run: Option<String>,
        /// The logged model it comes from.
        #[arg(long)]
        logged_model: Option<String>,
        /// What it is.
        #[arg(long)]
        description: Option<String>,
        /// A tag, as name=value.
        #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = pair)]
        tags: Vec<(String, String)>,
    },
    /// Point aliases at versions, and back
    Alias(alias::Alias),
    /// Move a version to a stage
    #[command(after_help = "Example:\n  falaj model stage diabetes 3 Production --archive-others")]
    Stage {
        #[command(flatten)]
        which: Which,
        /// None, Staging, Production or Archived.
        stage: String,
        /// Send the others in that stage to the archive.
        #[arg(long)]
        archive_others: bool,
    },
    /// See and write model cards
    Card(card::Card),
    /// See and set what protected aliases and stages ask for
    Policy(policy::Policy),
    /// Ask for approval of a promotion
    #[command(after_help = "Example:\n  \
        falaj model request diabetes 3 --alias production --note 'better on the holdout'")]
    Request(approval::Request),
    /// List requests for approval
    #[command(after_help = "Example:\n  falaj model requests --status open -t acme -p vision")]
    Requests(approval::Requests),
    /// Approve a promotion that somebody else asked for
    #[command(after_help = "Example:\n  \
        falaj model approve 01999d2c00007000800000000000000a --reason 'reviewed with the team'")]
    Approve(approval::Decide),
    /// Reject a promotion
    #[command(after_help = "Example:\n  \
        falaj model reject 01999d2c00007000800000000000000a --reason 'the card is too thin'")]
    Reject(approval::Decide),
    /// Take a request for approval back
    #[command(after_help = "Example:\n  falaj model withdraw 01999d2c00007000800000000000000a")]
    Withdraw(approval::Decide),
    #[command(flatten)]
    Proof(proof::Proof),
    /// Delete a version, or a model with all its versions
    #[command(after_help = "Examples:\n  \
        falaj model delete diabetes --version 3 --yes\n  \
        falaj model delete diabetes --yes")]
    Delete {
        /// The model.
        name: String,
        /// Only this version.
        #[arg(long)]
        version: Option<u32>,
        #[command(flatten)]
        place: InProject,
        #[command(flatten)]
        sure: Sure,
    },
}

const MODELS: &[Column] =
    &[("name", "name"), ("aliases", "shown_aliases"), ("description", "description")];
const MODEL: &[Column] = &[
    ("name", "name"),
    ("description", "description"),
    ("aliases", "shown_aliases"),
    ("tags", "tags"),
];
const VERSIONS: &[Column] = &[
    ("version", "version"),
    ("stage", "current_stage"),
    ("aliases", "aliases"),
    ("run", "run_id"),
    ("source", "source"),
];
impl Model {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        let out = ctx.output;
        match self.command {
            Commands::List { place, filter } => {
                let api = Api::new(&client, &place);
                let found = api.models(filter.as_deref()).await?;
                out.list(&found, MODELS)
            }
            Commands::Show { name, place } => {
                out.record(&Api::new(&client, &place).model(&name).await?, MODEL)
            }
            Commands::Versions { name, place } => {
                out.list(&Api::new(&client, &place).versions(&name).await?, VERSIONS)
            }
            Commands::Register { name, source, place, run, logged_model, description, tags } => {
                let api = Api::new(&client, &place);
                api.ensure_model(&name).await?;
                let tags: Vec<Value> =
                    tags.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
                let body = json!({
                    "name": name, "source": source, "run_id": run, "model_id": logged_model,
                    "description": description, "tags": tags,
                });
                let made = api.post("model-versions/create", body).await?;
                out.record(&made["model_version"], VERSIONS)
            }
            Commands::Alias(command) => command.run(ctx, &client).await,
            Commands::Stage { which, stage, archive_others } => {
                let body = json!({
                    "name": which.name, "version": which.version.to_string(), "stage": stage,
                    "archive_existing_versions": archive_others,
                });
                let api = Api::new(&client, &which.place);
                let moved = api.post("model-versions/transition-stage", body).await?;
                out.record(&moved["model_version"], VERSIONS)
            }
            Commands::Card(command) => command.run(ctx, &client).await,
            Commands::Policy(command) => command.run(ctx, &client).await,
            Commands::Request(command) => command.run(ctx, &client).await,
            Commands::Requests(command) => command.run(ctx, &client).await,
            Commands::Approve(command) => command.run(ctx, &client, "approve").await,
            Commands::Reject(command) => command.run(ctx, &client, "reject").await,
            Commands::Withdraw(command) => command.run(ctx, &client, "withdraw").await,
            Commands::Proof(command) => command.run(ctx, &client).await,
            Commands::Delete { name, version, place, sure } => {
                let api = Api::new(&client, &place);
                let what = match version {
                    Some(version) => format!("version {version} of {name}"),
                    None => format!("model {name} and all its versions"),
                };
                confirm(sure.yes, &format!("Deleting {what}"), &name).await?;
                let (path, body) = if let Some(version) = version {
                    let body = json!({"name": name, "version": version.to_string()});
                    ("model-versions/delete", body)
                } else {
                    ("registered-models/delete", json!({ "name": name }))
                };
                let gone = api.send(Method::DELETE, path, body).await?;
                out.done(&gone, &format!("deleted {what}"))
            }
        }
    }
}
