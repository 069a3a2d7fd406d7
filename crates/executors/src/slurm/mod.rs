//! Attempts as jobs of Slurm, through its programs: `sbatch`, `squeue`, `scancel`.
//!
//! The programs, and not its REST service: they are there wherever jobs can be submitted, need neither
//! another daemon nor tokens, and what is asked of them here has not changed for many releases.
//!
//! Must hold:
//! - An attempt is one job of the attempt's name. Submitting it twice, which only a server that died in
//!   between can do, makes two jobs of which one starts nothing: the first to make a link in the
//!   attempt's folder is the one.
//! - The truth about an end is the file that the job's own script leaves in the folder; Slurm forgets
//!   jobs after some minutes. Without that file, no job has succeeded.
//! - Nothing that a user chose is in the environment of Slurm's programs or of our scripts: it is that of
//!   the ranks alone. Secrets travel in a file that only this user can read, and that the job removes.
//!
//! The folder must be one that the nodes see under the same path, and write to.

mod command;
mod script;
mod state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ends::{END, Ends};
use crate::folder::{self, Folder, away};
use crate::plain;
use crate::seam::{AttemptId, Executor, ExecutorError, Launch, Notice, Observed, Phase, Usage};
use crate::shared::{self, Awaited, Ending};
use crate::{End, check};
use script::Shape;
use state::Job;

const LAUNCH: &str = "launch.json";
/// The id that Slurm gave.
const JOB: &str = "job";
/// A link to the id of the job that started it.
const OWNER: &str = "owner";
const ENGINE: &str = "slurm";

/// How long a job may be unknown to Slurm, with no end to be seen, until it counts as lost. Files of
/// other machines are seen late.
const MISSING: Duration = Duration::from_secs(15);
/// How long Slurm is waited for to say why a job ended other than well.
const REASON: Duration = Duration::from_secs(20);

/// Where jobs are submitted, and as what.
#[derive(Clone, Debug, Default)]
pub struct SlurmSettings {
    /// The configuration of Slurm, unless it lies where Slurm looks for it.
    pub conf: Option<PathBuf>,
    /// The folder of Slurm's programs, unless they are found by `PATH`.
    pub programs: Option<PathBuf>,
    pub partition: Option<String>,
    pub account: Option<String>,
    pub qos: Option<String>,
    /// The kind of GPU to ask for, as Slurm's `gres` calls it.
    pub gpu_type: Option<String>,
}

#[derive(Debug)]
pub struct SlurmExecutor {
    folder: Folder,
    settings: SlurmSettings,
    ends: Ends,
    awaited: Mutex<Awaited>,
    missing: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    ranks: u32,
}

impl SlurmExecutor {
    pub fn new(folder: impl AsRef<Path>, settings: SlurmSettings) -> Result<Self, ExecutorError> {
        Ok(Self {
            folder: Folder::open(folder.as_ref())?,
            settings,
            ends: Ends::new(ENGINE, script::SECRETS),
            awaited: Mutex::default(),
            missing: MISSING,
        })
    }

    /// Jobs of this user, of one name or of all.
    fn jobs(&self, name: Option<&AttemptId>) -> Result<Vec<Job>, ExecutorError> {
        let mut words =
            ["--noheader", "--states=all", "--me", state::FORMAT].map(str::to_owned).to_vec();
        words.extend(name.map(|name| format!("--name={name}")));
        let said = command::run(&self.settings, "squeue", &words, None)?;
        if !said.fine {
            return Err(ExecutorError::Away(format!("squeue: {}", said.errors.trim())));
        }
        Ok(said.output.lines().filter_map(Job::parse).collect())
    }

