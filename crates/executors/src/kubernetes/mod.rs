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
//! - The job is made first, and everything else belongs to it: whatever happens to this process, it goes with the job.
//!   One that is not whole yet, because somebody died in between, is made whole by the next launch; if none comes,
//!   it is removed.
//! - Why an attempt ends is written down, in its folder and on its job, before anything is done about it.
//! - The truth about an end is what became of its containers. What is gone without that is lost.
//! - Secrets are in an object of the cluster that goes with the job, and is removed as soon as it has ended.
//! - An end is told when the output is here: the cluster keeps it only as long as the job.
//! - A pod that somebody removes stays until what became of it is written down: each has a finalizer of ours.
//!
//! The folder is this process's own; nodes do not see it. A job of ours that has no folder here, because
//! another server made it, gets one.

mod act;
mod annotate;
mod api;
mod copies;
mod known;
mod logs;
mod look;
mod make;
mod names;
mod objects;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod usage;
mod watch;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use crate::ends::{END, Ends};
use crate::folder::{self, Folder, away};
use crate::seam::{
    AttemptId, Executor, ExecutorError, Launch, Notice, Observed, Part, Phase, Usage,
};
use crate::shared::{self, Ending};
use crate::{End, plain, shim};
pub use annotate::{ClusterObject, annotate};
use api::{Api, Fault};
use copies::{Copies, Which};
use known::{FRESH, Known};
use look::Lists;
pub use names::owner;
use objects::Kept;
pub use settings::{KubernetesSettings, Toleration, Volume};
use state::{Cause, Seen, Table, Verdict, Why};
use usage::Meters;
use watch::Watch;

const LAUNCH: &str = "launch.json";
/// The cluster has taken it.
const SUBMITTED: &str = "submitted";
const CAUSE: &str = "cause.json";
/// When it was to be killed: milliseconds since 1970.
const KILL: &str = "kill";
/// The nodes that were seen to have ended by themselves.
const SETTLED: &str = "settled.json";
const ENGINE: &str = "kubernetes";

