//! Jobs as runs: made when they are submitted, following them to their end, with a token of their own
//! so that the stock client inside of a job logs into its run.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::{Ctx, Error, Result, code};
use falaj_governance::identity::token::job::{JobOwner, JobToken};
use falaj_governance::tenancy::Project;
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_tracking::ExperimentId;
use falaj_tracking::experiment::NewExperiment;
use falaj_tracking::run::{NewRun, OpenRun, PlannedRun, RunId, RunStatus, open_with_tag};

use crate::Training;
use crate::job::{Definition, Job, State, store as jobs};
use crate::live::Plan;
use crate::name::JobId;

/// The experiment of jobs that name none.
const EXPERIMENT: &str = "training";
const WORKER: &str = "training";
/// The tag of a run that says of which job it is.
const TAG: &str = "falaj.job";
/// How long a job may take from its run to itself, and how many runs are looked at at a time.
const UNBORN: Duration = Duration::from_mins(10);
const ORPHANS: usize = 500;
/// How much longer than its time limit the token of a job works.
const SLACK: Duration = Duration::from_hours(1);
/// The longest list that is written as one tag.
const MAX_TAG: usize = 4000;

impl Training {
    /// The run of a job that is about to be submitted, made in the same transaction as that.
    pub(crate) async fn track(
        &self,
        call: &Call,
        id: JobId,
        definition: &Definition,
    ) -> Result<(PlannedRun, String)> {
        let name = definition.experiment.clone().unwrap_or_else(|| EXPERIMENT.to_owned());
        let experiment = self.experiment(call, name).await?;
        let mut tags: Vec<(String, String)> = vec![
            (TAG.to_owned(), id.to_string()),
            ("mlflow.source.name".to_owned(), cut(definition.command.join(" "))),
            ("mlflow.source.type".to_owned(), "JOB".to_owned()),
        ];
        for (key, list) in
            [("falaj.datasets", &definition.datasets), ("falaj.features", &definition.features)]
        {
            if !list.is_empty() {
                tags.push((key.to_owned(), cut(list.join(","))));
            }
        }
        tags.extend(definition.tags.clone());
        let new = NewRun {
            experiment,
            name: Some(definition.name.to_string()),
            user_id: call.ctx.principal.name.clone(),
            start_time: self.tracking().now_ms(),
            tags,
        };
        let params = definition.params.clone().into_iter().collect();
        let run = self.tracking().plan_run(call, new, RunStatus::Scheduled, params).await?;
        Ok((run, experiment.to_string()))
    }