    fn submit(&self, launch: &Launch, shape: &Shape) -> Result<(), ExecutorError> {
        let folder = self.folder.of(&launch.attempt);
        if !launch.secrets.is_empty() {
            let bytes = shared::secret_variables(&launch.secrets);
            plain::put_bytes(&folder.join(script::SECRETS), &bytes, 0o600)
                .map_err(|error| away(&folder, &error))?;
        }
        let words = script::submission(launch, shape, &self.settings, &folder);
        let said = command::run(&self.settings, "sbatch", &words, Some(&folder));
        let failed = match said {
            // `id`, or `id;cluster`.
            Ok(said) if said.fine => {
                let id = said.output.trim().split(';').next().unwrap_or_default();
                return note_job(&folder, id);
            }
            Ok(said) => refusal(&said.errors),
            Err(error) => error,
        };
        // It may have been taken all the same.
        if let Ok(jobs) = self.jobs(Some(&launch.attempt))
            && let Some(job) = jobs.first()
        {
            return note_job(&folder, &job.id);
        }
        if matches!(failed, ExecutorError::Refused(_)) {
            self.folder.remove(&launch.attempt)?;
        }
        Err(failed)
    }

    /// The job of an attempt: the one that runs it, or the one that was submitted.
    fn job_id(folder: &Path) -> Option<String> {
        let owner = std::fs::read_link(folder.join(OWNER)).ok();
        let owner = owner.and_then(|link| link.into_os_string().into_string().ok());
        // Written where the job can write too: nothing but a number is handed to a program of Slurm's.
        let is_id = |id: &String| {
            (1..=20).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_digit())
        };
        owner.filter(is_id).or_else(|| {
            let id = plain::read(&folder.join(JOB), plain::WORD).ok()??;
            Some(String::from_utf8_lossy(&id).trim().to_owned()).filter(is_id)
        })
    }

    fn signal(&self, job: &str, words: &[String]) -> Result<(), ExecutorError> {
        let mut all = words.to_vec();
        all.push(job.to_owned());
        let said = command::run(&self.settings, "scancel", &all, None)?;
        // A job or step that is not there, or has ended, cannot be told anything, and need not be.
        let gone =
            ["Invalid job id", "already completing", "completed", "does not exist", "Job/step"]
                .iter()
                .any(|text| said.errors.contains(text));
        if said.fine || gone {
            return Ok(());
        }
        Err(ExecutorError::Away(format!("scancel: {}", said.errors.trim())))
    }

    /// What has become of an attempt, `jobs` being all that Slurm knew a moment ago.
    fn find(
        &self,
        attempt: &AttemptId,
        id: Option<&str>,
        jobs: &HashMap<&str, Vec<&Job>>,
    ) -> Result<Option<Observed>, ExecutorError> {
        let folder = self.folder.of(attempt);
        let failed = |error: io::Error| away(&folder, &error);
        let none = Vec::new();
        let named = jobs.get(attempt.as_str()).unwrap_or(&none);
        let job = match id {
            Some(id) => named.iter().find(|job| job.id == id),
            None => named.first(),
        };
        if let (None, Some(job)) = (id, job) {
            note_job(&folder, &job.id)?;
        }
        let started = shared::number(&folder.join(shared::STARTED)).map_err(failed)?;
        let stop = shared::number(&folder.join(shared::STOP)).map_err(failed)?;
        let kept: Option<Kept> = plain::get(&folder.join(LAUNCH), plain::RECORD).map_err(failed)?;
        let ending = Ending::read(&folder).map_err(failed)?;
        let phase = match (&ending, job) {
            (Some(ending), job) => {
                let end = ending.end(kept.map_or(1, |kept| kept.ranks), stop);
                self.explained(attempt, end, job.copied())
            }
            (None, Some(job)) => match job.phase(stop.is_some()) {
                // It runs as soon as its script does.
                Some(Phase::Running) if started.is_none() => {
                    self.ends.is_fine(attempt);
                    Phase::Pending(None)
                }
                // Slurm is done with it, but what it left may be seen late.
                Some(Phase::Ended(end)) if started.is_some() && stop.is_none() => {
                    if self.ends.odd_for(attempt) < self.missing {
                        Phase::Running
                    } else {
                        Phase::Ended(end)
                    }
                }
                Some(phase @ Phase::Ended(_)) => phase,
                phase => {
                    // It is there: whatever was odd before has passed.
                    self.ends.is_fine(attempt);
                    phase.unwrap_or(Phase::Running)
                }
            },
            (None, None) => match id {
                None => return Ok(None),
                Some(id) => self.vanished(attempt, id, started.is_some(), stop.is_some()),
            },
        };
        let found = self.ends.found(&self.folder, attempt, phase, started, ending.as_ref());
        found.map(Some).map_err(failed)
    }

    /// An attempt that has left no end and that Slurm does not know.
    fn vanished(&self, attempt: &AttemptId, id: &str, started: bool, stop: bool) -> Phase {
        let here = if started { Phase::Running } else { Phase::Pending(None) };
        if self.ends.odd_for(attempt) < self.missing {
            return here;
        }
        // An answer that left it out would let it run on, beside the next start.
        if let Err(error) = self.signal(id, &[]) {
            tracing::warn!(%attempt, %error, "cannot be given up yet");
            return here;
        }
        Phase::Ended(if stop { End::Stopped } else { End::Lost })
    }

    /// An end that is not a good one may have a reason that only Slurm knows, and only once it is done.
    fn explained(&self, attempt: &AttemptId, end: End, job: Option<&Job>) -> Phase {
        let bad = matches!(end, End::Failed { .. } | End::Lost);
        match job {
            Some(job) if bad && !job.is_over() && self.ends.odd_for(attempt) < REASON => {
                Phase::Running
            }
            Some(job) if bad => Phase::Ended(job.reason(&end).unwrap_or(end)),
            _ => Phase::Ended(end),
        }
    }
}

