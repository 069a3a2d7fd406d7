//! Attempts as jobs of Kubernetes, each a pod for every node and in it a container for every rank.
//!
//! How things are told, and why:
//! - *Stop* sets the deadline of its pods to a second. Their nodes then end them as they would at any
//!   deadline: `SIGTERM`, the grace, `SIGKILL`; also if this process dies meanwhile. Removing pods would do the
//!   same and remove their output with them.
//! - *Checkpoint* and *kill* run a line of shell in the pods, which signals the ranks: the API has no other way
//!   to send a signal. Pods that do not answer are removed instead, after what they wrote was copied.
//! - Files that pods see would be another way; they are seen there up to a minute and a half later.
//!
//! Must hold:
//! - A job's name is made of its attempt's, and the cluster takes a name once.
//! - Why an attempt ends is written down, in its folder and on its job, before anything is done about it.
//! - The truth about an end is what became of its containers. What is gone without that is lost.
//! - Secrets are in an object of the cluster that goes with the job, and is removed as soon as it has ended.
//! - An end is told when the output is here: the cluster keeps it only as long as the job.
//! - A pod that somebody removes stays until what became of it is written down: each has a finalizer of ours.
//!
//! The folder is this process's own; nodes do not see it. A job of ours that has no folder here, because
//! another server made it, gets one.

mod act;
mod api;
mod copies;
mod logs;
mod look;
mod names;
mod objects;
mod settings;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use serde_json::{Value, json};

use crate::ends::{END, Ends};
use crate::folder::{self, Folder, away};
use crate::seam::{
    AttemptId, Executor, ExecutorError, Launch, Notice, Observed, Part, Phase, Usage,
};
use crate::shared::{self, Ending};
use crate::{End, plain, shim};
use api::{Api, Fault};
use copies::{Copies, Which};
use look::Lists;
use objects::Kept;
pub use settings::{KubernetesSettings, Toleration, Volume};
use state::{Cause, Seen, Table, Verdict, Why};

const LAUNCH: &str = "launch.json";
/// The cluster has taken it.
const SUBMITTED: &str = "submitted";
const CAUSE: &str = "cause.json";
/// When it was to be killed: milliseconds since 1970.
const KILL: &str = "kill";
const ENGINE: &str = "kubernetes";

/// How soon the cluster is asked again how things are.
const FRESH: Duration = Duration::from_millis(400);
/// How long the output of what has ended may be out of reach before its end is told without.
const OUTPUT_WITHIN: Duration = Duration::from_mins(2);
/// A wait is never longer: nothing tells us of changes.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct KubernetesExecutor {
    folder: Folder,
    settings: KubernetesSettings,
    api: Api,
    ends: Ends,
    copies: Copies,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// How often something was changed.
    changes: u64,
    lists: Option<(Instant, Arc<Lists>)>,
    /// When pods were killed, by their names.
    killed: HashMap<String, Instant>,
}

/// What keeps an attempt from being looked at.
#[derive(Debug)]
enum Trouble {
    /// Its folder: nothing that concerns others.
    Folder(ExecutorError),
    Engine(ExecutorError),
}

impl From<Trouble> for ExecutorError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Folder(error) | Trouble::Engine(error) => error,
        }
    }
}

