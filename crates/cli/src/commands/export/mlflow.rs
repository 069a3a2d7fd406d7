//! `falaj export mlflow`: the order of things.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use falaj_moving::sink::Database;
use falaj_moving::{Reading, Source};
use reqwest::Method;
use serde_json::json;

use super::read;
use crate::commands::InProject;
use crate::context::Context;
use crate::exit::{Result, file_error};
use crate::moving::{Account, Kind, Project};

#[derive(Debug, Args)]
pub(crate) struct Mlflow {
    /// The folder to write; it is made, or holds an export that broke off.
    folder: PathBuf,
    #[command(flatten)]
    place: InProject,
    /// Leave the files out.
    #[arg(long)]
    no_artifacts: bool,
    /// How many requests are under way at once.
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u8).range(1..=64))]
    concurrency: u8,
}

/// The runs that a logged model went into, and those it came out of with the step.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<(String, i64)>,
}

/// An export under way.
pub(super) struct Move {
    pub(super) project: Project,
    pub(super) account: Account,
    pub(super) database: Database,
    /// What an export that broke off has left, as it was when this one began.
    pub(super) before: Source,
    pub(super) artifacts: Option<PathBuf>,
    pub(super) concurrency: usize,
    pub(super) links: HashMap<String, Links>,
    /// What the traces looked like that were written, by id.
    pub(super) traces: HashMap<String, String>,
}

impl Mlflow {
    pub(crate) async fn run(self, ctx: &Context) -> Result<()> {
        let folder = std::path::absolute(&self.folder)?;
        std::fs::create_dir_all(&folder).map_err(file_error("make", &folder))?;
        let file = folder.join("mlflow.db");
        let uri = format!("sqlite:///{}", file.display());
        let database = Database::open(&file)?;
        let mut export = Move {
            project: Project::new(ctx.client()?, self.place),
            account: Account::new(ctx.output),
            database,
            before: Source::open(&uri, "default", Reading::Whole).await?,
            artifacts: (!self.no_artifacts).then(|| folder.join("artifacts")),
            concurrency: self.concurrency.into(),
            links: HashMap::new(),
            traces: HashMap::new(),
        };
        let experiments = export.experiments().await?;
        for id in &experiments {
            export.runs(id).await?;
        }
        for id in &experiments {
            export.logged_models(id).await?;
        }
        for id in &experiments {
            export.traces(id).await?;
        }
        let models = export.registered_models().await?;
        let Move { database, before, project, mut account, mut traces, .. } = export;
        drop(before);
        database.finish()?;
        let written = Source::open(&uri, "default", Reading::Whole).await?;
        for id in &experiments {
            super::runs::verify(&written, &project, &mut account, id).await?;
            super::models::verify(&written, &project, &mut account, id).await?;
            super::traces::verify(&written, &mut traces, &mut account, id).await?;
        }
        for id in traces.keys() {
            account.differs(format!("the trace {id} was not written"));
        }
        super::models::verify_registered(&written, &models, &mut account).await?;
        drop(written);
        account.close("exported")?;
        ctx.output.say(&format!(
            "serve it with: mlflow server --backend-store-uri {uri} --artifacts-destination {}",
            folder.join("artifacts").display()
        ));
        Ok(())
    }
}

impl Move {
    /// Writes the experiments, and gives their ids.
    async fn experiments(&mut self) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        let mut token = None;
        loop {
            let body = json!({ "max_results": 1000, "view_type": "ALL", "page_token": token });
            let call = self.project.mlflow(Method::POST, "mlflow/experiments/search")?.body(body);
            let page = self.project.client.json(call).await?;
            for one in page["experiments"].as_array().into_iter().flatten() {
                let experiment = read::experiment(one);
                self.database.put_experiment(&experiment)?;
                self.account.found(Kind::Experiments, 1);
                self.account.sent(Kind::Experiments, 1);
                ids.push(experiment.id);
            }
            token = page["next_page_token"].as_str().map(str::to_owned);
            if token.is_none() {
                return Ok(ids);
            }
        }
    }
}
