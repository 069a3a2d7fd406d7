//! What ranks report.

use std::collections::BTreeMap;

use falaj_base::{Error, Page, PageQuery, PrincipalKind, Result, code};
use falaj_governance::identity::Authenticator;
use falaj_mlflow::Call;
use falaj_mlflow::asked::not_a_page;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::folder;
use super::store::{self, CheckpointShown, Part};
use crate::job::store::{self as jobs, StartRow};
use crate::job::{Job, resource};
use crate::live::inbox::{self, Note};
use crate::name::{StartId, TaskId};
use crate::{JOB_READ, JOB_REPORT, Training, blocking};

const MAX_PATH: usize = 4096;
const MAX_FILES: usize = 10_000;
/// Bytes of the names and digests of one part.
const MAX_LISTED: usize = 1 << 20;
/// Steps of one start that some ranks have saved and others have not yet.
const MAX_OPEN: u32 = 16;
/// No job comes this far, and numbers of JSON go no further.
const MAX_STEP: i64 = 1 << 53;

/// What a rank has to say: how far it is, and what it saved.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// `FALAJ_TASK`; 0 if absent.
    #[serde(default)]
    pub task: u32,
    /// `FALAJ_ATTEMPT`: the number of the start, or what executors call it, which ends with that.
    #[serde(deserialize_with = "number_of_start")]
    #[schemars(with = "String")]
    pub attempt: u32,
    /// `FALAJ_RANK`; 0 if absent.
    #[serde(default)]
    pub rank: u32,
    /// The step it is at. A report without says that the rank lives.
    #[serde(default)]
    pub step: Option<i64>,
    /// What it has saved, complete and on disk.
    #[serde(default)]
    pub checkpoint: Option<Saved>,
}

fn number_of_start<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u32),
        Text(String),
    }
    let number = match Either::deserialize(from)? {
        Either::Number(number) => Some(number),
        Either::Text(text) => text.rsplit('-').next().and_then(|last| last.parse().ok()),
    };
    number.ok_or_else(|| serde::de::Error::custom("`FALAJ_ATTEMPT` is expected"))
}

/// A part of a checkpoint.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    pub step: i64,
    /// Where it lies; what `RESUME_FROM` will be if it is the first rank's.
    pub path: String,
    /// Names of files below the path, with their SHA-256 in hex.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// What a report came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reported {
    /// Whether every rank has this checkpoint now.
    pub whole: bool,
    /// Whether the job should save its work and end: others need its nodes.
    pub stopping: bool,
}

impl Report {
    fn check(&self) -> Result<()> {
        let saved = self.checkpoint.as_ref().map(|saved| saved.step);
        for (field, step) in [("step", self.step), ("checkpoint.step", saved)] {
            if let Some(step) = step.filter(|step| !(0..=MAX_STEP).contains(step)) {
                return Err(Error::invalid(field, step, format!("0 to {MAX_STEP}")));
            }
        }
        let Some(saved) = &self.checkpoint else { return Ok(()) };
        if saved.path.is_empty() || saved.path.len() > MAX_PATH || saved.path.contains('\0') {
            let allowed = format!("1 to {MAX_PATH} bytes of text");
            return Err(Error::invalid("checkpoint.path", &saved.path, allowed));
        }
        check_files(&saved.files)
    }
}

/// Names stay below their folder, and digests are digests.
pub(super) fn check_files(files: &BTreeMap<String, String>) -> Result<()> {
    if files.len() > MAX_FILES {
        let allowed = format!("at most {MAX_FILES}");
        return Err(Error::invalid("checkpoint.files", files.len(), allowed));
    }
    let listed: usize = files.iter().map(|(name, digest)| name.len() + digest.len()).sum();
    if listed > MAX_LISTED {
        let allowed = format!("names and digests of {MAX_LISTED} bytes together");
        return Err(Error::invalid("checkpoint.files", format!("{listed} bytes"), allowed));
    }
    for (name, digest) in files {
        let plain = !name.is_empty()
            && name.len() <= MAX_PATH
            && !name.contains('\0')
            && name.split('/').all(|step| !matches!(step, "" | "." | ".."));
        if !plain {
            let allowed = "paths below the checkpoint's own, without . and ..";
            return Err(Error::invalid("checkpoint.files", name, allowed));
        }
        let hex = digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if digest.len() != 64 || !hex {
            let field = format!("checkpoint.files.{name}");
            return Err(Error::invalid(field, digest, "a SHA-256 as 64 hex digits"));
        }
    }
    Ok(())
}