impl KubernetesExecutor {
    pub fn new(
        folder: impl AsRef<Path>,
        settings: KubernetesSettings,
    ) -> Result<Self, ExecutorError> {
        if !names::is_label(&settings.owner) {
            return Err(ExecutorError::Refused(format!(
                "owner: `{}` is no label: letters, digits and ._-, 63 at most, a letter or digit at both ends",
                settings.owner
            )));
        }
        let api = Api::new(&settings)?;
        let folder = Folder::open(folder.as_ref())?;
        let ends = Ends::new(ENGINE, "secrets");
        let (copies, known) = (Copies::default(), Mutex::default());
        Ok(Self { folder, settings, api, ends, copies, known })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the cluster says is asked anew from now on.
    fn has_changed(&self) {
        let mut known = self.known();
        known.lists = None;
        known.changes += 1;
    }

    /// Jobs and pods as they are, or were a moment ago.
    fn lists(&self) -> Result<Arc<Lists>, Fault> {
        let fresh = |at: &Instant| at.elapsed() < FRESH;
        if let Some((_, lists)) = self.known().lists.as_ref().filter(|(at, _)| fresh(at)) {
            return Ok(lists.clone());
        }
        let (begun, changes) = (Instant::now(), self.known().changes);
        let labels = format!("{}={}", names::OWNER, self.settings.owner);
        // Jobs before pods: a pod that a job has counted is then in the later list, since ours are kept until
        // their end was read.
        let jobs = self.api.list::<Job>(&labels)?;
        let pods = self.api.list::<Pod>(&labels)?;
        let lists = Arc::new(Lists::of(jobs, pods));
        let mut known = self.known();
        // What was changed meanwhile may not be in it: to whoever asks next it would be missing.
        if known.changes == changes {
            known.lists = Some((begun, lists.clone()));
        }
        Ok(lists)
    }

    /// Gives jobs of ours a folder that have none here.
    fn adopt(
        &self,
        lists: &Lists,
        known: &HashSet<&AttemptId>,
    ) -> Result<HashSet<AttemptId>, ExecutorError> {
        let mut adopted = HashSet::new();
        for (attempt, job) in lists.attempts() {
            if known.contains(&attempt) || job.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let Some(kept) = look::kept(job) else { continue };
            self.folder.claim(&attempt, |folder| {
                plain::put(&folder.join(LAUNCH), &kept)?;
                plain::mark(&folder.join(SUBMITTED))
            })?;
            adopted.insert(attempt);
        }
        Ok(adopted)
    }

    /// Looks at one attempt, and does what is to be done about it.
    fn find(
        &self,
        attempt: &AttemptId,
        submitted: bool,
        lists: &Lists,
    ) -> Result<Option<Observed>, Trouble> {
        let folder = self.folder.of(attempt);
        let failed = |error: io::Error| Trouble::Folder(away(&folder, &error));
        let job = lists.job(attempt);
        if !submitted {
            if job.is_none() {
                // Claimed by a process that died before the cluster was asked.
                return Ok(None);
            }
            plain::mark(&folder.join(SUBMITTED)).map_err(failed)?;
        }
        let kept: Option<Kept> = plain::get(&folder.join(LAUNCH), plain::LAUNCH).map_err(failed)?;
        let Some(kept) = kept.or_else(|| job.and_then(look::kept)) else {
            return self.tell_end(attempt, End::Lost, None, shim::now(), lists).map(Some);
        };
        let cause: Option<Cause> =
            plain::get(&folder.join(CAUSE), plain::RECORD).map_err(failed)?;
        let cause = cause.or_else(|| job.and_then(look::cause));
        let kill = shared::number(&folder.join(KILL)).map_err(failed)?;
        let kill = kill.or_else(|| job.and_then(look::kill));
        let table = Table::of(&kept, &lists.pods(attempt));
        let now = shim::now();
        let mut seen = Seen { kept: &kept, job, cause: cause.as_ref(), kill, now };
        let found;
        if seen.cause.is_none()
            && let Some(why) = state::cause(&seen, &table)
        {
            found = Cause { why, at: now };
            self.note_cause(attempt, &found)?;
            seen.cause = Some(&found);
        }
        self.copies.note(attempt, &kept, &table, &folder, self.settings.keep_output);
        let (end, started, ended) = match state::verdict(&seen, &table) {
            Verdict::Over { end, started, ended } => (end, started, ended),
            Verdict::Open { phase, started, acts } => {
                self.act(attempt, &table, &kept, &acts);
                if let Err(fault) = self.copies.copy(&self.api, attempt, Which::Due) {
                    tracing::debug!(%attempt, ?fault, "output cannot be copied now");
                }
                let found = self.ends.found(&self.folder, attempt, phase, started, None);
                return found.map(Some).map_err(failed);
            }
        };
        if let Some(Why::Rank { rank, text: Some(text), .. }) = seen.cause.map(|cause| &cause.why) {
            let text = format!("falaj: Kubernetes: {text}\n");
            logs::say(&folder, *rank, &text).map_err(failed)?;
        }
        let copied = self.copies.copy(&self.api, attempt, Which::All);
        if !copied.is_ok_and(|all| all) && self.ends.odd_for(attempt) < OUTPUT_WITHIN {
            let found = self.ends.found(&self.folder, attempt, Phase::Running, started, None);
            return found.map(Some).map_err(failed);
        }
        self.tell_end(attempt, end, started, ended, lists).map(Some)
    }

    /// Writes an end down. Nobody needs the attempt's secrets any more.
    fn tell_end(
        &self,
        attempt: &AttemptId,
        end: End,
        started: Option<u64>,
        ended: u64,
        lists: &Lists,
    ) -> Result<Observed, Trouble> {
        self.ends.is_fine(attempt);
        let mut ending = Ending::default();
        ending.ended = ended;
        let remove = matches!(end, End::Preempted | End::Lost);
        let phase = Phase::Ended(end);
        let found = self.ends.found(&self.folder, attempt, phase, started, Some(&ending));
        let found =
            found.map_err(|error| Trouble::Folder(away(&self.folder.of(attempt), &error)))?;
        self.copies.forget(attempt);
        // Should some of this fail, it is done when the attempt is forgotten.
        let secret = self.api.delete::<Secret>(&names::job(attempt), None);
        // One that has not come to its own end may make pods again, and nothing is to be had from it.
        let job = if remove { self.api.delete::<Job>(&names::job(attempt), None) } else { Ok(()) };
        let released = self.release(&lists.pods(attempt));
        for fault in [secret, job, released].into_iter().filter_map(Result::err) {
            tracing::debug!(%attempt, ?fault, "something of it is still there");
        }
        Ok(found)
    }

    /// Lets pods go whose end is written down.
    fn release(&self, pods: &[&Pod]) -> Result<(), Fault> {
        let kept = pods.iter().filter(|pod| look::is_kept(pod));
        let names: Vec<&str> = kept.filter_map(|pod| pod.metadata.name.as_deref()).collect();
        act::side_by_side(&names, |name| self.api.release(name)).into_iter().collect()
    }

    /// Writes down why an attempt ends: here, and where another server would look.
    fn note_cause(&self, attempt: &AttemptId, cause: &Cause) -> Result<(), Trouble> {
        let folder = self.folder.of(attempt);
        plain::put_durably(&folder.join(CAUSE), cause)
            .map_err(|error| Trouble::Folder(away(&folder, &error)))?;
        let text = json!(cause).to_string();
        self.write_on_job(attempt, &json!({names::CAUSE: text}))
            .map_err(|fault| Trouble::Engine(fault.away()))
    }

    fn write_on_job(&self, attempt: &AttemptId, notes: &Value) -> Result<(), Fault> {
        self.has_changed();
        let change = json!({"metadata": {"annotations": notes}});
        self.api.patch::<Job>(&names::job(attempt), &change).map(drop)
    }

    /// Makes everything of an attempt, the job last: from then on all that it needs is there.
    fn submit(&self, launch: &Launch, kept: &Kept) -> Result<(), Fault> {
        let name = names::job(&launch.attempt);
        let secret = objects::secret(launch, &self.settings);
        match self.api.create::<Secret>(secret.clone()) {
            // Left by a process that died; its token may be another.
            Err(Fault::Present) => {
                self.api.patch::<Secret>(&name, &secret)?;
            }
            made => drop(made?),
        }
        if let Some(service) = objects::service(launch, &self.settings, kept) {
            match self.api.create::<Service>(service) {
                Ok(_) | Err(Fault::Present) => {}
                Err(fault) => return Err(fault),
            }
        }
        match self.api.create::<Job>(objects::job(launch, &self.settings, kept)) {
            Ok(job) if job.spec.as_ref().is_none_or(|it| it.backoff_limit_per_index.is_none()) => {
                // It would start pods again that have failed.
                return Err(Fault::Never(
                    "Kubernetes: the cluster is too old: 1.29 is needed".to_owned(),
                ));
            }
            Ok(job) => self.belong(&job, kept),
            Err(Fault::Present) => {}
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Lets the other objects go with the job. Should it fail, they go when the attempt is forgotten.
    fn belong(&self, job: &Job, kept: &Kept) {
        let (Some(name), Some(uid)) = (&job.metadata.name, &job.metadata.uid) else { return };
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid});
        let change = json!({"metadata": {"ownerReferences": [owner]}});
        let secret = self.api.patch::<Secret>(name, &change);
        let service =
            if kept.nodes > 1 { self.api.patch::<Service>(name, &change) } else { Ok(true) };
        for fault in [secret, service].into_iter().filter_map(Result::err) {
            tracing::debug!(job = name, ?fault, "an object is not its job's");
        }
    }

    /// Removes everything of an attempt from the cluster.
    fn clear(&self, attempt: &AttemptId) -> Result<(), Fault> {
        let name = names::job(attempt);
        self.has_changed();
        self.api.delete::<Job>(&name, None)?;
        self.api.delete::<Service>(&name, None)?;
        self.api.delete::<Secret>(&name, None)?;
        let pods = self.api.list::<Pod>(&format!("{}={name}", names::ATTEMPT))?;
        self.release(&pods.iter().collect::<Vec<_>>())?;
        // Whoever removed the job may have left its pods to themselves.
        let orphans = pods.iter().filter(|pod| pod.metadata.owner_references.is_none());
        for pod in orphans.filter_map(|pod| pod.metadata.name.as_deref()) {
            self.api.delete::<Pod>(pod, Some(1))?;
        }
        Ok(())
    }

    /// The job of an attempt, asked for now. One of that name that is another's is a refusal.
    fn job(&self, attempt: &AttemptId) -> Result<Option<Job>, ExecutorError> {
        let name = names::job(attempt);
        let job = self.api.get::<Job>(&name).map_err(Fault::away)?;
        match job {
            Some(job) if look::attempt(&job.metadata).as_ref() != Some(attempt) => {
                Err(ExecutorError::Refused(format!("Kubernetes: job {name} is not ours")))
            }
            job => Ok(job),
        }
    }
}

impl Executor for KubernetesExecutor {
    fn refuses(&self, launch: &Launch) -> Option<String> {
        objects::refuses(launch, &self.settings)
    }