/// How long the output of what has ended may be out of reach before its end is told without.
const OUTPUT_WITHIN: Duration = Duration::from_mins(2);
/// How long copying output may take at one look, at all attempts, and for one that somebody asks for.
const COPIED_WITHIN: Duration = Duration::from_secs(5);
/// How long a job may be half made before it is taken for left behind.
const HALF_MADE: Duration = Duration::from_mins(10);
/// A wait is never longer: there are times to be kept, and not every cluster tells us of changes.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct KubernetesExecutor {
    folder: Folder,
    settings: KubernetesSettings,
    api: Api,
    ends: Ends,
    copies: Copies,
    watch: Arc<Watch>,
    meters: Meters,
    known: Mutex<Known>,
    /// Held by whoever asks for everything, so that others who want the same wait for that.
    asking: Mutex<()>,
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
        let mut settings = settings;
        settings.former_owner =
            settings.former_owner.filter(|it| names::is_label(it) && *it != settings.owner);
        let api = Api::new(&settings)?;
        let folder = Folder::open(folder.as_ref())?;
        let ends = Ends::new(ENGINE, "secrets");
        let (copies, watch) = (Copies::default(), Arc::default());
        let (known, asking) = (Mutex::default(), Mutex::default());
        let meters = Meters::default();
        Ok(Self { folder, settings, api, ends, copies, watch, meters, known, asking })
    }

    /// Gives jobs of ours a folder that have none here; whether each is whole.
    fn adopt(
        &self,
        lists: &Lists,
        known: &HashSet<&AttemptId>,
    ) -> Result<HashMap<AttemptId, bool>, ExecutorError> {
        let mut adopted = HashMap::new();
        for (attempt, job) in lists.attempts() {
            if known.contains(&attempt) || job.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let Some(kept) = look::kept(job) else { continue };
            self.folder.claim(&attempt, |folder| {
                plain::put(&folder.join(LAUNCH), &kept)?;
                // What was decided about it stays so.
                if let Some(cause) = look::cause(job) {
                    plain::put_durably(&folder.join(CAUSE), &cause)?;
                }
                if lists.is_whole(job) { plain::mark(&folder.join(SUBMITTED)) } else { Ok(()) }
            })?;
            adopted.insert(attempt, lists.is_whole(job));
        }
        Ok(adopted)
    }

    /// Looks at one attempt, and does what is to be done about it. Output may be copied until then.
    fn find(
        &self,
        attempt: &AttemptId,
        submitted: bool,
        lists: &Lists,
        until: Instant,
    ) -> Result<Option<Observed>, Trouble> {
        let folder = self.folder.of(attempt);
        let failed = |error: io::Error| Trouble::Folder(away(&folder, &error));
        let job = lists.job(attempt);
        if job.is_some() {
            self.known().listed.insert(attempt.clone());
        }
        let cause: Option<Cause> =
            plain::get(&folder.join(CAUSE), plain::RECORD).map_err(failed)?;
        let cause = cause.or_else(|| job.and_then(look::cause));
        if !submitted {
            match job {
                // Claimed by a process that died before the cluster was asked.
                None => return Ok(None),
                Some(job) if !look::is_whole(job) && cause.is_none() => {
                    return self.half_made(attempt).map(|()| None);
                }
                Some(_) => plain::mark(&folder.join(SUBMITTED)).map_err(failed)?,
            }
        }
        let kept: Option<Kept> = plain::get(&folder.join(LAUNCH), plain::LAUNCH).map_err(failed)?;
        let Some(kept) = kept.or_else(|| job.and_then(look::kept)) else {
            return self.tell_end(attempt, End::Lost, None, shim::now(), lists).map(Some);
        };
        let kill = shared::number(&folder.join(KILL)).map_err(failed)?;
        let kill = kill.or_else(|| job.and_then(look::kill));
        let settled: Option<BTreeSet<usize>> =
            plain::get(&folder.join(SETTLED), plain::RECORD).map_err(failed)?;
        let settled = settled.unwrap_or_default();
        let table = Table::of(&kept, &lists.pods(attempt));
        let now = shim::now();
        let start_within = self.settings.start_within.map(|time| time.as_millis());
        let mut seen = Seen {
            kept: &kept,
            job,
            cause: cause.as_ref(),
            kill,
            settled: &settled,
            start_within: start_within.map(|time| u64::try_from(time).unwrap_or(u64::MAX)),
            now,
        };
        let new = if seen.cause.is_none() { state::cause(&seen, &table) } else { None };
        // It was told to end, or would be taken for gone.
        let is_bare = table.pods.iter().all(Option::is_none);
        let is_new = job.is_none() && !self.known().listed.contains(attempt);
        let is_to_end = new == Some(Why::Gone) || seen.cause.is_some() && is_bare && is_new;
        if job.is_none() && is_to_end && self.is_there_all_the_same(attempt)? {
            let found = self.ends.found(&self.folder, attempt, Phase::Running, None, None);
            return found.map(Some).map_err(failed);
        }
        let found;
        if let Some(why) = new {
            found = Cause { why, at: now };
            self.note_cause(attempt, &found)?;
            seen.cause = Some(&found);
        }
        self.copies.note(attempt, &kept, &table, &folder, self.settings.keep_output);
        let verdict = state::verdict(&seen, &table);
        let left = || until.saturating_duration_since(Instant::now());
        let (end, started, ended) = match verdict {
            Verdict::Over { end, started, ended } => (end, started, ended),
            Verdict::Open { phase, started, acts } => {
                self.ends.is_fine(attempt);
                settle(&folder, &seen, &table).map_err(failed)?;
                self.act(attempt, &table, &kept, &acts);
                if let Err(fault) = self.copies.copy(&self.api, attempt, Which::Due, left()) {
                    tracing::debug!(%attempt, ?fault, "output cannot be copied now");
                }
                let found = self.ends.found(&self.folder, attempt, phase, started, None);
                return found.map(Some).map_err(failed);
            }
        };
        let text = match seen.cause.map(|cause| &cause.why) {
            Some(Why::Rank { rank, text: Some(text), .. } | Why::Waited { rank, text }) => {
                Some((*rank, text))
            }
            _ => None,
        };
        if let Some((rank, text)) = text {
            let text = format!("falaj: Kubernetes: {text}\n");
            logs::say(&folder, rank, &text).map_err(failed)?;
        }
        let time = left();
        let copied = self.copies.copy(&self.api, attempt, Which::All, time);
        if !copied.as_ref().is_ok_and(|all| *all) {
            // More comes, and takes its time: that is nothing odd. If others have used the time up, it is.
            if copied.is_ok() && !time.is_zero() {
                self.ends.is_fine(attempt);
            }
            if self.ends.odd_for(attempt) < OUTPUT_WITHIN {
                settle(&folder, &seen, &table).map_err(failed)?;
                let found = self.ends.found(&self.folder, attempt, Phase::Running, started, None);
                return found.map(Some).map_err(failed);
            }
            let why = copied.err().map_or_else(String::new, |fault| format!(": {}", fault.away()));
            let text =
                format!("\nfalaj: some output may be missing here: it could not be read{why}\n");
            for source in self.copies.sources(attempt) {
                logs::say(&folder, source.rank, &text).map_err(failed)?;
            }
        }
        self.tell_end(attempt, end, started, ended, lists).map(Some)
    }

    /// Whether the job of an attempt is there, though it was not listed: it may have another owner's mark, because
    /// that was changed. To take it for lost would start it a second time beside itself, and what was told to end
    /// has not ended.
    fn is_there_all_the_same(&self, attempt: &AttemptId) -> Result<bool, Trouble> {
        let is_there = match self.job(attempt) {
            Ok(job) => job.is_some(),
            // One of that name is another's.
            Err(ExecutorError::Refused(_)) => false,
            Err(error) => return Err(Trouble::Engine(error)),
        };
        if is_there {
            tracing::warn!(%attempt, "its job is there, but not marked as one of this pool's");
        }
        Ok(is_there)
    }

    /// What is to be done about a job of which not everything was made. Whoever wants it launches it again. A
    /// job that nobody wants any more would hold its place for ever.
    fn half_made(&self, attempt: &AttemptId) -> Result<(), Trouble> {
        if self.ends.odd_for(attempt) < HALF_MADE {
            return Ok(());
        }
        tracing::warn!(%attempt, "a job that was left half made is removed");
        self.clear(attempt).map_err(|fault| Trouble::Engine(fault.away()))?;
        self.folder.remove(attempt).map_err(Trouble::Folder)?;
        self.ends.forget(attempt);
        self.known().listed.remove(attempt);
        Ok(())
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
        self.known().listed.remove(attempt);
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

    fn keeps_gpus_apart(&self) -> bool {
        true
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
        // One that was told to end before it began does not begin.
        let is_done = plain::is_there(&target.join(CAUSE));
        if !is_done && let Err(error) = self.submit(launch, &kept) {
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
        for pod in lists.orphans(|one| known.contains(one) || adopted.contains_key(one)) {
            if let Err(fault) = self.api.release(pod) {
                tracing::debug!(pod, ?fault, "a pod of nobody is still there");
            }
        }
        open.extend(adopted);
        self.copies.sort(&mut open);
        let until = Instant::now() + COPIED_WITHIN;
        for (attempt, submitted) in open {
            match self.find(&attempt, submitted, &lists, until) {
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
        self.find(attempt, submitted, &lists, Instant::now() + COPIED_WITHIN)?;
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
        self.measure(attempt)
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
        self.meters.forget(attempt);
        Ok(())
    }

    fn wait(&self, at_most: Duration) {
        let until = Instant::now() + at_most.min(LOOK);
        let left = || until.saturating_duration_since(Instant::now());
        let (heard, ripe) = match &self.known().lists {
            Some(last) => (last.heard, last.begun + FRESH),
            None => (None, until),
        };
        self.watch.wait(heard, left());
        // Before that, what is known would be told again.
        std::thread::sleep(ripe.saturating_duration_since(Instant::now()).min(left()));
    }
}

impl KubernetesExecutor {
    /// Copies what a rank has written since the last time. What is here is read in any case.
    fn freshen(&self, attempt: &AttemptId, rank: u32) -> Result<(), ExecutorError> {
        self.folder.known(attempt)?;
        let copied = self.copies.copy(&self.api, attempt, Which::Of(rank), COPIED_WITHIN);
        if let Err(fault) = copied {
            tracing::debug!(%attempt, rank, ?fault, "output cannot be copied now");
        }
        Ok(())
    }
}

/// Writes down which nodes have ended by themselves: what becomes of their pods from now on is nothing to go by.
fn settle(folder: &Path, seen: &Seen<'_>, table: &Table<'_>) -> io::Result<()> {
    // Once there is a cause, we end them.
    if seen.cause.is_some() {
        return Ok(());
    }
    let mut all = table.settled();
    all.extend(seen.settled);
    if all == *seen.settled { Ok(()) } else { plain::put_durably(&folder.join(SETTLED), &all) }
}