fn note_job(folder: &Path, id: &str) -> Result<(), ExecutorError> {
    plain::put_bytes(&folder.join(JOB), id.as_bytes(), 0o600).map_err(|error| away(folder, &error))
}

/// Whether the ranks of an attempt have all ended, so that nobody can be told anything.
fn is_over(folder: &Path) -> bool {
    Ending::read(folder).is_ok_and(|ending| ending.is_some())
}

/// Whether Slurm will never take a job like this. Whatever else it says may pass: daemons that are away or
/// strangers to each other for a moment, limits on how much may be submitted at once.
fn refusal(errors: &str) -> ExecutorError {
    const NEVER: [&str; 22] = [
        "invalid partition",
        "invalid account",
        "invalid qos",
        "invalid feature",
        "invalid wckey",
        "invalid generic resource",
        "invalid trackable resource",
        "invalid directive",
        "invalid numeric value",
        "invalid argument",
        "unrecognized option",
        "requested node configuration is not available",
        "node count specification invalid",
        "cpu count specification invalid",
        "cpu count per node can not be satisfied",
        "task count specification invalid",
        "more processors requested than permitted",
        "memory required by task is not available",
        "memory specification can not be satisfied",
        "requested time limit is invalid",
        "not permitted to use this partition",
        "too long",
    ];
    let said = errors.trim().replace("sbatch: error: ", "");
    let small = said.to_lowercase();
    if NEVER.iter().any(|text| small.contains(text)) {
        return ExecutorError::Refused(format!("Slurm refuses it: {said}"));
    }
    ExecutorError::Away(format!("sbatch: {said}"))
}

impl Executor for SlurmExecutor {
    fn refuses(&self, launch: &Launch) -> Option<String> {
        check::refuses(launch).or_else(|| Shape::of(launch).err())
    }