    fn hosts(&self, attempt: &AttemptId, nodes: usize) -> Option<Vec<String>> {
        if nodes == 1 {
            return Some(vec!["127.0.0.1".to_owned()]);
        }
        Some((0..nodes).map(|node| names::host(attempt, node)).collect())
    }

    fn launch(&self, launch: &Launch) -> Result<(), ExecutorError> {
        if let Some(why) = self.refuses(launch) {
            return Err(ExecutorError::Refused(why));
        }
        let kept = Kept::of(launch).map_err(ExecutorError::Refused)?;
        let target = self.folder.of(&launch.attempt);
        let failed = |error: io::Error| away(&target, &error);
        self.folder.claim(&launch.attempt, |folder| plain::put(&folder.join(LAUNCH), &kept))?;
        if plain::is_there(&target.join(SUBMITTED)) || plain::is_there(&target.join(END)) {
            return Ok(());
        }
        // Nobody has written down that it was taken; that does not mean that it was not. And one that was
        // told to end before it began does not begin.
        let is_done = plain::is_there(&target.join(CAUSE)) || self.job(&launch.attempt)?.is_some();
        if !is_done && let Err(fault) = self.submit(launch, &kept) {
            let error = ExecutorError::from(fault);
            // If it could not be asked, it may have taken it all the same.
            if matches!(error, ExecutorError::Refused(_)) {
                if let Err(fault) = self.clear(&launch.attempt) {
                    tracing::debug!(attempt = %launch.attempt, ?fault, "something of it is left");
                }
                self.folder.remove(&launch.attempt)?;
            }
            return Err(error);
        }
        // Before it is written down: who reads that asks the cluster after it.
        self.has_changed();
        plain::mark(&target.join(SUBMITTED)).map_err(failed)
    }

