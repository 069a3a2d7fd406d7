//! Compares a server that came back with what the trainers had been told.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::book::{Books, ModelBook, OpenModel, RunBook, Said};
use super::client::send;
use super::{API, TRAINERS};
use crate::client::{Client, percent};
use crate::crash::Tally;

impl Books {
    /// Checks the runs from `first` on, and every model of the world; then settles what is open and
    /// checks that again.
    pub async fn check(&self, client: &Client, first: usize) -> Result<Tally> {
        let mut tally = Tally::default();
        let (runs, models) = (self.runs(), self.models());
        let looks = runs.iter().skip(first).map(|run| check_run(client, run));
        for settled in stream::iter(looks).buffered(TRAINERS).try_collect::<Vec<_>>().await? {
            tally.acknowledged += settled.acknowledged;
            tally.unanswered += settled.unanswered;
        }
        for (place, run) in runs.into_iter().enumerate().skip(first) {
            if let Some(settled) = settle_run(client, run).await? {
                check_run(client, &settled).await.context("after the repeat")?;
                self.settle_run(place, settled);
                tally.repeated += 1;
            }
        }
        for (place, mut model) in models.into_iter().enumerate() {
            tally.acknowledged += model.versions.len();
            let Some(besides) = check_model(client, &model).await? else { continue };
            if model.open.take().is_some() {
                // What is there now is there to stay.
                model.versions.extend(besides);
                self.settle_model(place, model);
                tally.unanswered += 1;
            }
        }
        self.no_others(client).await?;
        Ok(tally)
    }

    /// After everything was settled there is one run for each creation, and none besides.
    async fn no_others(&self, client: &Client) -> Result<()> {
        let found = named(client, None).await?;
        let books = self.runs();
        let told: Vec<&str> = books.iter().filter_map(|run| run.id.as_deref()).collect();
        for (id, name) in &found {
            ensure!(told.contains(&id.as_str()), "TWICE: run {id} called {name}");
        }
        ensure!(found.len() == told.len(), "{} runs for {} creations", found.len(), told.len());
        Ok(())
    }
}

async fn check_run(client: &Client, run: &RunBook) -> Result<Tally> {
    let Some(id) = &run.id else {
        let found = named(client, Some(&run.name)).await?;
        ensure!(found.len() <= 1, "TWICE: the creation of {} made {found:?}", run.name);
        return Ok(Tally { unanswered: 1, ..Tally::default() });
    };
    let found = read(client, id).await?.with_context(|| format!("LOST: run {}", run.name))?;
    let mut whole = run.said.clone();
    if let Some((_, said)) = &run.open {
        whole.add(said);
    }
    // What the answer was lost of is there as a whole, or not at all.
    ensure!(
        found == run.said || found == whole,
        "CHANGED: run {} was told {:?}, of which {:?} is open, and has {found:?}",
        run.name,
        run.said,
        run.open
    );
    let count = run.said.params.len()
        + run.said.tags.len()
        + run.said.points.values().map(Vec::len).sum::<usize>();
    Ok(Tally { acknowledged: count, unanswered: run.open.iter().count(), ..Tally::default() })
}

/// Sends again what was not answered; none if there is nothing.
async fn settle_run(client: &Client, mut run: RunBook) -> Result<Option<RunBook>> {
    if run.id.is_none() {
        let before = named(client, Some(&run.name)).await?;
        let made = send(client, &run.create).await?.context("the server went away")?;
        let id = made["run"]["info"]["run_id"].as_str().context("a run without an id")?;
        let after = named(client, Some(&run.name)).await?;
        ensure!(
            after.len() == 1 && after[0].0 == id && (before.is_empty() || before == after),
            "TWICE: repeating the creation of {} gave {id}; there was {before:?} and is {after:?}",
            run.name
        );
        run.id = Some(id.to_owned());
        return Ok(Some(run));
    }
    let Some((ask, said)) = run.open.take() else { return Ok(None) };
    send(client, &ask).await?.context("the server went away")?;
    run.said.add(&said);
    Ok(Some(run))
}