    fn launch(&self, launch: &Launch) -> Result<(), ExecutorError> {
        if let Some(why) = check::refuses(launch) {
            return Err(ExecutorError::Refused(why));
        }
        let shape = Shape::of(launch).map_err(ExecutorError::Refused)?;
        let target = self.folder.of(&launch.attempt);
        self.folder.claim(&launch.attempt, |folder| {
            let ranks = u32::try_from(launch.ranks.len()).unwrap_or(u32::MAX);
            plain::put(&folder.join(LAUNCH), &Kept { ranks })?;
            let file =
                |name: &str, bytes: &[u8]| plain::put_bytes(&folder.join(name), bytes, 0o600);
            file("batch.sh", script::BATCH.as_bytes())?;
            file("rank.sh", script::RANK.as_bytes())?;
            file("child.sh", script::CHILD.as_bytes())?;
            file("launch.sh", script::launch_file(launch, &shape, &target).as_bytes())?;
            file("env", &script::env_file(&launch.env))?;
            for (number, rank) in launch.ranks.iter().enumerate() {
                file(&format!("rank-{number}.env"), &script::env_file(&rank.env))?;
            }
            std::fs::create_dir(folder.join("work"))
        })?;
        if Self::job_id(&target).is_some() || plain::is_there(&target.join(END)) {
            return Ok(());
        }
        // Nobody has written down an id; that does not mean that nobody has submitted it.
        if let Some(job) = self.jobs(Some(&launch.attempt))?.first() {
            return note_job(&target, &job.id);
        }
        self.submit(launch, &shape)
    }

    fn observe(&self) -> Result<Vec<Observed>, ExecutorError> {
        let mut found = Vec::new();
        let mut open = Vec::new();
        for attempt in self.folder.attempts()? {
            match self.ends.of(&self.folder, &attempt) {
                Ok(Some(ended)) => found.push(ended),
                // Before Slurm is asked: what is submitted after that is not missing from its answer.
                Ok(None) => open.push((Self::job_id(&self.folder.of(&attempt)), attempt)),
                Err(error) => found.push(folder::unreadable(attempt, &error, ENGINE)),
            }
        }
        let mut awaited = Awaited::default();
        if open.is_empty() {
            Awaited::replace(&self.awaited, awaited);
            return Ok(found);
        }
        let jobs = self.jobs(None)?;
        let mut by_name: HashMap<&str, Vec<&Job>> = HashMap::new();
        for job in &jobs {
            by_name.entry(job.name.as_str()).or_default().push(job);
        }
        for (id, attempt) in open {
            let observed = match self.find(&attempt, id.as_deref(), &by_name) {
                Ok(observed) => observed,
                Err(error) => {
                    found.push(folder::unreadable(attempt, &error, ENGINE));
                    continue;
                }
            };
            match observed.as_ref().map(|observed| &observed.phase) {
                Some(Phase::Ended(_)) => {
                    self.ends.is_fine(&attempt);
                }
                Some(_) => awaited.add(self.folder.of(&attempt)),
                None => {}
            }
            found.extend(observed);
        }
        Awaited::replace(&self.awaited, awaited);
        Ok(found)
    }

    fn tell(&self, attempt: &AttemptId, notice: Notice) -> Result<(), ExecutorError> {
        let folder = self.folder.known(attempt)?;
        if self.ends.of(&self.folder, attempt)?.is_some() || is_over(&folder) {
            return Ok(());
        }
        let signal = match notice {
            Notice::Checkpoint => "--signal=USR1",
            Notice::Stop => "--signal=TERM",
            Notice::Kill => "--signal=KILL",
        };
        if notice != Notice::Checkpoint {
            // Before it is told: ranks that are only starting look for it.
            shared::note_stop(&folder).map_err(|error| away(&folder, &error))?;
        }
        let Some(job) = Self::job_id(&folder) else { return Ok(()) };
        if notice != Notice::Checkpoint {
            self.signal(&job, &["--state=PENDING".to_owned()])?;
        }
        // The ranks are step 0; the script that started them stays, and writes down their ends.
        self.signal(&format!("{job}.0"), &[signal.to_owned()])
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
        let kept: Option<Kept> = plain::get(&folder.join(LAUNCH), plain::RECORD).map_err(failed)?;
        shared::usage(&folder, kept.map_or(1, |kept| kept.ranks)).map_err(failed)
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
        self.folder.remove(attempt)?;
        self.ends.forget(attempt);
        Ok(())
    }

    fn wait(&self, at_most: Duration) {
        Awaited::wait(&self.awaited, at_most);
    }
}