    async fn experiment(&self, call: &Call, name: String) -> Result<ExperimentId> {
        let tracking = self.tracking();
        match tracking.experiment_by_name(call, name.clone()).await {
            Ok(found) => return Ok(found.id),
            Err(error) if *error.code() == code::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
        let new = NewExperiment { name: name.clone(), ..NewExperiment::default() };
        match tracking.create_experiment(call, new).await {
            // Somebody else was first.
            Err(error) if *error.code() == code::ALREADY_EXISTS => {
                Ok(tracking.experiment_by_name(call, name).await?.id)
            }
            made => made,
        }
    }

    async fn call_for(&self, project: &Project) -> Result<Call> {
        let ctx = Ctx::system(WORKER);
        self.places().call(&ctx, &project.tenant, &project.name).await
    }

    /// The run that a start logs into, which runs from now on. Each task of an array has one below that
    /// of its job.
    pub(crate) async fn run_of(&self, plan: &Plan) -> Result<Option<String>> {
        let (job, task) = (&plan.job, plan.id.task);
        let Some(whole) = &job.run_id else { return Ok(None) };
        let call = self.call_for(&plan.project).await?;
        // Once is enough for all tasks of an array.
        if job.tasks.count == 1 || (task.task == 0 && plan.id.attempt == 1) {
            self.run_is(&call, whole, RunStatus::Running, None).await?;
        }
        if job.tasks.count == 1 {
            return Ok(Some(whole.clone()));
        }
        let known = match &plan.run {
            Some(run) => Some(run.clone()),
            None => {
                self.db().read(move |tx| jobs::task(tx, task)).await?.and_then(|(_, it)| it.run)
            }
        };
        if let Some(run) = known {
            self.run_is(&call, &run, RunStatus::Running, None).await?;
            return Ok(Some(run));
        }
        let experiment = job.experiment_id.as_deref().unwrap_or("0").parse()?;
        let new = NewRun {
            experiment,
            name: Some(format!("{}-{}", job.name, task.task)),
            user_id: job.created_by.clone(),
            start_time: self.tracking().now_ms(),
            tags: vec![
                ("mlflow.parentRunId".to_owned(), whole.clone()),
                (TAG.to_owned(), job.id.to_string()),
                ("falaj.task".to_owned(), task.task.to_string()),
            ],
        };
        let made = self.tracking().create_run(&call, new).await;
        let run = match made {
            Ok(run) => run.info.id.to_string(),
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let kept = run.clone();
        self.db().write(move |tx| jobs::task_has_run(tx, task, &kept)).await?;
        Ok(Some(run))
    }

    /// Lets a run end as its job or task did.
    pub(crate) async fn run_ends(
        &self,
        job: &Job,
        project: &Arc<Project>,
        run: Option<&str>,
    ) -> Result<()> {
        let Some(run) = run else { return Ok(()) };
        self.run_ends_as(project, run, job.state).await
    }

    pub(crate) async fn run_ends_as(
        &self,
        project: &Arc<Project>,
        run: &str,
        state: State,
    ) -> Result<()> {
        let status = match state {
            State::Succeeded => RunStatus::Finished,
            State::Failed | State::Lost => RunStatus::Failed,
            State::Cancelled => RunStatus::Killed,
            _ => return Ok(()),
        };
        let call = self.call_for(project).await?;
        self.run_is(&call, run, status, Some(self.tracking().now_ms())).await
    }

    /// Ends runs that were made for jobs that never came to be: whoever was about to submit one was
    /// killed on the way.
    pub(crate) async fn end_orphans(&self) -> Result<()> {
        let before = self.tracking().now_ms() - i64::try_from(UNBORN.as_millis()).unwrap_or(0);
        let mut after = RunId(uuid::Uuid::nil());
        loop {
            let from = after;
            let read = move |tx: &mut Tx<'_>| {
                let found = open_with_tag(tx, TAG, before, from, ORPHANS)?;
                let last = found.last().map(|it| it.run);
                let mut orphans = Vec::new();
                for it in found {
                    let job = it.value.parse::<JobId>().ok();
                    let there = match job {
                        Some(job) => jobs::is_there(tx, job)?,
                        // Somebody else's tag of the same name.
                        None => true,
                    };
                    if !there {
                        orphans.push(it);
                    }
                }
                Ok((orphans, last))
            };
            let (orphans, last) = self.db().read(read).await?;
            for OpenRun { project, run, value } in orphans {
                tracing::warn!(%run, job = value, "a run has no job");
                let ctx = Ctx::system(WORKER);
                let project = Arc::new(self.tenancy().project_by_id(&ctx, project).await?);
                self.run_ends_as(&project, &run.to_string(), State::Failed).await?;
            }
            let Some(last) = last else { return Ok(()) };
            after = last;
        }
    }

    async fn run_is(
        &self,
        call: &Call,
        run: &str,
        status: RunStatus,
        end: Option<i64>,
    ) -> Result<()> {
        match self.tracking().update_run(call, run, Some(status), end, None).await {
            // Somebody deleted it; the job is none the worse for that.
            Err(error) if is_gone(&error) => Ok(()),
            done => done.map(drop),
        }
    }

    /// A token for one launch of a job, if it has an owner who can have some.
    pub(crate) fn token(&self, job: &Job, project: &Project) -> Result<Option<JobToken>> {
        let Some(authenticator) = self.authenticator().filter(|_| !job.owner.is_system) else {
            return Ok(None);
        };
        let owner =
            JobOwner { id: job.owner.id, name: job.created_by.clone(), home: job.owner.home };
        let life = match job.definition.time_limit {
            Some(limit) => limit.get() + SLACK,
            None => self.config().token_life.get(),
        };
        let about = format!("job {}", job.id);
        authenticator.job_token(&owner, project.scope(), life, about).map(Some)
    }
}

fn is_gone(error: &Error) -> bool {
    [&code::NOT_FOUND, &code::INVALID_INPUT, &code::INVALID_STATE].contains(&error.code())
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_TAG {
        let end = (0..=MAX_TAG).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}
