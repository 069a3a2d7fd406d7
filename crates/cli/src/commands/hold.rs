//! `falaj hold`: legal holds, under which nothing is deleted for good.

use clap::{Args, Subcommand};
use reqwest::Method;

use super::{InProject, Sure, experiment, fields};
use crate::confirm::confirm;
use crate::context::Context;
use crate::exit::Result;
use crate::output::Column;

/// Set, list and release legal holds
#[derive(Debug, Args)]
pub(crate) struct Hold {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Hold a project, or one experiment of it: nothing in it can be purged
    #[command(after_help = "Example:\n  \
        falaj hold set case-12 --reason 'litigation 2026/12' --experiment 7 -t acme -p vision")]
    Set {
        /// Its name: 1 to 63 of a-z, 0-9 and -.
        name: String,
        /// Why, for whoever meets it later.
        #[arg(long)]
        reason: String,
        /// The experiment to hold, by id or name; the whole project if absent.
        #[arg(long)]
        experiment: Option<String>,
        #[command(flatten)]
        place: InProject,
    },
    /// List the legal holds of a project
    #[command(after_help = "Example:\n  falaj hold list -t acme -p vision")]
    List {
        #[command(flatten)]
        place: InProject,
    },
    /// Release a legal hold
    #[command(after_help = "Example:\n  falaj hold release case-12 -t acme -p vision --yes")]
    Release {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: InProject,
        #[command(flatten)]
        sure: Sure,
    },
}

const COLUMNS: &[Column] = &[
    ("name", "name"),
    ("experiment", "experiment_id"),
    ("reason", "reason"),
    ("set by", "set_by_name"),
    ("set", "set_at"),
];

impl Hold {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let client = ctx.client()?;
        match self.command {
            Commands::Set { name, reason, experiment, place } => {
                let experiment = match experiment {
                    Some(which) => Some(experiment::id(&client, &place, &which).await?),
                    None => None,
                };
                let body = fields([
                    ("reason", Some(reason.into())),
                    ("experiment_id", experiment.map(Into::into)),
                ]);
                let set = client.put(&place.path(&["holds", &name]), body).await?;
                ctx.output.record(&set, COLUMNS)
            }
            Commands::List { place } => {
                let call = client.call(Method::GET, &place.path(&["holds"]))?;
                ctx.output.list(&client.list(call).await?, COLUMNS)
            }
            Commands::Release { name, place, sure } => {
                confirm(sure.yes, &format!("Releasing the legal hold {name}"), &name).await?;
                let gone = client.delete(&place.path(&["holds", &name])).await?;
                ctx.output.done(&gone, &format!("released the legal hold {name}"))
            }
        }
    }
}
