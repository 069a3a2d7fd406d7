//! `falaj key`: the keys that data is encrypted with.

use clap::{Args, Subcommand};
use reqwest::Method;

use super::{InTenant, Sure};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// List, rotate and destroy encryption keys
#[derive(Debug, Args)]
pub(crate) struct Key {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// List the data keys of a tenant
    #[command(after_help = "Example:\n  falaj key list --tenant acme")]
    List {
        #[command(flatten)]
        place: InTenant,
    },
    /// Encrypt new data of a tenant with a new key; old data stays readable
    #[command(after_help = "Example:\n  falaj key rotate --tenant acme")]
    Rotate {
        #[command(flatten)]
        place: InTenant,
        /// The zone whose key is meant; the tenant's own if absent.
        #[arg(long)]
        zone: Option<String>,
    },
    /// Destroy a key: what it encrypted cannot be read any more
    #[command(after_help = "Example:\n  \
        falaj key destroy key_0190b4c2a5f07c3e9d3f6f1b2a4c5d6e --tenant acme")]
    Destroy {
        /// The id of the key, from `falaj key list`.
        id: String,
        #[command(flatten)]
        place: InTenant,
        #[command(flatten)]
        sure: Sure,
    },
    /// Show the root keys that wrap all others
    #[command(after_help = "Example:\n  falaj key root")]
    Root,
    /// Wrap every data key anew with a new root key
    #[command(after_help = "Example:\n  falaj key rotate-root")]
    RotateRoot {
        /// The zone whose root key is meant; the platform's own if absent.
        #[arg(long)]
        zone: Option<String>,
    },
}

const COLUMNS: &[Column] = &[
    ("id", "id"),
    ("version", "version"),
    ("state", "state"),
    ("zone", "zone"),
    ("wrapped by", "wrapped_by"),
    ("created", "created_at"),
];
const ROOT: &[Column] =
    &[("zone", "zone"), ("current", "current"), ("keys still behind", "keys_behind")];

impl Key {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        match self.command {
            Commands::List { place } => {
                let path = ["v1", "tenants", &place.tenant, "keys"];
                ctx.output.list(&client.list(client.call(Method::GET, &path)?).await?, COLUMNS)
            }
            Commands::Rotate { place, zone } => {
                let path = ["v1", "tenants", &place.tenant, "keys", "rotate"];
                let call = client.call(Method::POST, &path)?.query("zone", zone.as_deref()).once();
                ctx.output.record(&client.json(call).await?, COLUMNS)
            }
            Commands::Destroy { id, place, sure } => {
                let what = format!("Destroying key {id}, and with it all data it encrypts,");
                confirm(sure.yes, &what, &id).await?;
                let path = ["v1", "tenants", &place.tenant, "keys", &id, "destroy"];
                let key = client.json(client.call(Method::POST, &path)?.once()).await?;
                ctx.output.done(&key, &format!("key {id} is destroyed"))
            }
            Commands::Root => ctx.output.list(
                &client.list(client.call(Method::GET, &["v1", "keys", "root"])?).await?,
                ROOT,
            ),
            Commands::RotateRoot { zone } => {
                let path = ["v1", "keys", "root", "rotate"];
                let call = client.call(Method::POST, &path)?.query("zone", zone.as_deref()).once();
                ctx.output.record(&client.json(call).await?, ROOT)
            }
        }
    }
}
