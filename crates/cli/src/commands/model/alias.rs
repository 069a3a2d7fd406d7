//! `falaj model alias`: names that point at versions.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Api, below};
use crate::client::Client;
use crate::commands::InProject;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// Point aliases at versions, and back
#[derive(Debug, Args)]
pub(crate) struct Alias {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Point an alias at a version
    #[command(after_help = "Example:\n  falaj model alias set diabetes champion 3")]
    Set {
        /// The model.
        name: String,
        /// The alias.
        alias: String,
        /// The version's number.
        version: u32,
        #[command(flatten)]
        place: InProject,
    },
    /// Remove an alias
    #[command(after_help = "Example:\n  falaj model alias delete diabetes champion")]
    Delete {
        /// The model.
        name: String,
        /// The alias.
        alias: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Undo the last move of an alias: it points again where it pointed before
    #[command(after_help = "Example:\n  falaj model alias rollback diabetes champion")]
    Rollback {
        /// The model.
        name: String,
        /// The alias.
        alias: String,
        #[command(flatten)]
        place: InProject,
    },
    /// Show who moved which alias or stage, and when
    #[command(after_help = "Example:\n  falaj model alias history diabetes --alias champion")]
    History {
        /// The model.
        name: String,
        /// Only the moves of this alias.
        #[arg(long)]
        alias: Option<String>,
        #[command(flatten)]
        place: InProject,
    },
}

const MOVES: &[Column] = &[
    ("when", "at"),
    ("who", "by_name"),
    ("what", "kind"),
    ("which", "subject"),
    ("from", "from"),
    ("to", "to"),
];
const ROLLED: &[Column] =
    &[("model", "name"), ("alias", "alias"), ("from", "from"), ("points at", "version")];

impl Alias {
    pub(super) async fn run(self, ctx: &Context, client: &Client) -> Result<()> {
        match self.command {
            Commands::Set { name, alias, version, place } => {
                let body = json!({"name": name, "alias": alias, "version": version.to_string()});
                let api = Api::new(client, &place);
                let done = api.post("registered-models/alias", body).await?;
                ctx.output.done(&done, &format!("{alias} of {name} points at version {version}"))
            }
            Commands::Delete { name, alias, place } => {
                let body = json!({"name": name, "alias": alias});
                let api = Api::new(client, &place);
                let done = api.send(Method::DELETE, "registered-models/alias", body).await?;
                ctx.output.done(&done, &format!("removed {alias} of {name}"))
            }
            Commands::Rollback { name, alias, place } => {
                let path = below(&place, &["models", &name, "aliases", &alias, "rollback"]);
                let call = client.call(Method::POST, &path)?.once();
                ctx.output.record(&client.json(call).await?, ROLLED)
            }
            Commands::History { name, alias, place } => {
                let call =
                    client.call(Method::GET, &below(&place, &["models", &name, "history"]))?;
                let mut moves = client.list(call).await?;
                if let Some(alias) = alias {
                    let fits = |one: &Value| one["kind"] == "alias" && one["subject"] == *alias;
                    moves.retain(fits);
                }
                ctx.output.list(&moves, MOVES)
            }
        }
    }
}
