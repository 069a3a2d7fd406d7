//! Attempts as jobs of Ray, through its Job API.
//!
//! A job runs `launcher.py` in the attempt's folder, which starts the ranks: one as its own child,
//! several as actors in a placement group. It is told things by files in that folder, because Ray's own
//! stop leaves three seconds, and knows no other signal.
//!
//! Must hold:
//! - A job's name in Ray is the attempt's, which Ray takes once; and the launcher starts nothing if another
//!   launcher has been there.
//! - The truth about an end is the file that the launcher leaves. Without it, no job has succeeded.
//! - Secrets travel in a file that only this user can read, and that the launcher removes: what is given
//!   to Ray itself is shown on its pages to whoever can open them.
//!
//! The folder must be one that all nodes see under the same path, and write to.

mod api;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use falaj_base::Secret;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::ends::{END, Ends};
use crate::folder::{self, Folder, away};
use crate::plain;
use crate::seam::{AttemptId, Executor, ExecutorError, Launch, Notice, Observed, Phase, Usage};
use crate::shared::{self, Awaited, Ending, LONGEST_GANG_GRACE};
use crate::{End, RankEnd, check, shim};
use api::{Api, Job};

const LAUNCHER: &str = include_str!("launcher.py");
const LAUNCH: &str = "launch.json";
const SECRETS: &str = "secrets.json";
/// Ray has taken it.
const SUBMITTED: &str = "submitted";
const OWNER: &str = "owner";
/// Why the launcher cannot start its ranks yet.
const WAITING: &str = "waiting";
const KILL: &str = "kill";
const CHECKPOINT: &str = "checkpoint";
const ENGINE: &str = "ray";

/// How long an end may be missing when Ray says that there is one. Files of other machines are seen late.
const MISSING: Duration = Duration::from_secs(15);
/// The most of what a launcher says it waits for.
const LONGEST_REASON: u64 = 4096;

/// Which Ray.
#[derive(Clone, Debug)]
pub struct RaySettings {
    /// Its dashboard, such as `http://ray-head:8265`.
    pub url: String,
    /// For clusters that ask for one.
    pub token: Option<Secret>,
    /// The Python on its nodes that has Ray.
    pub python: String,
}

impl Default for RaySettings {
    fn default() -> Self {
        Self { url: "http://127.0.0.1:8265".to_owned(), token: None, python: "python".to_owned() }
    }
}

#[derive(Debug)]
pub struct RayExecutor {
    folder: Folder,
    python: String,
    api: Api,
    ends: Ends,
    awaited: Mutex<Awaited>,
}

/// What keeps an attempt from being looked at.
#[derive(Debug)]
enum Fault {
    /// Its folder: nothing that concerns others.
    Folder(ExecutorError),
    Engine(ExecutorError),
}

impl From<Fault> for ExecutorError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Folder(error) | Fault::Engine(error) => error,
        }
    }
}

/// Of `launch.json`, how many ranks there are; the rest is skipped as it is read.
#[derive(Debug, Deserialize)]
struct KeptLaunch {
    ranks: Vec<serde::de::IgnoredAny>,
}

impl RayExecutor {
    pub fn new(folder: impl AsRef<Path>, settings: RaySettings) -> Result<Self, ExecutorError> {
        let api = Api::new(&settings.url, settings.token)?;
        let folder = Folder::open(folder.as_ref())?;
        let ends = Ends::new(ENGINE, SECRETS);
        Ok(Self { folder, python: settings.python, api, ends, awaited: Mutex::default() })
    }

    fn find(&self, attempt: &AttemptId) -> Result<Option<Observed>, Fault> {
        let folder = self.folder.of(attempt);
        let failed = |error: io::Error| Fault::Folder(away(&folder, &error));
        let submitted = plain::is_there(&folder.join(SUBMITTED));
        let started = shared::number(&folder.join(shared::STARTED)).map_err(failed)?;
        let stop = shared::number(&folder.join(shared::STOP)).map_err(failed)?;
        let ending = Ending::read(&folder).map_err(failed)?;
        let phase = if let Some(ending) = &ending {
            let launch: Option<KeptLaunch> =
                plain::get(&folder.join(LAUNCH), plain::LAUNCH).map_err(failed)?;
            let ranks = launch.map_or(1, |launch| launch.ranks.len()).min(check::MOST_RANKS);
            Phase::Ended(ending.end(u32::try_from(ranks).unwrap_or(u32::MAX), stop))
        } else {
            match self.api.job(attempt.as_str()).map_err(Fault::Engine)? {
                // Claimed by a process that died before Ray was asked.
                None if !submitted => return Ok(None),
                job => self
                    .phase(attempt, job, started.is_some(), stop.is_some())
                    .map_err(Fault::Folder)?,
            }
        };
        let found = self.ends.found(&self.folder, attempt, phase, started, ending.as_ref());
        found.map(Some).map_err(failed)
    }

