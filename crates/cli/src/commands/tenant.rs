//! `falaj tenant`: the outermost walls.

use clap::{Args, Subcommand};
use reqwest::Method;

use super::{Sure, fields, some_change, text, texts};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// Create, list and remove tenants
#[derive(Debug, Args)]
pub(crate) struct Tenant {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Create a tenant
    #[command(after_help = "Example:\n  falaj tenant create acme --zone uae --allowed-zone ksa")]
    Create {
        /// Its name: 1 to 63 of a-z, 0-9 and -.
        name: String,
        #[command(flatten)]
        facts: Facts,
        /// The residency zone its data lies in; the server's default if absent.
        #[arg(long)]
        zone: Option<String>,
    },
    /// List the tenants you may see
    #[command(after_help = "Example:\n  falaj tenant list --output json")]
    List,
    /// Show one tenant
    #[command(after_help = "Example:\n  falaj tenant show acme")]
    Show {
        /// Its name.
        name: String,
    },
    /// Change a tenant
    #[command(after_help = "Example:\n  falaj tenant update acme --display-name 'Acme LLC'")]
    Update {
        /// Its name.
        name: String,
        #[command(flatten)]
        facts: Facts,
    },
    /// Delete a tenant that holds no projects
    #[command(after_help = "Example:\n  falaj tenant delete acme --yes")]
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        sure: Sure,
    },
}

#[derive(Debug, Args)]
struct Facts {
    /// A name for people.
    #[arg(long)]
    display_name: Option<String>,
    /// A further zone its data may lie in; may be given several times.
    #[arg(long = "allowed-zone", value_name = "ZONE")]
    allowed_zones: Vec<String>,
}

const FIELDS: &[Column] = &[
    ("name", "name"),
    ("id", "id"),
    ("display name", "display_name"),
    ("zone", "zone"),
    ("allowed zones", "allowed_zones"),
    ("created", "created_at"),
];
const COLUMNS: &[Column] = &[
    ("name", "name"),
    ("zone", "zone"),
    ("display name", "display_name"),
    ("created", "created_at"),
];

impl Tenant {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        match self.command {
            Commands::Create { name, facts, zone } => {
                let body = fields([
                    ("name", Some(name.into())),
                    ("display_name", text(facts.display_name.as_ref())),
                    ("zone", text(zone.as_ref())),
                    ("allowed_zones", texts(&facts.allowed_zones)),
                ]);
                ctx.output.record(&client.create(&["v1", "tenants"], body).await?, FIELDS)
            }
            Commands::List => {
                let items = client.list(client.call(Method::GET, &["v1", "tenants"])?).await?;
                ctx.output.list(&items, COLUMNS)
            }
            Commands::Show { name } => {
                ctx.output.record(&client.get(&["v1", "tenants", &name]).await?, FIELDS)
            }
            Commands::Update { name, facts } => {
                let body = some_change(fields([
                    ("display_name", text(facts.display_name.as_ref())),
                    ("allowed_zones", texts(&facts.allowed_zones)),
                ]))?;
                ctx.output.record(&client.patch(&["v1", "tenants", &name], body).await?, FIELDS)
            }
            Commands::Delete { name, sure } => {
                confirm(sure.yes, &format!("Deleting tenant {name}"), &name).await?;
                let gone = client.delete(&["v1", "tenants", &name]).await?;
                ctx.output.done(&gone, &format!("deleted tenant {name}"))
            }
        }
    }
}
