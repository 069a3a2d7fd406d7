//! The verbs on issues. An issue belongs to an experiment, and is authorised like its traces.

use falaj_base::{Action, Error, Resource, Result, code};
use falaj_mlflow::Call;
use falaj_store::record::Change;
use falaj_tracking::access::{allowed, resource};
use falaj_tracking::experiment::require_active;
use falaj_tracking::{ExperimentId, RUN_READ};
use serde_json::json;

use super::issue::{Issue, IssueChange};
use super::store::{self, Placed};
use crate::{TRACE_READ, TRACE_WRITE, Traces};

impl Traces {
    pub(super) async fn create_issue(
        &self,
        call: &Call,
        experiment: ExperimentId,
        issue: Issue,
    ) -> Result<Issue> {
        let experiment = self.tracking().experiment(call, experiment, &TRACE_WRITE).await?;
        require_active(&experiment)?;
        issue.check(self.config())?;
        if let Some(run) = &issue.source_run {
            self.tracking().home(call, run, &RUN_READ).await?;
        }
        let resource = resource(&call.place, experiment.id, false).shown_as(&issue.id);
        call.ctx.authorize(&TRACE_WRITE, &resource).await?;
        let (ctx, project, most) = (call.ctx.clone(), call.place.id, self.config().max_issues);
        self.db()
            .write(move |tx| {
                tx.lock(&format!("issues/{}", experiment.no))?;
                if store::count(tx, experiment.no)? >= most {
                    let text =
                        format!("an experiment has at most {most} issues (`traces.max_issues`)");
                    return Err(Error::new(&code::CONFLICT, text));
                }
                store::insert(tx, project, experiment.no, &issue)?;
                let change = Change::new(&TRACE_WRITE, &resource)
                    .event("issue.created", &shown(experiment.id, &issue))
                    .after(&issue)
                    .detail("issue", &issue.id);
                tx.record(&ctx, change)?;
                Ok(issue)
            })
            .await
    }

    pub(super) async fn issue(&self, call: &Call, id: &str) -> Result<Placed> {
        self.found_issue(call, id, &TRACE_READ).await.map(|(placed, _)| placed)
    }

    pub(super) async fn update_issue(
        &self,
        call: &Call,
        id: &str,
        change: IssueChange,
    ) -> Result<Placed> {
        let (placed, resource) = self.found_issue(call, id, &TRACE_WRITE).await?;
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        let (limits, now) = (self.config().clone(), self.tracking().now_ms());
        self.db()
            .write(move |tx| {
                let id = placed.issue.id;
                tx.lock(&format!("issue/{id}"))?;
                let mut found = store::find(tx, project, &id)?.ok_or_else(|| no_issue(&id))?;
                let before = found.issue.clone();
                found.issue.apply(change, now);
                found.issue.check(&limits)?;
                store::update(tx, &found.issue)?;
                let change = Change::new(&TRACE_WRITE, &resource)
                    .event("issue.updated", &shown(found.experiment_id, &found.issue))
                    .before(&before)
                    .after(&found.issue)
                    .detail("issue", &id);
                tx.record(&ctx, change)?;
                Ok(found)
            })
            .await
    }

    /// The issue with this id, if the caller may do `action` to it. Not there and not yours read
    /// alike.
    async fn found_issue(
        &self,
        call: &Call,
        id: &str,
        action: &'static Action,
    ) -> Result<(Placed, Resource)> {
        let not_there = || no_issue(id);
        let found = if is_id(id) {
            let (project, wanted) = (call.place.id, id.to_owned());
            self.db().read(move |tx| store::find(tx, project, &wanted)).await?
        } else {
            None
        };
        let Some(placed) = found else {
            let name: String = id.chars().take(64).collect();
            let absent = Resource::absent("issue", name, call.place.scope());
            allowed(&call.ctx, action, &absent, not_there).await?;
            return Err(not_there());
        };
        let resource = resource(&call.place, placed.experiment_id, false).shown_as(id);
        allowed(&call.ctx, action, &resource, not_there).await?;
        Ok((placed, resource))
    }
}

/// A text that cannot be an id is the id of nothing.
fn is_id(text: &str) -> bool {
    let digits = text.strip_prefix("iss-");
    digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn no_issue(id: &str) -> Error {
    let id: String = id.chars().take(64).collect();
    Error::new(&code::NOT_FOUND, format!("Issue with ID '{id}' not found"))
}

/// What events say of it: nothing of what people wrote.
fn shown(experiment: ExperimentId, issue: &Issue) -> serde_json::Value {
    json!({
        "issue_id": issue.id,
        "experiment_id": experiment.to_string(),
        "status": issue.status,
        "severity": issue.severity,
    })
}