    /// What Ray says, where the launcher has left no end.
    fn phase(
        &self,
        attempt: &AttemptId,
        job: Option<Job>,
        started: bool,
        stop: bool,
    ) -> Result<Phase, ExecutorError> {
        let running = if started { Phase::Running } else { self.waiting(attempt, job.as_ref())? };
        let end = match job.as_ref().map(|job| job.status.as_str()) {
            Some("PENDING" | "RUNNING") => {
                self.ends.is_fine(attempt);
                return Ok(running);
            }
            _ if stop => End::Stopped,
            // The launcher itself could not run, or broke before it started anything.
            Some("FAILED") if !started => End::Failed { rank: 0, how: RankEnd::NotStarted },
            _ => End::Lost,
        };
        if self.ends.odd_for(attempt) < MISSING && started {
            return Ok(running);
        }
        if let Some(job) = &job
            && end != End::Stopped
        {
            self.explain(attempt, job)?;
        }
        Ok(Phase::Ended(end))
    }

    fn waiting(&self, attempt: &AttemptId, job: Option<&Job>) -> Result<Phase, ExecutorError> {
        let folder = self.folder.of(attempt);
        let text = plain::read(&folder.join(WAITING), LONGEST_REASON)
            .map_err(|error| away(&folder, &error))?;
        let own = text.map(|text| String::from_utf8_lossy(&text).into_owned());
        let pending = job.filter(|job| job.status == "PENDING");
        Ok(Phase::Pending(own.or_else(|| pending.and_then(|job| job.message.clone()))))
    }

    /// Says in the output of the first rank what Ray says of a job that never got so far.
    fn explain(&self, attempt: &AttemptId, job: &Job) -> Result<(), ExecutorError> {
        let path = self.folder.of(attempt).join(folder::log_name(0));
        if plain::is_there(&path) {
            return Ok(());
        }
        let code = job.driver_exit_code.map(|code| format!(" ({code})")).unwrap_or_default();
        let text = job.message.as_deref().unwrap_or("no reason was given");
        let text = format!("falaj: Ray ended it{code}: {text}\n");
        plain::put_bytes(&path, text.as_bytes(), 0o600).map_err(|error| away(&path, &error))
    }
}

/// Whether a launcher runs it, or has: it leaves a link that leads nowhere.
fn has_begun(folder: &Path) -> bool {
    std::fs::symlink_metadata(folder.join(OWNER)).is_ok()
}

/// What the launcher reads: everything but secrets.
fn launch_file(launch: &Launch) -> Value {
    let ranks: Vec<Value> = launch
        .ranks
        .iter()
        .map(|rank| json!({"node": rank.node, "gpus": rank.gpus, "env": rank.env}))
        .collect();
    json!({
        "attempt": launch.attempt.as_str(),
        "command": launch.command,
        "folder": launch.folder,
        "env": launch.env,
        "has_secrets": !launch.secrets.is_empty(),
        "ranks": ranks,
        "shares_gpus": launch.shares_gpus,
        "limits": {
            "cpu_millis": launch.limits.cpu_millis,
            "memory_mib": launch.limits.memory_mib,
        },
        "time_ms": launch.limits.time.map(|time| time.as_millis()),
        "grace_ms": launch.grace.as_millis(),
        "gang_grace_ms": launch.gang_grace.min(LONGEST_GANG_GRACE).as_millis(),
    })
}

/// What Ray is asked for. The resources of several ranks are the launcher's to ask for.
fn submission(launch: &Launch, python: &str, folder: &Path) -> Value {
    let launcher = folder.join("launcher.py").display().to_string();
    let mut job = json!({
        "submission_id": launch.attempt.as_str(),
        "entrypoint": format!("{} {}", shared::quoted(python), shared::quoted(&launcher)),
        "metadata": {"name": launch.name, "made_by": "falaj"},
    });
    if let [rank] = launch.ranks.as_slice() {
        let limits = &launch.limits;
        if limits.cpu_millis > 0 {
            job["entrypoint_num_cpus"] = json!(f64::from(limits.cpu_millis) / 1000.0);
        }
        if limits.memory_mib > 0 {
            job["entrypoint_memory"] = json!(u64::from(limits.memory_mib) << 20);
        }
        if !rank.gpus.is_empty() {
            job["entrypoint_num_gpus"] = json!(rank.gpus.len());
        }
    }
    job
}

fn shown(secrets: &BTreeMap<String, Secret>) -> io::Result<Zeroizing<Vec<u8>>> {
    let shown: BTreeMap<&str, &str> =
        secrets.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    Ok(Zeroizing::new(serde_json::to_vec(&shown)?))
}

impl Executor for RayExecutor {
    fn refuses(&self, launch: &Launch) -> Option<String> {
        check::refuses(launch)
    }

