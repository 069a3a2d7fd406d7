//! Traces: the spans first, then what is said of the whole, which makes it final. So a trace that is
//! there as a whole has its spans as well.

mod info;
mod span;

use falaj_moving::artifact::{File, Folder};
use falaj_moving::record::{Experiment, Stage, Trace};
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::Bring;
use crate::exit::{Failure, Result};
use crate::moving::Kind;

/// How many traces are looked at together, and how many spans are read at once.
const TRACES: usize = 50;
const SPANS: usize = 100;
/// About how much goes into one request, and the largest file of spans that is read.
const BYTES: usize = 4 << 20;
const LARGEST_FILE: u64 = 256 << 20;

const EXPERIMENT: HeaderName = HeaderName::from_static("x-mlflow-experiment-id");
const LOCATION: &str = "mlflow.artifactLocation";
const FILE: &str = "traces.json";

/// Why not all spans of a trace came.
#[derive(Debug, Default)]
struct Without(Vec<String>);

impl Bring<'_> {
    pub(super) async fn traces(&mut self, from: &Experiment, landed: &str) -> Result<()> {
        if from.stage == Stage::Deleted {
            let count = self.source.trace_count(&from.id).await?;
            if count > 0 {
                let name = &from.name;
                let text = format!("{count} traces of the deleted experiment {name} stay behind");
                self.account.note(text);
            }
            return Ok(());
        }
        let mut after = String::new();
        loop {
            let some = self.source.traces(&from.id, &after, TRACES).await?;
            let Some(last) = some.last() else { break };
            after.clone_from(&last.id);
            self.some_traces(&some, landed).await?;
        }
        let count = self.source.trace_count(&from.id).await?;
        if count > 0 && after.is_empty() {
            let text = format!("{count} traces of {} stay behind: they lie in files", from.name);
            self.account.note(text);
        }
        Ok(())
    }

    async fn some_traces(&mut self, some: &[Trace], landed: &str) -> Result<()> {
        self.account.found(Kind::Traces, some.len());
        let infos: Vec<Value> = some.iter().map(|trace| info::info(trace, landed)).collect();
        let here = self.project.trace_infos(some.iter().map(|trace| trace.id.as_str())).await?;
        let lacks = |(trace, info): &(&Trace, &Value)| {
            !here.get(&trace.id).is_some_and(|there| info::holds(there, info))
        };
        let missing: Vec<(&Trace, &Value)> = some.iter().zip(&infos).filter(lacks).collect();
        if self.dry_run || missing.is_empty() {
            return Ok(());
        }
        let this = &*self;
        let done: Vec<Result<Without>> = stream::iter(&missing)
            .map(|(trace, info)| this.bring_trace(trace, info, landed))
            .buffered(self.concurrency)
            .collect()
            .await;
        let mut sent = Vec::with_capacity(missing.len());
        for ((trace, info), brought) in missing.into_iter().zip(done) {
            let id = &trace.id;
            match brought {
                Ok(Without(reasons)) => {
                    self.account.sent(Kind::Traces, 1);
                    for why in reasons {
                        self.account.refused(format!("spans of the trace {id}: {why}"));
                    }
                    sent.push((id, info));
                }
                Err(refused) if refused.is_refusal() => {
                    self.account.refused(format!("the trace {id}: {}", refused.message()));
                }
                Err(failure) => return Err(failure),
            }
        }
        let here = self.project.trace_infos(sent.iter().map(|(id, _)| id.as_str())).await?;
        for (id, info) in sent {
            if !here.get(id).is_some_and(|there| info::holds(there, info)) {
                self.account.differs(format!("the trace {id} is not there as it was sent"));
            }
        }
        Ok(())
    }

    async fn bring_trace(&self, trace: &Trace, info: &Value, landed: &str) -> Result<Without> {
        let mut without = Without::default();
        let mut after = String::new();
        loop {
            let some = self.source.spans(&trace.id, &after, SPANS).await?;
            let Some((last, _)) = some.last() else { break };
            after.clone_from(last);
            let read = some.iter().map(|(_, text)| serde_json::from_str(text).unwrap_or_default());
            self.send_spans(trace, landed, read, &mut without).await?;
        }
        if after.is_empty() {
            self.spans_of_file(trace, landed, &mut without).await?;
        }
        let body = json!({ "trace": { "trace_info": info } });
        let call = self.project.mlflow_3(Method::POST, "mlflow/traces")?.body(body);
        self.project.again(call).await?;
        Ok(without)
    }

    /// Spans that lie in a file of the trace, as they did before they were in tables.
    async fn spans_of_file(
        &self,
        trace: &Trace,
        landed: &str,
        without: &mut Without,
    ) -> Result<()> {
        let at =
            trace.tags.iter().find(|(key, _)| key == LOCATION).map(|(_, uri)| self.locate(uri));
        let Some(at) = at.filter(|at| !self.no_artifacts && at.is_readable()) else {
            return Ok(());
        };
        if !self.allowed.admits(&at) {
            let refusal =
                self.allowed.refusal(&format!("the spans of the trace {}", trace.id), &at);
            return Err(Failure::usage(refusal.to_string()));
        }
        let folder = Folder::open(&at)?;
        let files = folder.list(self.allowed.is_root(&at)).await?.files;
        let Some(file) = files.iter().find(|file| file.path == FILE) else { return Ok(()) };
        let text = read_file(&folder, file).await?;
        let all: Value = serde_json::from_slice(&text)
            .map_err(|cause| Failure::failed(format!("{FILE} of its files: {cause}")))?;
        let spans = all["spans"].as_array().cloned().unwrap_or_default();
        self.send_spans(trace, landed, spans.into_iter(), without).await
    }

    async fn send_spans(
        &self,
        trace: &Trace,
        landed: &str,
        spans: impl Iterator<Item = Value>,
        without: &mut Without,
    ) -> Result<()> {
        let (mut batch, mut size) = (Vec::new(), 0);
        for kept in spans {
            let Some(span) = span::otlp(&kept) else {
                without.0.push("one is not a span as MLflow writes it".to_owned());
                continue;
            };
            // Before MLflow 3 a trace was not called after its spans; they would make another one.
            if span::trace_of(&span) != trace.id {
                without.0.push(format!("they belong to {}", span::trace_of(&span)));
                return Ok(());
            }
            size += span.to_string().len();
            batch.push(span);
            if size >= BYTES {
                self.send_batch(landed, std::mem::take(&mut batch), without).await?;
                size = 0;
            }
        }
        self.send_batch(landed, batch, without).await
    }

    async fn send_batch(
        &self,
        landed: &str,
        spans: Vec<Value>,
        without: &mut Without,
    ) -> Result<()> {
        if spans.is_empty() {
            return Ok(());
        }
        let body = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] });
        let experiment =
            HeaderValue::from_str(landed).map_err(|e| Failure::failed(e.to_string()))?;
        let call = self.project.traces()?.header(EXPERIMENT, experiment).body(body);
        let reply = self.project.again(call).await?;
        let partial = &reply["partialSuccess"];
        let rejected = partial["rejectedSpans"].as_str().and_then(|text| text.parse().ok());
        let rejected: usize = rejected.unwrap_or_default();
        if rejected > 0 {
            let why = partial["errorMessage"].as_str().unwrap_or_default();
            without.0.push(format!("{rejected} were refused: {why}"));
        }
        Ok(())
    }
}

async fn read_file(folder: &Folder, file: &File) -> Result<Vec<u8>> {
    if file.size > LARGEST_FILE {
        let text = format!("{FILE} has {} bytes; at most {LARGEST_FILE} are read", file.size);
        return Err(Failure::failed(text));
    }
    let mut bytes = Vec::new();
    let mut pieces = folder.read(file).await?;
    while let Some(piece) = pieces.try_next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
