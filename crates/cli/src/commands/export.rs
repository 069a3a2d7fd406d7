//! `falaj export`: taking what a project holds to another system.

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::Result;

mod files;
mod mlflow;
mod models;
mod read;
mod runs;
mod traces;

/// Take experiments, runs, models and traces to another system
#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Write a store that a stock MLflow serves: a SQLite database and a folder of artifacts
    ///
    /// An export that broke off is simply run again: what is there already is left alone. At the
    /// end everything is compared by counts and digests.
    #[command(after_help = "Example:\n  \
        falaj export mlflow ./out -t acme -p vision\n  \
        mlflow server --backend-store-uri sqlite:///out/mlflow.db \\\n    \
        --artifacts-destination ./out/artifacts\n\n\
        MLflow 3.2 or newer opens the database and brings it up to its own schema by itself.\n\
        Deleted logged models are not moved.")]
    Mlflow(mlflow::Mlflow),
}

impl Export {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        match self.command {
            Commands::Mlflow(command) => command.run(ctx).await,
        }
    }
}
