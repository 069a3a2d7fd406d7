//! `falaj retention`: how long a project keeps what was deleted.

use clap::{Args, Subcommand};
use serde_json::json;

use super::InProject;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// See and set how long deleted experiments, runs and models are kept
#[derive(Debug, Args)]
pub(crate) struct Retention {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Show how long a project keeps what was deleted
    #[command(after_help = "Example:\n  falaj retention show -t acme -p vision")]
    Show {
        #[command(flatten)]
        place: InProject,
    },
    /// Purge what was deleted so many days ago, from now on
    #[command(after_help = "Example:\n  falaj retention set 30 -t acme -p vision")]
    Set {
        /// Days between deletion and purge.
        days: u32,
        #[command(flatten)]
        place: InProject,
    },
    /// Keep what was deleted, which is the default
    #[command(after_help = "Example:\n  falaj retention clear -t acme -p vision")]
    Clear {
        #[command(flatten)]
        place: InProject,
    },
}

const FIELDS: &[Column] =
    &[("days after deletion", "deleted_days"), ("set by", "set_by"), ("set", "set_at")];

impl Retention {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        let found = match self.command {
            Commands::Show { place } => client.get(&place.path(&["retention"])).await?,
            Commands::Set { days, place } => {
                client.put(&place.path(&["retention"]), json!({ "deleted_days": days })).await?
            }
            Commands::Clear { place } => {
                client.put(&place.path(&["retention"]), json!({ "deleted_days": null })).await?
            }
        };
        ctx.output.record(&found, FIELDS)
    }
}
