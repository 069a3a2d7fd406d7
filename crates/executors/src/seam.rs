//! The seam: what every executor can do, and what it may count on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use falaj_base::Secret;
use serde::{Deserialize, Serialize};

/// One start of one job: `<job id>-<number of the start>`. Letters, digits, `_` and `-`, at most 80 of
/// them, so that it can name files, units and jobs of others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(String);

impl AttemptId {
    /// `None` if it could not name a file everywhere.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let fits = (1..=80).contains(&text.len())
            && !text.starts_with('-')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        fits.then_some(Self(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where one rank runs, and what it alone is told.
#[derive(Clone, Debug)]
pub struct RankPlace {
    /// The node as its pool names it; the executor may use it as a wish.
    pub node: String,
    /// The GPUs of that node that are its own, by index.
    pub gpus: Vec<u8>,
    /// Joined to [`Launch::env`], and stronger.
    pub env: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Thousandths of a core for each rank; 0 for no limit.
    pub cpu_millis: u32,
    /// MiB for each rank; 0 for no limit.
    pub memory_mib: u32,
    /// After this long the attempt is ended as [`End::TimedOut`].
    pub time: Option<Duration>,
}

/// An attempt, as it is to be started. All ranks or none.
#[derive(Clone, Debug)]
pub struct Launch {
    pub attempt: AttemptId,
    /// For people who look at the engine: a short name of the job.
    pub name: String,
    /// The program and its arguments, the same for every rank.
    pub command: Vec<String>,
    /// A container image, where the executor runs containers; refused where it does not.
    pub image: Option<String>,
    /// A slice of a GPU for each rank, such as `1g`, instead of whole ones; refused where the executor has none.
    pub slice: Option<String>,
    /// Where it starts; a folder of the attempt's own if absent.
    pub folder: Option<PathBuf>,
    pub env: BTreeMap<String, String>,
    /// Put into the environment as well, and never shown or written where others could read it.
    pub secrets: BTreeMap<String, Secret>,
    pub ranks: Vec<RankPlace>,
    /// Whether a rank sees all GPUs that the ranks of its node have, in one order, so that its number there
    /// picks one of them; its own alone otherwise. See [`Executor::keeps_gpus_apart`].
    pub shares_gpus: bool,
    pub limits: Limits,
    /// How long it has between being told to end and being killed.
    pub grace: Duration,
    /// How many seconds after the first rank's failure the others are ended.
    pub gang_grace: Duration,
}

impl Launch {
    /// The GPUs of its node that a rank sees, in their order.
    pub(crate) fn seen_by(&self, rank: &RankPlace) -> Vec<u8> {
        if !self.shares_gpus {
            return rank.gpus.clone();
        }
        let beside = self.ranks.iter().filter(|other| other.node == rank.node);
        let all: BTreeSet<u8> = beside.flat_map(|other| &other.gpus).copied().collect();
        all.into_iter().collect()
    }
}

/// What can be said to a running attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// `SIGUSR1` to every rank: save what you have. It goes on.
    Checkpoint,
    /// `SIGTERM`, and after the launch's grace `SIGKILL`.
    Stop,
    /// At once.
    Kill,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// The engine has it and has not started it; its own reason, if it tells one.
    Pending(Option<String>),
    Running,
    Ended(End),
}

/// How a whole attempt ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Every rank ended with 0.
    Succeeded,
    /// The first rank that failed, and how.
    Failed {
        rank: u32,
        how: RankEnd,
    },
    /// It was told to stop or killed through [`Executor::tell`].
    Stopped,
    TimedOut,
    /// The engine took it away for others; start it again.
    Preempted,
    /// It is not there and has left no end: a machine went down, or somebody removed it.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankEnd {
    Exit(i32),
    Signal(i32),
    /// The kernel killed it for its memory.
    OutOfMemory,
    /// It could not be started; the output says why.
    NotStarted,
}

/// An attempt as the executor finds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub attempt: AttemptId,
    pub phase: Phase,
    /// Milliseconds since 1970, as soon as they are known.
    pub started: Option<u64>,
    pub ended: Option<u64>,
    /// How its limits are kept: `cgroup-v2`, `cgroup-v1`, `none`, or the engine's name.
    pub isolation: String,
}

