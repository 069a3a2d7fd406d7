//! `falaj import`: bringing what another system holds into a project.

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::Result;

mod feast;
mod mlflow;

/// Bring experiments, runs, models, traces and features in from another system
#[derive(Debug, Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Bring an MLflow store in: experiments, runs, metrics, models, artifacts and traces
    ///
    /// The source is only read. An import that broke off is simply run again: what is there
    /// already is left alone. At the end everything is compared by counts and digests.
    #[command(after_help = "Examples:\n  \
        falaj import mlflow ./mlruns -t acme -p vision --dry-run\n  \
        falaj import mlflow sqlite:///srv/mlflow/mlflow.db --artifact-root /srv/mlflow/mlartifacts\n  \
        falaj import mlflow postgresql://mlflow@db.example.ae/mlflow --artifact-root s3://bucket/root\n  \
        falaj import mlflow ./old/mlruns --prefix old/ -t acme -p vision\n\n\
        Files are read from the store's own folder and the artifact root only; allow others with\n\
        --allow-root. What cannot be read from here (gs://, dbfs:/ …) stays where it is, and runs keep pointing \
        at it.\nWhat is refused is left out and named, and the rest comes; the command ends with code 1 then.")]
    Mlflow(mlflow::Mlflow),
    /// Bring what a registry of Feast declares: entities, sources, feature views and services
    ///
    /// The registry is only read: a file of protobuf, or a SQLite database. Nothing in it is run.
    /// Files that Feast reads are found below a source root of the server, or sent as objects.
    #[command(after_help = "Examples:\n  \
        falaj import feast ./data/registry.db --root lake=/srv/lake --out features.toml\n  \
        falaj import feast ./data/registry.db --upload -t acme -p vision --dry-run\n  \
        falaj import feast ./data/registry.db --upload -t acme -p vision\n\n\
        What cannot come is left out and named with the reason, and the rest comes; the command ends\n\
        with code 1 then.")]
    Feast(feast::Feast),
}

impl Import {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        match self.command {
            Commands::Mlflow(command) => command.run(ctx).await,
            Commands::Feast(command) => command.run(ctx).await,
        }
    }
}
