//! Every row of a file, several requests at a time, in order.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use falaj_inference::Metadata;
use falaj_oip::{HEADER_LENGTH, Response, Written, client};
use falaj_tables::{Batch, Limits, Part, Plan, Table, columns_of};
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::json;
use tokio::sync::mpsc;

use super::Endpoint;
use super::parts::{Begun, Parts};
use crate::client::bounded;
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::output::progress::Ticker;

/// About how much one request brings.
const REQUEST: usize = 4 << 20;
/// The largest description of a model, and the largest answer, that are read.
const MAX_DESCRIPTION: usize = 16 << 20;
const MAX_ANSWER: usize = 1 << 30;
/// How often a request is tried, and how long the first pause is.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(200);

/// What was asked for on the command line.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) input: PathBuf,
    pub(super) out: PathBuf,
    pub(super) rows_at_once: usize,
    pub(super) in_flight: usize,
    pub(super) columns: Vec<String>,
    pub(super) keep: Vec<String>,
    pub(super) restart: bool,
}

pub(super) async fn run(ctx: &Context, endpoint: &Endpoint, job: Job) -> Result<()> {
    let table = open(&job.input)?;
    let told = endpoint.client.send(endpoint.call(Method::GET, &[])?).await?;
    let told = bounded(told, MAX_DESCRIPTION).await?;
    let described = client::read_metadata(&told).map_err(|error| strange(&error))?;
    let plan = Plan::new(table.fields(), &described.inputs, &job.columns)?;
    let groups: Vec<(usize, u64)> =
        table.groups().enumerate().filter(|(_, rows)| *rows > 0).collect();
    if groups.is_empty() {
        return Err(Failure::usage(format!("{} has no rows", job.input.display())));
    }
    let parts = Parts::open(&job.out, &described_job(&job, endpoint, &table)?, job.restart)?;
    let mut work = Work {
        ctx,
        endpoint,
        rows_at_once: plan.fixed_rows().unwrap_or(job.rows_at_once),
        job: &job,
        table,
        plan,
        described,
        told: Told::new(ctx, groups.iter().map(|(_, rows)| rows).sum()),
    };
    for &(group, rows) in &groups {
        if parts.has(group) {
            work.told.done += rows;
            work.told.found += rows;
            continue;
        }
        work.group(&parts, group).await?;
    }
    work.told.ticker.clear();
    let numbers: Vec<_> = groups.iter().map(|(group, _)| *group).collect();
    let rows = parts.merge(&numbers, &work.described.outputs)?;
    let shown = job.out.display().to_string();
    let sentence = work.told.last_word(rows, &shown);
    ctx.output.done(&json!({ "out": shown, "rows": rows }), &sentence)
}

fn open(path: &Path) -> Result<Table> {
    let file = File::open(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    // Batches are requests: they get fewer rows where those are large.
    Ok(Table::open(file, Limits { batch: REQUEST, ..Limits::default() })?)
}

/// What makes a job the same job: the file as it is, whom it asks, and what for.
fn described_job(job: &Job, endpoint: &Endpoint, table: &Table) -> Result<serde_json::Value> {
    let file = std::fs::metadata(&job.input)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", job.input.display())))?;
    let changed = file.modified().ok().and_then(|time| {
        let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok()
    });
    Ok(json!({
        "version": 1, "input": job.input, "bytes": file.len(), "changed": changed,
        "rows": table.rows(), "groups": table.groups().len(), "url": endpoint.client.url(),
        "project": endpoint.project, "endpoint": endpoint.name, "columns": job.columns,
        "keep": job.keep,
    }))
}

struct Work<'a> {
    ctx: &'a Context,
    endpoint: &'a Endpoint,
    job: &'a Job,
    rows_at_once: usize,
    table: Table,
    plan: Plan,
    described: Metadata,
    told: Told,
}

