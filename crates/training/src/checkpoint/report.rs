//! What ranks report.

use std::collections::BTreeMap;

use falaj_base::{Error, Page, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::store::{self, Checkpoint, Part};
use crate::job::{resource, store as jobs};
use crate::live::inbox::{self, Note};
use crate::name::TaskId;
use crate::{JOB_READ, JOB_REPORT, Training};

const MAX_PATH: usize = 4096;
const MAX_FILES: usize = 10_000;
/// Checkpoints that are shown at most.
const MOST: usize = 1000;

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
    /// The step it is at.
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
        if self.step.is_none() && self.checkpoint.is_none() {
            return Err(Error::invalid("step", "absent", "`step`, `checkpoint` or both"));
        }
        let steps = [self.step, self.checkpoint.as_ref().map(|saved| saved.step)];
        if let Some(step) = steps.into_iter().flatten().find(|step| *step < 0) {
            return Err(Error::invalid("step", step, "0 or more"));
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
        let of = resource(&call.place, &job.id.to_string(), false);
        let ctx = call.ctx.clone();
        let task = TaskId { job: job.id, task: report.task };
        let write = move |tx: &mut Tx<'_>| {
            let start = jobs::find_start(tx, task, Some(report.attempt))?
                .ok_or_else(|| Error::invalid("attempt", report.attempt, "`FALAJ_ATTEMPT`"))?;
            if start.open != 2 {
                let text = format!("attempt {} of the job is over", report.attempt);
                return Err(Error::new(&code::INVALID_STATE, text).at("attempt"));
            }
            let world = start.shown.world_size;
            if report.rank >= world {
                return Err(Error::invalid("rank", report.rank, format!("below {world}")));
            }
            if let Some(step) = report.step {
                store::put_step(tx, start.id, report.rank, step)?;
            }
            let mut whole = false;
            if let Some(saved) = report.checkpoint {
                let step = saved.step;
                // Ranks finish at the same moment: the last of them must see all others.
                tx.lock(&format!("training-checkpoint/{}/{}", task.job, task.task))?;
                let part = Part { path: saved.path, files: saved.files };
                store::put_part(tx, start.id, (report.rank, step), &part)?;
                let parts = store::parts(tx, start.id, step)?;
                whole = u32::try_from(parts.len()).is_ok_and(|count| count == world);
                if whole {
                    store::count(tx, start.id, step, &parts)?;
                }
            }
            inbox::note(tx, &Note::Reported(task.job))?;
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
        self.live().wake();
        Ok(reported)
    }

    /// The whole checkpoints of a job.
    pub async fn checkpoints(
        &self,
        call: &Call,
        job: &str,
        task: Option<u32>,
    ) -> Result<Page<Checkpoint>> {
        let job = self.seen(call, job, &JOB_READ).await?;
        let items = self.db().read(move |tx| store::list(tx, job.id, task, MOST)).await?;
        Ok(Page { items, next_page_token: None })
    }
}
