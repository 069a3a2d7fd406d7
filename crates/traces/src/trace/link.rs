//! Tying traces to runs and to the versions of prompts that they used.

use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use falaj_mlflow::error::{invalid, refused};
use falaj_store::record::Change;
use serde_json::json;

use super::id::TraceId;
use super::service::lock;
use super::store;
use crate::access::no_trace;
use crate::{TRACE_WRITE, Traces};

/// The most traces in one request, as in MLflow.
const MOST: usize = 100;

/// What a trace is tied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkKind {
    Run = 1,
    Prompt = 2,
}

impl Traces {
    /// Ties traces to a run, also those that have not arrived yet: clients send them later.
    pub(crate) async fn link_to_run(
        &self,
        call: &Call,
        traces: &[String],
        run: &str,
    ) -> Result<()> {
        if traces.len() > MOST {
            return Err(refused(format!(
                "Cannot link more than {MOST} traces to a run in a single request. Provided {} \
                 traces.",
                traces.len()
            ))
            .at("trace_ids"));
        }
        let run = self.tracking().home(call, run, &TRACE_WRITE).await?;
        let ids: Vec<TraceId> = traces.iter().filter_map(|id| TraceId::parse(id)).collect();
        let there = self.addresses(call, ids.clone()).await?;
        let allowed = self.homes(call, traces, &TRACE_WRITE).await?;
        let is_closed = |id: &TraceId| {
            there.iter().any(|found| found.id == *id) && !allowed.iter().any(|home| home.id == *id)
        };
        let ids: Vec<TraceId> = ids.into_iter().filter(|id| !is_closed(id)).collect();
        let (ctx, project, most) = (call.ctx.clone(), call.place.id, self.config().max_assessments);
        self.db()
            .write(move |tx| {
                lock(tx, project, &ids)?;
                for id in &ids {
                    store::add_link(tx, (project, id), LinkKind::Run, &run.run.to_string())?;
                    check_count(store::links(tx, project, id)?.len(), most)?;
                }
                let ids: Vec<&str> = ids.iter().map(TraceId::as_str).collect();
                let data = json!({ "run_id": run.run.to_string(), "trace_ids": ids });
                let change = Change::new(&TRACE_WRITE, &run.resource)
                    .event("trace.linked", &data)
                    .after(&data)
                    .detail("run", run.run)
                    .detail("traces", ids.len());
                tx.record(&ctx, change)
            })
            .await
    }

    /// Ties a trace to versions of prompts, each as `name/version`.
    pub(crate) async fn link_prompts(
        &self,
        call: &Call,
        trace: &str,
        prompts: Vec<String>,
    ) -> Result<()> {
        for prompt in &prompts {
            if prompt.chars().count() > 512 {
                return Err(invalid("prompt_versions", &json!(prompt), "at most 512 characters"));
            }
        }
        let home = self.home(call, trace, &TRACE_WRITE).await?;
        let (ctx, project, most) = (call.ctx.clone(), call.place.id, self.config().max_assessments);
        self.db()
            .write(move |tx| {
                lock(tx, project, [&home.id])?;
                let found = store::find(tx, project, &home.id)?;
                if found.is_none_or(|trace| trace.no != home.no) {
                    return Err(no_trace(home.id.as_str()));
                }
                for prompt in &prompts {
                    store::add_link(tx, (project, &home.id), LinkKind::Prompt, prompt)?;
                }
                check_count(store::links(tx, project, &home.id)?.len(), most)?;
                let data = json!({ "trace_id": home.id.as_str(), "prompts": prompts });
                let change = Change::new(&TRACE_WRITE, &home.resource)
                    .event("trace.linked", &data)
                    .after(&data)
                    .detail("trace", &home.id);
                tx.record(&ctx, change)
            })
            .await
    }
}

fn check_count(count: usize, most: usize) -> Result<()> {
    if count <= most {
        return Ok(());
    }
    let text = format!("a trace has at most {most} links (`traces.max_assessments`)");
    Err(Error::new(&code::INVALID_INPUT, text))
}