    fn observe(&self) -> Result<Vec<Observed>, ExecutorError> {
        let mut found = Vec::new();
        let mut open = Vec::new();
        let attempts = self.folder.attempts()?;
        for attempt in &attempts {
            match self.ends.of(&self.folder, attempt) {
                Ok(Some(ended)) => found.push(ended),
                // Before the cluster is asked: what is submitted after that is not missing from its answer.
                Ok(None) => {
                    let mark = self.folder.of(attempt).join(SUBMITTED);
                    open.push((attempt.clone(), plain::is_there(&mark)));
                }
                Err(error) => found.push(folder::unreadable(attempt.clone(), &error, ENGINE)),
            }
        }
        let lists = match self.lists() {
            Ok(lists) => lists,
            // What has ended is known without it.
            Err(fault) if open.is_empty() => {
                tracing::debug!(?fault, "the cluster cannot be asked");
                return Ok(found);
            }
            Err(fault) => return Err(fault.away()),
        };
        let known: HashSet<&AttemptId> = attempts.iter().collect();
        let adopted = self.adopt(&lists, &known)?;
        for pod in lists.orphans(|one| known.contains(one) || adopted.contains(one)) {
            if let Err(fault) = self.api.release(pod) {
                tracing::debug!(pod, ?fault, "a pod of nobody is still there");
            }
        }
        open.extend(adopted.into_iter().map(|attempt| (attempt, true)));
        for (attempt, submitted) in open {
            match self.find(&attempt, submitted, &lists) {
                Ok(observed) => found.extend(observed),
                Err(Trouble::Engine(error)) => return Err(error),
                Err(Trouble::Folder(error)) => {
                    found.push(folder::unreadable(attempt, &error, ENGINE));
                }
            }
        }
        Ok(found)
    }

