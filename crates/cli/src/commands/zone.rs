//! `falaj zone`: where data may lie, and which moves between zones are allowed.

use clap::{Args, Subcommand};
use falaj_base::Timestamp;
use reqwest::Method;
use serde_json::json;

use super::{Sure, fields, text};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::{Column, cell};

/// Define residency zones and the moves allowed between them
#[derive(Debug, Args)]
pub(crate) struct Zone {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Define a zone
    #[command(after_help = "Example:\n  falaj zone create uae --jurisdiction AE")]
    Create {
        /// Its name: 1 to 63 of a-z, 0-9 and -.
        name: String,
        /// Whose law holds there, for instance AE or EU.
        #[arg(long)]
        jurisdiction: String,
        /// What it is.
        #[arg(long)]
        description: Option<String>,
    },
    /// List zones
    #[command(after_help = "Example:\n  falaj zone list")]
    List,
    /// Show a zone, and where its data may go
    #[command(after_help = "Example:\n  falaj zone show uae")]
    Show {
        /// Its name.
        name: String,
    },
    /// Delete a zone that nothing lies in
    #[command(after_help = "Example:\n  falaj zone delete uae --yes")]
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        sure: Sure,
    },
    /// Allow data of one zone to go to another
    #[command(after_help = "Example:\n  \
        falaj zone allow uae ksa --basis 'adequacy decision' --expires-at 2027-01-01T00:00:00Z")]
    Allow {
        /// The zone the data lies in.
        from: String,
        /// The zone it may go to.
        to: String,
        /// Why this is lawful; it stands in the audit log.
        #[arg(long)]
        basis: String,
        /// When the permission ends, as an RFC 3339 time.
        #[arg(long, value_name = "TIME")]
        expires_at: Option<Timestamp>,
    },
    /// Withdraw such a permission
    #[command(after_help = "Example:\n  falaj zone deny uae ksa")]
    Deny {
        /// The zone the data lies in.
        from: String,
        /// The zone it may no longer go to.
        to: String,
    },
    /// Ask whether data may go from one zone to another, and by which rule
    ///
    /// Exits with 0 if it may and 4 if it may not.
    #[command(after_help = "Example:\n  falaj zone check uae ksa")]
    Check {
        /// The zone the data lies in.
        from: String,
        /// The zone it would go to.
        to: String,
    },
}

const FIELDS: &[Column] = &[
    ("name", "name"),
    ("jurisdiction", "jurisdiction"),
    ("description", "description"),
    ("created", "created_at"),
    ("data may go to", "transfers"),
];
const COLUMNS: &[Column] =
    &[("name", "name"), ("jurisdiction", "jurisdiction"), ("description", "description")];
const TRANSFER: &[Column] =
    &[("from", "from"), ("to", "to"), ("basis", "basis"), ("expires", "expires_at")];

impl Zone {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        match self.command {
            Commands::Create { name, jurisdiction, description } => {
                let body = fields([
                    ("name", Some(name.into())),
                    ("jurisdiction", Some(jurisdiction.into())),
                    ("description", text(description.as_ref())),
                ]);
                ctx.output.record(&client.create(&["v1", "zones"], body).await?, FIELDS)
            }
            Commands::List => {
                let items = client.list(client.call(Method::GET, &["v1", "zones"])?).await?;
                ctx.output.list(&items, COLUMNS)
            }
            Commands::Show { name } => {
                let mut zone = client.get(&["v1", "zones", &name]).await?;
                let path = ["v1", "zones", &name, "transfers"];
                let transfers = client.list(client.call(Method::GET, &path)?).await?;
                zone["transfers"] = if ctx.output.is_json() {
                    transfers.into()
                } else {
                    transfers.iter().map(|transfer| cell(transfer, "to")).collect()
                };
                ctx.output.record(&zone, FIELDS)
            }
            Commands::Delete { name, sure } => {
                confirm(sure.yes, &format!("Deleting zone {name}"), &name).await?;
                let gone = client.delete(&["v1", "zones", &name]).await?;
                ctx.output.done(&gone, &format!("deleted zone {name}"))
            }
            Commands::Allow { from, to, basis, expires_at } => {
                let body = fields([
                    ("to", Some(to.into())),
                    ("basis", Some(basis.into())),
                    ("expires_at", expires_at.map(|time| time.to_string().into())),
                ]);
                let path = ["v1", "zones", &from, "transfers"];
                ctx.output.record(&client.create(&path, body).await?, TRANSFER)
            }
            Commands::Deny { from, to } => {
                let gone = client.delete(&["v1", "zones", &from, "transfers", &to]).await?;
                ctx.output.done(&gone, &format!("data of {from} may no longer go to {to}"))
            }
            Commands::Check { from, to } => {
                let call = client.call(Method::POST, &["v1", "residency", "check"])?;
                let answer = client.json(call.body(json!({"from": from, "to": to}))).await;
                match answer {
                    Ok(verdict) => ctx.output.record(&verdict, &[("allowed by", "rule")]),
                    Err(failure) if failure.has_code("residency") => {
                        let hint =
                            format!("`falaj zone allow {from} {to} --basis …` would allow it");
                        Err(failure.with_exit(Exit::Forbidden).hint(hint))
                    }
                    Err(failure) => Err(failure),
                }
            }
        }
    }
}
