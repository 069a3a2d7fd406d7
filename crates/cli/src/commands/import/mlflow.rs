//! `falaj import mlflow`: the order of things.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use falaj_moving::Source;
use falaj_moving::artifact::{Location, Roots};
use falaj_moving::record::Experiment;
use serde_json::json;

use crate::commands::InProject;
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::moving::{Account, Kind, Project};

#[derive(Debug, Args)]
pub(crate) struct Mlflow {
    /// A folder (mlruns), `sqlite:///path/mlflow.db` or `postgresql://user@host/database`.
    #[arg(env = "FALAJ_MLFLOW_SOURCE", hide_env_values = true)]
    source: String,
    #[command(flatten)]
    place: InProject,
    /// What mlflow-artifacts:/ stands for: the folder or s3:// address that the MLflow server was
    /// started with (--artifacts-destination).
    #[arg(long, value_name = "FOLDER|S3")]
    artifact_root: Option<String>,
    /// Put this before the names of experiments and registered models.
    #[arg(long, default_value = "")]
    prefix: String,
    /// Which workspace of the MLflow server to read.
    #[arg(long, default_value = "default")]
    workspace: String,
    /// Leave all files where they are; only those on s3:// and the like stay reachable.
    #[arg(long)]
    no_artifacts: bool,
    /// Say what would come, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// How many requests are under way at once.
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u8).range(1..=64))]
    concurrency: u8,
}

/// An import under way.
pub(super) struct Move {
    pub(super) source: Source,
    pub(super) project: Project,
    pub(super) account: Account,
    pub(super) roots: Roots,
    pub(super) prefix: String,
    pub(super) no_artifacts: bool,
    pub(super) dry_run: bool,
    pub(super) concurrency: usize,
    /// Where the files of runs and logged models were, and where they are now.
    pub(super) rehomed: HashMap<String, String>,
}

impl Mlflow {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let source = Source::open(&self.source, &self.workspace).await?;
        // MLflow's relative paths start where its server was started: most likely beside its store.
        let folder = source.folder().unwrap_or_else(|| PathBuf::from("."));
        let folder = std::path::absolute(folder)?;
        let artifacts = match self.artifact_root {
            Some(root) if Location::resolve(&root, &Roots::default()).local().is_some() => {
                Some(std::path::absolute(&root)?.display().to_string())
            }
            root => root,
        };
        let mut import = Move {
            source,
            project: Project::new(ctx.client()?, self.place),
            account: Account::new(ctx.output),
            roots: Roots { artifacts, folder },
            prefix: self.prefix,
            no_artifacts: self.no_artifacts,
            dry_run: self.dry_run,
            concurrency: self.concurrency.into(),
            rehomed: HashMap::new(),
        };
        let experiments = import.source.experiments().await?;
        let landed = import.experiments(&experiments).await?;
        for experiment in &experiments {
            let Some(id) = landed.get(&experiment.id) else { continue };
            import.runs(&experiment.id, id).await?;
            import.logged_models(&experiment.id, id).await?;
        }
        import.registered_models().await?;
        let traces = import.source.traces().await?;
        if traces > 0 {
            import.account.note(format!("{traces} traces stay behind: they are not moved yet"));
        }
        import.account.close(if self.dry_run { "read" } else { "imported" })
    }
}

impl Move {
    /// Sends the experiments, and tells by their ids there which ids they have here.
    async fn experiments(&mut self, all: &[Experiment]) -> Result<HashMap<String, String>> {
        self.account.found(Kind::Experiments, all.len());
        let mut landed = HashMap::new();
        for some in all.chunks(100) {
            let some: Vec<Experiment> = some.iter().map(|one| self.renamed(one)).collect();
            let body = json!({ "experiments": some, "dry_run": self.dry_run });
            let reply = self.project.import("experiments", &body).await.map_err(clash)?;
            for one in reply["experiments"].as_array().into_iter().flatten() {
                let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
                landed.insert(text("source"), text("id"));
                if one["created"] == true {
                    self.account.sent(Kind::Experiments, 1);
                }
            }
        }
        Ok(landed)
    }

    /// The experiment 0 is in every project and keeps its name.
    fn renamed(&self, one: &Experiment) -> Experiment {
        let mut one = one.clone();
        if one.id != "0" {
            one.name = format!("{}{}", self.prefix, one.name);
        }
        one
    }

    /// Where files are.
    pub(super) fn locate(&self, uri: &str) -> Location {
        Location::resolve(uri, &self.roots)
    }
}

/// Says what helps against a name that is taken.
pub(super) fn clash(failure: Failure) -> Failure {
    if failure.has_code("already-exists") {
        return failure
            .hint("import into another project, or put something before the names: --prefix old/");
    }
    failure
}