    fn tell(&self, attempt: &AttemptId, notice: Notice) -> Result<(), ExecutorError> {
        let folder = self.folder.known(attempt)?;
        if self.ends.of(&self.folder, attempt)?.is_some() {
            return Ok(());
        }
        if notice == Notice::Checkpoint {
            return self.checkpoint(attempt);
        }
        let failed = |error: io::Error| away(&folder, &error);
        let now = shim::now();
        if notice == Notice::Kill && shared::number(&folder.join(KILL)).map_err(failed)?.is_none() {
            plain::put_bytes(&folder.join(KILL), now.to_string().as_bytes(), 0o600)
                .map_err(failed)?;
            let notes = json!({names::KILL: now.to_string()});
            self.write_on_job(attempt, &notes).map_err(Fault::away)?;
        }
        let noted: Option<Cause> =
            plain::get(&folder.join(CAUSE), plain::RECORD).map_err(failed)?;
        if noted.is_none() {
            self.note_cause(attempt, &Cause { why: Why::Stop, at: now })?;
        }
        // What follows from that is done at every look, and now.
        self.has_changed();
        let submitted = plain::is_there(&folder.join(SUBMITTED));
        let lists = self.lists().map_err(Fault::away)?;
        self.find(attempt, submitted, &lists)?;
        Ok(())
    }

    fn output(
        &self,
        attempt: &AttemptId,
        rank: u32,
        from: u64,
        most: usize,
    ) -> Result<Vec<u8>, ExecutorError> {
        self.freshen(attempt, rank)?;
        self.folder.output(attempt, rank, from, most)
    }

    fn output_part(
        &self,
        attempt: &AttemptId,
        rank: u32,
        from: u64,
        most: usize,
    ) -> Result<Part, ExecutorError> {
        self.freshen(attempt, rank)?;
        self.folder.output_part(attempt, rank, from, most)
    }

    fn usage(&self, attempt: &AttemptId) -> Result<Option<Usage>, ExecutorError> {
        self.folder.known(attempt).map(|_| None)
    }

    fn stacks(&self, attempt: &AttemptId) -> Result<Option<String>, ExecutorError> {
        self.folder.known(attempt).map(|_| None)
    }

    fn forget(&self, attempt: &AttemptId) -> Result<(), ExecutorError> {
        if !plain::is_there(&self.folder.of(attempt)) {
            return Ok(());
        }
        self.ends.require(&self.folder, attempt, || {
            Ok(self.observe()?.into_iter().find(|one| one.attempt == *attempt))
        })?;
        // Before the folder: a job without one would be taken in again.
        self.clear(attempt).map_err(Fault::away)?;
        self.folder.remove(attempt)?;
        self.ends.forget(attempt);
        self.copies.forget(attempt);
        Ok(())
    }

    fn wait(&self, at_most: Duration) {
        std::thread::sleep(at_most.min(LOOK));
    }
}

impl KubernetesExecutor {
    /// Copies what a rank has written since the last time. What is here is read in any case.
    fn freshen(&self, attempt: &AttemptId, rank: u32) -> Result<(), ExecutorError> {
        self.folder.known(attempt)?;
        if let Err(fault) = self.copies.copy(&self.api, attempt, Which::Of(rank)) {
            tracing::debug!(%attempt, rank, ?fault, "output cannot be copied now");
        }
        Ok(())
    }
}