    fn launch(&self, launch: &Launch) -> Result<(), ExecutorError> {
        if let Some(why) = self.refuses(launch) {
            return Err(ExecutorError::Refused(why));
        }
        let target = self.folder.of(&launch.attempt);
        let failed = |error: io::Error| away(&target, &error);
        self.folder.claim(&launch.attempt, |folder| {
            plain::put(&folder.join(LAUNCH), &launch_file(launch))?;
            plain::put_bytes(&folder.join("launcher.py"), LAUNCHER.as_bytes(), 0o600)?;
            std::fs::create_dir(folder.join("work"))
        })?;
        if plain::is_there(&target.join(SUBMITTED)) || plain::is_there(&target.join(END)) {
            return Ok(());
        }
        if !launch.secrets.is_empty() && !has_begun(&target) {
            let bytes = shown(&launch.secrets).map_err(failed)?;
            plain::put_bytes(&target.join(SECRETS), &bytes, 0o600).map_err(failed)?;
        }
        match self.api.submit(&submission(launch, &self.python, &target)) {
            Ok(()) => plain::mark(&target.join(SUBMITTED)).map_err(failed),
            Err(error) => {
                // If it could not be asked, it may have taken it all the same: then all it needs is there.
                if matches!(error, ExecutorError::Refused(_)) {
                    self.folder.remove(&launch.attempt)?;
                }
                Err(error)
            }
        }
    }

    fn observe(&self) -> Result<Vec<Observed>, ExecutorError> {
        let mut found = Vec::new();
        let mut awaited = Awaited::default();
        for attempt in self.folder.attempts()? {
            let observed = match self.ends.of(&self.folder, &attempt) {
                Ok(Some(ended)) => Ok(Some(ended)),
                Ok(None) => self.find(&attempt),
                Err(error) => Err(Fault::Folder(error)),
            };
            let observed = match observed {
                Ok(observed) => observed,
                Err(Fault::Engine(error)) => return Err(error),
                Err(Fault::Folder(error)) => Some(folder::unreadable(attempt, &error, ENGINE)),
            };
            if let Some(Observed { attempt, phase: Phase::Pending(_) | Phase::Running, .. }) =
                &observed
            {
                awaited.add(self.folder.of(attempt));
            }
            found.extend(observed);
        }
        Awaited::replace(&self.awaited, awaited);
        Ok(found)
    }

    fn tell(&self, attempt: &AttemptId, notice: Notice) -> Result<(), ExecutorError> {
        let folder = self.folder.known(attempt)?;
        let failed = |error: io::Error| away(&folder, &error);
        if self.ends.of(&self.folder, attempt)?.is_some()
            || Ending::read(&folder).map_err(failed)?.is_some()
        {
            return Ok(());
        }
        if notice == Notice::Checkpoint {
            // Each time another file, so that each time is seen.
            let now = shim::now().to_string();
            return plain::put_bytes(&folder.join(CHECKPOINT), now.as_bytes(), 0o600)
                .map_err(failed);
        }
        shared::note_stop(&folder).map_err(failed)?;
        if notice == Notice::Kill {
            plain::mark(&folder.join(KILL)).map_err(failed)?;
        }
        // One whose launcher has not begun has nothing to save.
        if has_begun(&folder) { Ok(()) } else { self.api.stop(attempt.as_str()) }
    }

    fn output(
        &self,
        attempt: &AttemptId,
        rank: u32,
        from: u64,
        most: usize,
    ) -> Result<Vec<u8>, ExecutorError> {
        self.folder.output(attempt, rank, from, most)
    }

    fn usage(&self, attempt: &AttemptId) -> Result<Option<Usage>, ExecutorError> {
        let folder = self.folder.known(attempt)?;
        let failed = |error: io::Error| away(&folder, &error);
        let launch: Option<KeptLaunch> =
            plain::get(&folder.join(LAUNCH), plain::LAUNCH).map_err(failed)?;
        let ranks = launch.map_or(1, |launch| launch.ranks.len());
        shared::usage(&folder, u32::try_from(ranks).unwrap_or(u32::MAX)).map_err(failed)
    }

    fn stacks(&self, attempt: &AttemptId) -> Result<Option<String>, ExecutorError> {
        self.folder.known(attempt).map(|_| None)
    }

    fn forget(&self, attempt: &AttemptId) -> Result<(), ExecutorError> {
        if !plain::is_there(&self.folder.of(attempt)) {
            return Ok(());
        }
        self.ends.require(&self.folder, attempt, || Ok(self.find(attempt)?))?;
        // Ray keeps jobs as long as it lives. If it is away, it keeps this one.
        let _ = self.api.delete(attempt.as_str());
        self.folder.remove(attempt)?;
        self.ends.forget(attempt);
        Ok(())
    }

    fn wait(&self, at_most: Duration) {
        Awaited::wait(&self.awaited, at_most);
    }
}