impl Work<'_> {
    /// Answers one row group into one part.
    async fn group(&mut self, parts: &Parts, group: usize) -> Result<()> {
        let batches = self.batches(group)?;
        let batches = stream::unfold(batches, |mut batches| async move {
            let batch = batches.recv().await?;
            Some((batch, batches))
        });
        let (endpoint, plan) = (self.endpoint, &self.plan);
        let (described, keep) = (&self.described, &self.job.keep);
        let answers = batches
            .map(|batch| async move { answered(endpoint, plan, described, keep, batch?).await })
            .buffered(self.job.in_flight);
        let mut answers = std::pin::pin!(answers);
        let (mut begun, mut versions): (Option<Begun>, Vec<String>) = (None, Vec::new());
        while let Some((batch, version)) = answers.try_next().await? {
            if !versions.contains(&version) {
                versions.push(version);
            }
            if begun.is_none() {
                let fields = batch.columns().iter().map(|(field, _)| field.clone()).collect();
                begun = Some(parts.begin(group, fields)?);
            }
            let rows = batch.rows() as u64;
            if let Some(begun) = &mut begun {
                begun.write(batch)?;
            }
            self.told.add(rows);
        }
        let begun = begun.ok_or_else(|| Failure::failed("a row group gave no rows"))?;
        begun.finish(&versions)
    }

    /// Reads a row group on a thread of its own, a few batches ahead.
    fn batches(&self, group: usize) -> Result<mpsc::Receiver<Result<Batch>>> {
        let mut columns = self.plan.columns();
        for kept in &self.job.keep {
            if !columns.contains(kept) {
                columns.push(kept.clone());
            }
        }
        let part = Part {
            columns: Some(columns),
            groups: Some(vec![group]),
            rows_at_once: self.rows_at_once,
        };
        let batches = self.table.read(&part)?;
        let (send, receive) = mpsc::channel(self.job.in_flight);
        tokio::task::spawn_blocking(move || {
            for batch in batches {
                let failed = batch.is_err();
                if send.blocking_send(batch.map_err(Failure::from)).is_err() || failed {
                    return;
                }
            }
        });
        self.ctx.output.detail(|| format!("row group {group}"));
        Ok(receive)
    }
}

/// The answers to a batch, beside the columns that are kept, and the version that gave them.
async fn answered(
    endpoint: &Endpoint,
    plan: &Plan,
    described: &Metadata,
    keep: &[String],
    batch: Batch,
) -> Result<(Batch, String)> {
    let answer = asked(endpoint, client::write_request(&plan.inputs(&batch)?, [])?).await?;
    let answers = columns_of(answer.outputs, &described.outputs)?;
    if answers.rows() != batch.rows() {
        let text = format!("{} answers came for {} rows", answers.rows(), batch.rows());
        return Err(Failure::failed(text).hint("only models that answer row by row can do this"));
    }
    let mut columns = Vec::with_capacity(keep.len() + answers.columns().len());
    for name in keep {
        columns.push(batch.column(name)?.clone());
    }
    columns.extend(answers.into_columns());
    Ok((Batch::new(columns)?, answer.version))
}

/// Sends a request, again after a while if the server is busy or away: asking twice does no harm.
async fn asked(endpoint: &Endpoint, request: Written) -> Result<Response> {
    let Written { header_length, body } = request;
    let length = header_length.unwrap_or(body.len());
    let name = HeaderName::from_static(HEADER_LENGTH);
    let mut pause = PAUSE;
    for attempt in 1.. {
        let call = endpoint.call(Method::POST, &["infer"])?;
        let call = call.header(name.clone(), HeaderValue::from(length));
        let sent = endpoint.client.upload(call, body.clone().into()).await;
        let read = match sent {
            Ok(response) => {
                let header = response.headers().get(&name).and_then(|value| value.to_str().ok());
                let told = header.and_then(|text| text.parse().ok());
                bounded(response, MAX_ANSWER).await.map(|bytes| (told, bytes))
            }
            Err(failure) => Err(failure),
        };
        match read {
            Ok((length, bytes)) => {
                let read = client::read_response(Bytes::from(bytes), length);
                return read.map_err(|error| strange(&error));
            }
            Err(failure) if failure.is_passing() && attempt < TRIES => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(10));
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::failed("no answer"))
}

fn strange(error: &falaj_base::Error) -> Failure {
    Failure::failed(format!("the endpoint's answer cannot be read: {}", error.message()))
        .hint("is the URL that of a Falaj server? `falaj doctor` checks it")
}

/// How far it is.
struct Told {
    ticker: Ticker,
    done: u64,
    /// Rows that an earlier run had answered.
    found: u64,
    total: u64,
    since: Instant,
}

impl Told {
    fn new(ctx: &Context, total: u64) -> Self {
        let ticker = Ticker::new(ctx.output);
        Self { ticker, done: 0, found: 0, total, since: Instant::now() }
    }

    fn add(&mut self, rows: u64) {
        self.done += rows;
        let (done, total, rate) = (self.done, self.total, self.rate());
        self.ticker.tick(|| {
            let percent = done * 100 / total.max(1);
            format!("{done} of {total} rows ({percent}%), {rate:.0} rows/s")
        });
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    fn rate(&self) -> f64 {
        (self.done - self.found) as f64 / self.since.elapsed().as_secs_f64().max(1e-9)
    }

    fn last_word(&self, rows: u64, out: &str) -> String {
        let before = match self.found {
            0 => String::new(),
            found => format!(", {found} of them by an earlier run"),
        };
        format!("wrote {rows} rows to {out}{before}; {:.0} rows/s", self.rate())
    }
}
