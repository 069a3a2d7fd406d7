//! The runs that are searched and the points that are read: the same in both servers. The original
//! gets them by SQL (`mlflow/load.py`), Falaj through its API.

use std::fmt::Write as _;

use anyhow::Result;
use futures::future::try_join_all;

use super::client::text_field;
use super::peer::Peer;

/// More than the server has cores, so that commits are shared.
const LOADERS: usize = 64;
const POINTS_AT_ONCE: usize = 1000;
const START: usize = 1_700_000_000_000;

/// Makes an experiment with that many runs; returns its id.
pub(crate) async fn runs(peer: &Peer, count: usize) -> Result<String> {
    let experiment = peer.new_experiment().await?;
    if let Some(original) = peer.original() {
        original.load(&[&experiment, "runs", &count.to_string()])?;
    } else {
        try_join_all((0..LOADERS).map(|first| some_runs(peer, &experiment, first, count))).await?;
    }
    Ok(experiment)
}

async fn some_runs(peer: &Peer, experiment: &str, first: usize, count: usize) -> Result<()> {
    let mut connection = peer.connect().await?;
    for index in (first..count).step_by(LOADERS) {
        let start = START + index * 1000;
        let create = format!(
            r#"{{"experiment_id":"{experiment}","run_name":"run-{index}","user_id":"bench","start_time":{start},"tags":[{{"key":"team","value":"team-{}"}}]}}"#,
            index % 5
        );
        let reply = connection.post("/api/2.0/mlflow/runs/create", &create).await?;
        let run = text_field(reply, "run_id")?;
        let metric = |key: &str, value: usize, of: usize| {
            let value = format!("{value}e-{}", of.ilog10());
            format!(r#"{{"key":"{key}","value":{value},"timestamp":{start},"step":0}}"#)
        };
        let metrics = [
            metric("acc", index * 7919 % 10_000, 10_000),
            metric("loss", index * 104_729 % 10_000, 1000),
            metric("f1", index * 31 % 1000, 1000),
        ];
        let batch = format!(
            r#"{{"run_id":"{run}","metrics":[{}],"params":[{{"key":"lr","value":"{}"}},{{"key":"depth","value":"{}"}},{{"key":"optimizer","value":"{}"}}]}}"#,
            metrics.join(","),
            ["0.1", "0.01", "0.001", "0.0001"][index % 4],
            index % 10,
            ["adam", "sgd"][index % 2]
        );
        connection.post("/api/2.0/mlflow/runs/log-batch", &batch).await?;
    }
    Ok(())
}

/// Makes a run whose metric `long` has that many points; returns its id.
pub(crate) async fn points(peer: &Peer, count: usize) -> Result<String> {
    let experiment = peer.new_experiment().await?;
    let run = peer.new_run(&experiment).await?;
    if let Some(original) = peer.original() {
        original.load(&[&experiment, "points", &count.to_string(), &run])?;
        return Ok(run);
    }
    let mut connection = peer.connect().await?;
    for first in (0..count).step_by(POINTS_AT_ONCE) {
        let mut batch = format!(r#"{{"run_id":"{run}","metrics":["#);
        for step in first..count.min(first + POINTS_AT_ONCE) {
            let comma = if step == first { "" } else { "," };
            let (value, time) = (step * 7919 % 10_007, START + step);
            write!(
                batch,
                r#"{comma}{{"key":"long","value":0.{value:05},"timestamp":{time},"step":{step}}}"#
            )?;
        }
        batch.push_str("]}");
        connection.post("/api/2.0/mlflow/runs/log-batch", &batch).await?;
    }
    Ok(run)
}