/// What an attempt has used so far, over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_seconds: f64,
    pub memory_bytes: u64,
    pub peak_memory_bytes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// A part of an output: bytes as they were written, and where they stand in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub at: u64,
    pub bytes: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// It can never be started like this.
    #[error("{0}")]
    Refused(String),
    /// Nothing of that name is known.
    #[error("no attempt {0} is known here")]
    Unknown(AttemptId),
    /// The engine cannot be reached or does not answer; the same again may work.
    #[error("{0}")]
    Away(String),
}

/// Blocking; each call returns within a bounded time. Called from several threads.
pub trait Executor: fmt::Debug + Send + Sync {
    /// Why [`Self::launch`] would refuse this for good, as far as that can be told without asking an engine:
    /// images, too many ranks, a shape it cannot make. Nothing is looked up, so it may be asked before
    /// anything is decided; `None` is no promise.
    fn refuses(&self, _launch: &Launch) -> Option<String> {
        None
    }

    /// Where the nodes of an attempt will reach each other, one after the other, if the engine gives them
    /// addresses of its own; `None` where they have those of their pool.
    fn hosts(&self, _attempt: &AttemptId, _nodes: usize) -> Option<Vec<String>> {
        None
    }

    /// Whether a rank sees no GPU but its own, whatever a launch asks for: each is alone in a container. Then
    /// its first one is the first there is, whatever its number on its node.
    fn keeps_gpus_apart(&self) -> bool {
        false
    }

    /// Starts an attempt, or finds the one that is there. Returns once it will be found again whatever
    /// happens to this process.
    fn launch(&self, launch: &Launch) -> Result<(), ExecutorError>;

    /// Everything that was launched and not forgotten.
    fn observe(&self) -> Result<Vec<Observed>, ExecutorError>;

    /// Nothing happens if it has ended.
    fn tell(&self, attempt: &AttemptId, notice: Notice) -> Result<(), ExecutorError>;

    /// The output of a rank (both streams, as written) from an offset on, at most `most` bytes of it.
    fn output(
        &self,
        attempt: &AttemptId,
        rank: u32,
        from: u64,
        most: usize,
    ) -> Result<Vec<u8>, ExecutorError>;

    /// The next part of a rank's output that is kept, from an offset on: what was dropped is skipped, and no
    /// part reaches across it. An empty one is the end of what there is.
    ///
    /// Of a very long output its beginning and its latest part are kept. Whoever copies an output copies
    /// parts, and says where one does not begin where the last one ended.
    fn output_part(
        &self,
        attempt: &AttemptId,
        rank: u32,
        from: u64,
        most: usize,
    ) -> Result<Part, ExecutorError> {
        Ok(Part { at: from, bytes: self.output(attempt, rank, from, most)? })
    }

    /// `None` where the engine does not tell.
    fn usage(&self, attempt: &AttemptId) -> Result<Option<Usage>, ExecutorError>;

    /// The ids of its processes, where they are processes of this machine; none elsewhere.
    fn processes(&self, _attempt: &AttemptId) -> Result<Vec<u32>, ExecutorError> {
        Ok(Vec::new())
    }

    /// The stacks of its ranks as text, where that can be had; for hangs.
    fn stacks(&self, attempt: &AttemptId) -> Result<Option<String>, ExecutorError>;

    /// Removes what is kept of an attempt that has ended. Nothing happens if there is none.
    fn forget(&self, attempt: &AttemptId) -> Result<(), ExecutorError>;

    /// Waits until something may have changed, or the time is up.
    fn wait(&self, at_most: Duration);
}
