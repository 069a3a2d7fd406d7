//! `falaj service-account`: machines that act in their own name. They hold tokens, no password.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;

use super::user::{COLUMNS, FIELDS};
use super::{Sure, fields, only, text};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::Result;

/// Create, list and disable service accounts
#[derive(Debug, Args)]
pub(crate) struct ServiceAccount {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Create a service account; give it a token with `falaj token create --owner`
    #[command(after_help = "Example:\n  falaj service-account create trainer --tenant acme")]
    Create {
        /// Its name: a-z, 0-9 and . _ @ + -.
        name: String,
        /// The tenant it belongs to; none for the platform's own.
        #[arg(long, short)]
        tenant: Option<String>,
        /// A name for people.
        #[arg(long)]
        display_name: Option<String>,
    },
    /// List service accounts
    #[command(after_help = "Example:\n  falaj service-account list --tenant acme")]
    List {
        /// Only those of this tenant.
        #[arg(long, short)]
        tenant: Option<String>,
    },
    /// Show one service account
    #[command(after_help = "Example:\n  falaj service-account show trainer")]
    Show {
        /// Its name.
        name: String,
    },
    /// Stop a service account, and every token it holds
    #[command(after_help = "Example:\n  falaj service-account disable trainer")]
    Disable {
        /// Its name.
        name: String,
    },
    /// Let a disabled service account act again
    #[command(after_help = "Example:\n  falaj service-account enable trainer")]
    Enable {
        /// Its name.
        name: String,
    },
    /// Delete a service account
    #[command(after_help = "Example:\n  falaj service-account delete trainer --yes")]
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        sure: Sure,
    },
}

impl ServiceAccount {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        let all = "service-accounts";
        match self.command {
            Commands::Create { name, tenant, display_name } => {
                let body = fields([
                    ("name", Some(name.into())),
                    ("tenant", text(tenant.as_ref())),
                    ("display_name", text(display_name.as_ref())),
                ]);
                ctx.output.record(&client.create(&["v1", all], body).await?, FIELDS)
            }
            Commands::List { tenant } => {
                let call = client.call(Method::GET, &["v1", all])?;
                let items = only(client.list(call).await?, &["tenant"], tenant.as_deref());
                ctx.output.list(&items, COLUMNS)
            }
            Commands::Show { name } => {
                ctx.output.record(&client.get(&["v1", all, &name]).await?, FIELDS)
            }
            Commands::Disable { name } => {
                let account = client.patch(&["v1", all, &name], json!({"disabled": true})).await?;
                ctx.output.done(&account, &format!("{name} is stopped"))
            }
            Commands::Enable { name } => {
                let account = client.patch(&["v1", all, &name], json!({"disabled": false})).await?;
                ctx.output.done(&account, &format!("{name} can act again"))
            }
            Commands::Delete { name, sure } => {
                confirm(sure.yes, &format!("Deleting service account {name}"), &name).await?;
                let gone = client.delete(&["v1", all, &name]).await?;
                ctx.output.done(&gone, &format!("deleted service account {name}"))
            }
        }
    }
}
