//! `falaj export`: taking what a project holds to another system.

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::Result;

/// Take experiments, runs and models to another system
#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Write a store that a stock MLflow serves
    #[command(after_help = "Example:\n  falaj export mlflow ./out -t acme -p vision")]
    Mlflow {},
}

impl Export {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        match self.command {
            Commands::Mlflow {} => { let _ = ctx; Ok(()) },
        }
    }
}
