//! Tying traces to runs and to the versions of prompts that they used.

use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use falaj_mlflow::error::{invalid, refused};
use falaj_store::record::Change;
use serde_json::json;

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
    /// Ties traces to a run. Those that are not there are passed over, as in MLflow.
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
        let homes = self.homes(call, traces, &TRACE_WRITE).await?;
        let (ctx, most) = (call.ctx.clone(), self.config().max_assessments);
        self.db()
            .write(move |tx| {
                for home in &homes {
                    if !store::hold(tx, home.no)? {
                        continue;
                    }
                    store::add_link(tx, home.no, LinkKind::Run, &run.run.to_string())?;
                    check_count(store::links(tx, home.no)?.len(), most)?;
                }
                let ids: Vec<&str> = homes.iter().map(|home| home.id.as_str()).collect();
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
        let (ctx, most) = (call.ctx.clone(), self.config().max_assessments);
        self.db()
            .write(move |tx| {
                if !store::hold(tx, home.no)? {
                    return Err(no_trace(home.id.as_str()));
                }
                for prompt in &prompts {
                    store::add_link(tx, home.no, LinkKind::Prompt, prompt)?;
                }
                check_count(store::links(tx, home.no)?.len(), most)?;
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
