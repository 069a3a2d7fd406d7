//! Runs with their points, each written whole.

use std::sync::{Mutex, PoisonError};

use falaj_moving::record::Run;
use falaj_moving::series::{Sorted, Sorter, Spool};
use falaj_moving::{Source, digest};
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use serde_json::{Value, json};

use super::mlflow::Move;
use super::read;
use crate::exit::Result;
use crate::moving::{Account, Kind, Project};

/// How many runs are asked for at once, and how many points.
const RUNS: usize = 100;
const POINTS: &str = "25000";

impl Move {
    pub(super) async fn runs(&mut self, experiment: &str) -> Result<()> {
        let mut token = None;
        loop {
            let body = json!({
                "experiment_ids": [experiment],
                "run_view_type": "ALL",
                "max_results": RUNS,
                "page_token": token,
            });
            let call = self.project.mlflow(Method::POST, "mlflow/runs/search")?.body(body);
            let page = self.project.client.json(call).await?;
            let found: Vec<&Value> = page["runs"].as_array().into_iter().flatten().collect();
            self.some_runs(experiment, &found).await?;
            token = page["next_page_token"].as_str().map(str::to_owned);
            if token.is_none() {
                return Ok(());
            }
        }
    }

    async fn some_runs(&mut self, experiment: &str, found: &[&Value]) -> Result<()> {
        let runs: Vec<Run> = found.iter().map(|run| read::run(run)).collect();
        let ids: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
        let here = self.project.check(&ids, &[]).await?;
        for (run, from) in runs.iter().zip(found) {
            self.note_links(&run.id, from);
            self.account.found(Kind::Runs, 1);
            self.account.found(Kind::Params, run.params.len());
            self.account.found(Kind::Tags, run.tags.len());
            self.account.found(Kind::Datasets, run.datasets.len());
            let points = here.get(&run.id).and_then(|here| here["points"].as_str());
            let count = points.and_then(|text| text.split('-').next()?.parse().ok());
            self.account.found(Kind::Points, count.unwrap_or_default());
            if !self.is_written(experiment, run, points).await? {
                let series = self.series(&run.id, &read::metric_names(from)).await?;
                self.database.put_run(run, &series)?;
                self.account.sent(Kind::Runs, 1);
                self.account.sent(Kind::Params, run.params.len());
                self.account.sent(Kind::Tags, run.tags.len());
                self.account.sent(Kind::Datasets, run.datasets.len());
                self.account.sent(Kind::Points, series.iter().map(Sorted::len).sum());
            }
            self.copy_files(&run.artifact_uri).await?;
        }
        Ok(())
    }

    fn note_links(&mut self, run: &str, from: &Value) {
        let (inputs, outputs) = read::models_of(from);
        for model in inputs {
            self.links.entry(model).or_default().inputs.push(run.to_owned());
        }
        for (model, step) in outputs {
            self.links.entry(model).or_default().outputs.push((run.to_owned(), step));
        }
    }

    /// Whether an export that broke off has written this run as it is now.
    async fn is_written(&self, experiment: &str, run: &Run, points: Option<&str>) -> Result<bool> {
        let ids = [run.id.clone()];
        let Some(written) = self.before.runs(experiment, &ids).await?.pop() else {
            return Ok(false);
        };
        let same = Run { deleted_at: run.deleted_at, ..written.clone() } == sorted(run);
        let series = self.before.series(experiment, &run.id, &mut Spool::default()).await?;
        Ok(same && points == Some(digest::points(&series).as_str()))
    }

    async fn series(&self, run: &str, names: &[String]) -> Result<Vec<Sorted>> {
        let (project, spool) = (&self.project, Mutex::new(Spool::default()));
        stream::iter(names)
            .map(|key| history(project, run, key, &spool))
            .buffer_unordered(self.concurrency)
            .try_collect()
            .await
    }
}

/// In the order in which a database gives its rows.
fn sorted(run: &Run) -> Run {
    let mut run = run.clone();
    run.params.sort();
    run.tags.sort();
    run.datasets.sort_by(|a, b| (&a.name, &a.digest).cmp(&(&b.name, &b.digest)));
    for dataset in &mut run.datasets {
        dataset.tags.sort();
    }
    run
}

async fn history(project: &Project, run: &str, key: &str, spool: &Mutex<Spool>) -> Result<Sorted> {
    let spool = || spool.lock().unwrap_or_else(PoisonError::into_inner);
    let mut sorter = Sorter::new(key.to_owned());
    let mut token: Option<String> = None;
    loop {
        let call = project
            .mlflow(Method::GET, "mlflow/metrics/get-history")?
            .query("run_id", Some(run))
            .query("metric_key", Some(key))
            .query("max_results", Some(POINTS))
            .query("page_token", token.as_deref());
        let page = project.client.json(call).await?;
        for point in read::points(&page) {
            sorter.push(point, &mut spool())?;
        }
        token = page["next_page_token"].as_str().map(str::to_owned);
        if token.is_none() {
            return Ok(sorter.finish(&mut spool())?);
        }
    }
}

/// Compares what was written with what the server has.
pub(super) async fn verify(
    written: &Source,
    project: &Project,
    account: &mut Account,
    experiment: &str,
) -> Result<()> {
    for ids in written.run_ids(experiment).await?.chunks(RUNS) {
        let asked: Vec<&str> = ids.iter().map(String::as_str).collect();
        let here = project.check(&asked, &[]).await?;
        for run in written.runs(experiment, ids).await? {
            let series = written.series(experiment, &run.id, &mut Spool::default()).await?;
            let Some(here) = here.get(&run.id) else {
                account.differs(format!("run {} is no longer on the server", run.id));
                continue;
            };
            for (what, ours) in [
                ("status", run.status.clone()),
                ("stage", run.stage.as_str().to_owned()),
                ("params", digest::pairs(&run.params)),
                ("tags", digest::pairs(&run.tags)),
                ("points", digest::points(&series)),
                ("datasets", digest::datasets(&run)),
            ] {
                account.compare(&format!("{what} of run {}", run.id), &ours, here[what].as_str());
            }
        }
    }
    Ok(())
}