/// Gives the version that nobody was told of, if it is there; nothing if the model itself is one
/// that nobody was told of, and not there.
async fn check_model(
    client: &Client,
    model: &ModelBook,
) -> Result<Option<BTreeMap<String, String>>> {
    let path = format!("{API}/registered-models/get?name={}", percent(&model.name));
    let found = client.get(&path).await?;
    if found.status == StatusCode::NOT_FOUND && matches!(model.open, Some(OpenModel::Itself)) {
        return Ok(None);
    }
    found.expect(StatusCode::OK).with_context(|| format!("LOST: model {}", model.name))?;
    let filter = percent(&format!("name = '{}'", model.name));
    let path = format!("{API}/model-versions/search?filter={filter}");
    let found: Value = client.get(&path).await?.expect(StatusCode::OK)?.json()?;
    let text = |version: &Value, key: &str| version[key].as_str().unwrap_or_default().to_owned();
    let found: Vec<Value> = found["model_versions"].as_array().cloned().unwrap_or_default();
    let mut left: BTreeMap<String, String> =
        found.iter().map(|version| (text(version, "version"), text(version, "source"))).collect();
    for (number, source) in &model.versions {
        let there = left.remove(number);
        ensure!(there.as_ref() == Some(source), "LOST: {source}, version {number}: {there:?}");
    }
    let is_open =
        |source: &String| matches!(&model.open, Some(OpenModel::Version(open)) if open == source);
    let known = left.len() <= 1 && left.values().all(is_open);
    ensure!(known, "TWICE: {} has {left:?} besides", model.name);
    Ok(Some(left))
}

/// The ids and names of the runs there are, of one name or of any.
async fn named(client: &Client, name: Option<&str>) -> Result<Vec<(String, String)>> {
    let filter = name.map(|name| format!("attributes.run_name = '{name}'"));
    let (mut all, mut token) = (Vec::new(), Value::Null);
    loop {
        let body = json!({ "experiment_ids": ["0"], "filter": filter, "max_results": 1000,
            "page_token": token });
        let answer = client.post(&format!("{API}/runs/search"), &body).await?;
        let mut page: Value = answer.expect(StatusCode::OK)?.json()?;
        for run in page["runs"].as_array().into_iter().flatten() {
            let text = |key: &str| run["info"][key].as_str().unwrap_or_default().to_owned();
            all.push((text("run_id"), text("run_name")));
        }
        token = page["next_page_token"].take();
        if token.is_null() {
            return Ok(all);
        }
    }
}

/// All that a run has, in the words of the book.
async fn read(client: &Client, id: &str) -> Result<Option<Said>> {
    let answer = client.get(&format!("{API}/runs/get?run_id={id}")).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let run: Value = answer.expect(StatusCode::OK)?.json()?;
    let data = &run["run"]["data"];
    let pairs = |what: &str| -> BTreeMap<String, String> {
        let pairs = data[what].as_array().into_iter().flatten();
        let text = |pair: &Value, key: &str| pair[key].as_str().unwrap_or_default().to_owned();
        pairs.map(|pair| (text(pair, "key"), text(pair, "value"))).collect()
    };
    let mut said = Said { points: BTreeMap::new(), params: pairs("params"), tags: pairs("tags") };
    // Its name is a tag too, which the server sets.
    said.tags.remove("mlflow.runName");
    for metric in data["metrics"].as_array().into_iter().flatten() {
        let key = metric["key"].as_str().unwrap_or_default();
        let path = format!("{API}/metrics/get-history?run_id={id}&metric_key={key}");
        let history: Value = client.get(&path).await?.expect(StatusCode::OK)?.json()?;
        // Values come with a fraction, which is nothing.
        let number =
            |point: &Value, key: &str| point[key].as_f64()?.to_string().parse::<i64>().ok();
        let points = history["metrics"].as_array().into_iter().flatten();
        let mut points: Vec<(i64, i64)> = points
            .map(|point| Some((number(point, "step")?, number(point, "value")?)))
            .collect::<Option<_>>()
            .context("a point without a number")?;
        points.sort_unstable();
        said.points.insert(key.to_owned(), points);
    }
    Ok(Some(said))
}
