//! `falaj project`: the places where work happens, each inside a tenant.

use clap::{Args, Subcommand};
use reqwest::Method;

use super::{InTenant, Sure, fields, pair, pairs, some_change, text};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// Create, list and remove projects
#[derive(Debug, Args)]
pub(crate) struct Project {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Create a project
    #[command(
        after_help = "Example:\n  falaj project create vision --tenant acme --classification pii"
    )]
    Create {
        /// Its name: 1 to 63 of a-z, 0-9 and -.
        name: String,
        #[command(flatten)]
        place: InTenant,
        /// The residency zone its data lies in; the tenant's if absent.
        #[arg(long)]
        zone: Option<String>,
        #[command(flatten)]
        facts: Facts,
    },
    /// List the projects of a tenant that you may see
    #[command(after_help = "Example:\n  falaj project list --tenant acme")]
    List {
        #[command(flatten)]
        place: InTenant,
    },
    /// Show one project
    #[command(after_help = "Example:\n  falaj project show vision --tenant acme")]
    Show {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: InTenant,
    },
    /// Change a project
    #[command(after_help = "Example:\n  falaj project update vision -t acme --purpose research")]
    Update {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: InTenant,
        #[command(flatten)]
        facts: Facts,
    },
    /// Delete a project that holds no objects
    #[command(after_help = "Example:\n  falaj project delete vision --tenant acme --yes")]
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: InTenant,
        #[command(flatten)]
        sure: Sure,
    },
}

/// What policies may ask about a project.
#[derive(Debug, Args)]
struct Facts {
    /// A name for people.
    #[arg(long)]
    display_name: Option<String>,
    /// How sensitive its data is, for instance public, internal or pii.
    #[arg(long)]
    classification: Option<String>,
    /// What its data may be used for.
    #[arg(long)]
    purpose: Option<String>,
    /// A tag as name=value; may be given several times.
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
}

const FIELDS: &[Column] = &[
    ("name", "name"),
    ("id", "id"),
    ("tenant", "tenant"),
    ("display name", "display_name"),
    ("zone", "zone"),
    ("classification", "classification"),
    ("purpose", "purpose"),
    ("tags", "tags"),
    ("created", "created_at"),
];
const COLUMNS: &[Column] = &[
    ("name", "name"),
    ("zone", "zone"),
    ("classification", "classification"),
    ("purpose", "purpose"),
    ("created", "created_at"),
];

impl Project {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        match self.command {
            Commands::Create { name, place, zone, facts } => {
                let body = fields([
                    ("name", Some(name.into())),
                    ("zone", text(zone.as_ref())),
                    ("display_name", text(facts.display_name.as_ref())),
                    ("classification", text(facts.classification.as_ref())),
                    ("purpose", text(facts.purpose.as_ref())),
                    ("tags", pairs(&facts.tags)),
                ]);
                let path = ["v1", "tenants", &place.tenant, "projects"];
                ctx.output.record(&client.create(&path, body).await?, FIELDS)
            }
            Commands::List { place } => {
                let path = ["v1", "tenants", &place.tenant, "projects"];
                let items = client.list(client.call(Method::GET, &path)?).await?;
                ctx.output.list(&items, COLUMNS)
            }
            Commands::Show { name, place } => {
                let path = ["v1", "tenants", &place.tenant, "projects", &name];
                ctx.output.record(&client.get(&path).await?, FIELDS)
            }
            Commands::Update { name, place, facts } => {
                let body = some_change(fields([
                    ("display_name", text(facts.display_name.as_ref())),
                    ("classification", text(facts.classification.as_ref())),
                    ("purpose", text(facts.purpose.as_ref())),
                    ("tags", pairs(&facts.tags)),
                ]))?;
                let path = ["v1", "tenants", &place.tenant, "projects", &name];
                ctx.output.record(&client.patch(&path, body).await?, FIELDS)
            }
            Commands::Delete { name, place, sure } => {
                confirm(sure.yes, &format!("Deleting project {name}"), &name).await?;
                let path = ["v1", "tenants", &place.tenant, "projects", &name];
                let gone = client.delete(&path).await?;
                ctx.output.done(&gone, &format!("deleted project {name}"))
            }
        }
    }
}
