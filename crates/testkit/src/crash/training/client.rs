//! Trainers that log until they are told to stop or the server is gone.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use futures::future::join_all;
use serde_json::{Value, json};

use super::TRAINERS;
use super::book::{Ask, Books, ModelBook, OpenModel, RunBook, Said};
use crate::client::{Answer, Client};
use crate::crash::workload::Stop;
use crate::random::Random;

/// How many requests one run gets.
const REQUESTS_PER_RUN: u64 = 12;

/// Trains with all clients at once. `round` makes the names of this round unique. Fails if the
/// server refused what it had no reason to refuse.
pub async fn run(
    client: &Client,
    books: &Books,
    random: &mut Random,
    round: usize,
    stop: &Stop,
) -> Result<()> {
    let trainers = (0..TRAINERS).map(|number| {
        let trainer = Trainer {
            client: client.clone(),
            random: random.split(),
            name: format!("r{round}t{number}"),
            first_start: (round * TRAINERS + number) * 100_000,
            step: 0,
            runs: Vec::new(),
            model: None,
        };
        trainer.run(books, stop)
    });
    join_all(trainers).await.into_iter().collect()
}

struct Trainer {
    client: Client,
    random: Random,
    name: String,
    first_start: usize,
    step: i64,
    runs: Vec<RunBook>,
    model: Option<ModelBook>,
}

impl Trainer {
    async fn run(mut self, books: &Books, stop: &Stop) -> Result<()> {
        let ended = self.train(stop).await;
        books.keep(self.runs, self.model);
        ended
    }

    /// Until the first request that is not answered.
    async fn train(&mut self, stop: &Stop) -> Result<()> {
        while !stop.is_set() {
            let number = self.runs.len();
            let name = format!("{}n{number}", self.name);
            let run = RunBook::new(name, self.first_start + number);
            let create = run.create.clone();
            self.runs.push(run);
            let Some(made) = send(&self.client, &create).await? else { return Ok(()) };
            let id = made["run"]["info"]["run_id"].as_str().context("a run without an id")?;
            self.runs[number].id = Some(id.to_owned());
            for _ in 0..=self.random.below(REQUESTS_PER_RUN) {
                if stop.is_set() {
                    return Ok(());
                }
                if !self.log(number, id).await? {
                    return Ok(());
                }
            }
            if !self.register().await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One logging request; whether it was answered.
    async fn log(&mut self, run: usize, id: &str) -> Result<bool> {
        let (ask, said) = self.next(id);
        let book = &mut self.runs[run];
        if send(&self.client, &ask).await?.is_none() {
            book.open = Some((ask, said));
            return Ok(false);
        }
        book.said.add(&said);
        Ok(true)
    }

    fn next(&mut self, id: &str) -> (Ask, Said) {
        self.step += 1;
        let (step, value) = (self.step, i64::try_from(self.random.below(1000)).unwrap_or(0));
        let pair = |what: &str| (format!("{what}-{step}"), value.to_string());
        let point = |key: &str, step: i64| json!({ "key": key, "value": value, "timestamp": step, "step": step });
        let mut said = Said::default();
        let (path, mut body) = match self.random.below(4) {
            0 | 1 => {
                said.points.insert("loss".to_owned(), vec![(step, value)]);
                ("runs/log-metric", point("loss", step))
            }
            2 => {
                self.step += 1;
                said.points.insert("loss".to_owned(), vec![(step, value), (step + 1, value)]);
                said.points.insert("score".to_owned(), vec![(step, value)]);
                said.params = BTreeMap::from([pair("param")]);
                said.tags = BTreeMap::from([pair("batch")]);
                let metrics = [point("loss", step), point("loss", step + 1), point("score", step)];
                let list = |pairs: &BTreeMap<String, String>| -> Vec<Value> {
                    pairs.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect()
                };
                let body = json!({ "metrics": metrics, "params": list(&said.params),
                    "tags": list(&said.tags) });
                ("runs/log-batch", body)
            }
            _ => {
                let (key, value) = pair("tag");
                said.tags.insert(key.clone(), value.clone());
                ("runs/set-tag", json!({ "key": key, "value": value }))
            }
        };
        body["run_id"] = json!(id);
        (Ask { path, body }, said)
    }

    /// Another version of the trainer's model, which is made first; whether it was answered.
    async fn register(&mut self) -> Result<bool> {
        let name = format!("model-{}", self.name);
        if self.model.is_none() {
            let ask = Ask { path: "registered-models/create", body: json!({ "name": name }) };
            let answered = send(&self.client, &ask).await?.is_some();
            let open = (!answered).then_some(OpenModel::Itself);
            self.model = Some(ModelBook { name, versions: BTreeMap::new(), open });
            return Ok(answered);
        }
        let Some(model) = &mut self.model else { return Ok(true) };
        let source = format!("s3://crash/{name}/{}", self.runs.len());
        let body = json!({ "name": name, "source": source });
        let ask = Ask { path: "model-versions/create", body };
        let Some(made) = send(&self.client, &ask).await? else {
            model.open = Some(OpenModel::Version(source));
            return Ok(false);
        };
        model.versions.insert(version(&made)?, source);
        Ok(true)
    }
}

fn version(made: &Value) -> Result<String> {
    let number = made["model_version"]["version"].as_str();
    Ok(number.context("a version without a number")?.to_owned())
}

/// The body of the answer; none if there was no answer.
pub(super) async fn send(client: &Client, ask: &Ask) -> Result<Option<Value>> {
    let Ok(answer) = Answer::of(ask.request(client)).await else { return Ok(None) };
    if !answer.status.is_success() {
        bail!("{ask:?} was refused: {} {}", answer.status, answer.text());
    }
    answer.json().map(Some)
}