impl Training {
    pub async fn report(&self, call: &Call, job: &str, report: Report) -> Result<Reported> {
        let job = self.seen(call, job, &JOB_REPORT).await?;
        report.check()?;
        if let Some(saved) = &report.checkpoint {
            self.is_its_own(&job, report.task, saved).await?;
        }
        let of = resource(&call.place, &job.id.to_string(), false);
        let ctx = call.ctx.clone();
        let owner = job.owner.id;
        let task = TaskId { job: job.id, task: report.task };
        let now = self.db().now();
        let first = self.reports().hear(StartId { task, attempt: report.attempt }, now)?;
        // Whoever repeats a request is told the same again, and that is kept with the entry.
        let counted =
            !first && report.checkpoint.is_none() && ctx.request.idempotency_key.is_none();
        let about = of.clone();
        let write = move |tx: &mut Tx<'_>| {
            let start = jobs::find_start(tx, task, Some(report.attempt))?
                .ok_or_else(|| Error::invalid("attempt", report.attempt, "`FALAJ_ATTEMPT`"))?;
            if ctx.principal.kind != PrincipalKind::System {
                let is_owner = ctx.principal.id == owner;
                let token = ctx.principal.token.as_ref().map(|token| token.id);
                // That of a job acts as its owner, but for that job alone.
                let is_others = match token {
                    Some(token) if Authenticator::is_job_token(tx, token)? => {
                        !has_token(&start, &token.to_string())
                    }
                    _ => false,
                };
                if !is_owner || is_others {
                    let text = "only the job itself and whoever submitted it report about it";
                    return Err(Error::new(&code::FORBIDDEN, text));
                }
            }
            if start.open != 2 {
                let text = format!("attempt {} of the job is over", report.attempt);
                return Err(Error::new(&code::INVALID_STATE, text).at("attempt"));
            }
            let world = start.shown.world_size;
            if report.rank >= world {
                return Err(Error::invalid("rank", report.rank, format!("below {world}")));
            }
            store::put_life(tx, start.id, report.rank, report.step)?;
            let mut whole = false;
            if let Some(saved) = report.checkpoint {
                let step = saved.step;
                // Ranks finish at the same moment: the last of them must see all others.
                tx.lock(&format!("training-checkpoint/{}/{}", task.job, task.task))?;
                let open = store::open_steps(tx, start.id, step)?;
                if open >= MAX_OPEN {
                    let text = format!(
                        "{open} checkpoints of this start are saved by some ranks only; at most \
                         {MAX_OPEN} may be"
                    );
                    return Err(Error::new(&code::CONFLICT, text).at("checkpoint.step"));
                }
                let part = Part { path: saved.path, files: saved.files };
                store::put_part(tx, start.id, (report.rank, step), &part)?;
                whole = store::count_parts(tx, start.id, step)? == world;
                if whole {
                    let parts = store::parts(tx, start.id, step)?;
                    store::count(tx, start.id, step, &parts)?;
                }
            }
            inbox::note(tx, &Note::Reported(task.job))?;
            if counted {
                return Ok(Reported { whole, stopping: start.purpose.is_some() });
            }
            let mut change = Change::new(&JOB_REPORT, &of)
                .detail("task", task.task)
                .detail("attempt", report.attempt)
                .detail("rank", report.rank);
            if whole {
                let told = serde_json::json!({ "job": task.job, "task": task.task });
                change = change.event("job.checkpointed", &told);
            }
            let reported = Reported { whole, stopping: start.purpose.is_some() };
            tx.record(&ctx, change.reply(200, &reported))?;
            Ok(reported)
        };
        let reported = self.db().write(write).await?;
        if counted {
            self.reports().count(&call.ctx, &about, now);
        }
        self.live().wake();
        Ok(reported)
    }

    /// Refuses a checkpoint that is not in the folder of its job. Where that is seen from here, all of it
    /// is there.
    async fn is_its_own(&self, job: &Job, task: u32, saved: &Saved) -> Result<()> {
        let Some(folder) = self.checkpoint_folder(job, task) else {
            let allowed = "absent: the job has no `checkpoint` section";
            return Err(Error::invalid("checkpoint", &saved.path, allowed));
        };
        if !folder::is_below(&folder, &saved.path) {
            let allowed = format!("a path below CHECKPOINT_DIR, {}", folder.display());
            return Err(Error::invalid("checkpoint.path", &saved.path, allowed));
        }
        let pools = self.pool_list();
        let pool = pools.by_name(job.pool.as_str()).and_then(|at| pools.list.get(at));
        if !pool.is_some_and(|pool| pool.is_server) {
            return Ok(());
        }
        let part = Part { path: saved.path.clone(), files: saved.files.clone() };
        match blocking(move || Ok(folder::amiss(&folder, &part))).await? {
            None => Ok(()),
            Some(text) => {
                let allowed = "a folder and plain files that are there";
                Err(Error::invalid("checkpoint.path", text, allowed))
            }
        }
    }

    /// The whole checkpoints of a job, by task, the newest of each first.
    pub async fn checkpoints(
        &self,
        call: &Call,
        job: &str,
        task: Option<u32>,
        query: PageQuery,
    ) -> Result<Page<CheckpointShown>> {
        let job = self.seen(call, job, &JOB_READ).await?;
        let limit = query.limit()?;
        let after = match query.after() {
            "" => None,
            text => Some(
                text.split_once('-')
                    .and_then(|(task, step)| Some((task.parse().ok()?, step.parse().ok()?)))
                    .ok_or_else(|| not_a_page(&query))?,
            ),
        };
        let read = move |tx: &mut Tx<'_>| store::page(tx, job.id, task, after, limit + 1);
        let found = self.db().read(read).await?;
        Ok(Page::cut(found, limit, |it| format!("{}-{}", it.task, it.step)))
    }
}

fn has_token(start: &StartRow, token: &str) -> bool {
    start.token.as_deref().unwrap_or_default().split(',').any(|own| own == token)
}
