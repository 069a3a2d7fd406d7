//! Where jobs really run: processes of this machine, Slurm, Ray, Kubernetes.
//!
//! An executor knows *attempts*: one start of one job, with all its ranks. It starts them, tells what
//! became of them, passes signals on, and hands out what they wrote.
//!
//! Must hold:
//! - Starting the same attempt again starts nothing: it is found and followed.
//! - What was started is found again after this process was killed at any moment, with its exit codes
//!   and its output, until it is [forgotten](Executor::forget).
//! - An attempt that is neither running nor has left its end behind is *lost*, never a success.
//!
//! Not here: jobs, queues and who goes first; databases; what a checkpoint is.

mod cgroup;
mod check;
mod ends;
mod folder;
pub mod gpu;
pub mod kubernetes;
pub mod local;
pub mod nursery;
mod plain;
mod process;
pub mod ray;
pub mod seam;
mod shared;
pub mod shim;
pub mod slurm;

pub use check::MOST_RANKS;
pub use kubernetes::{
    ClusterObject, KubernetesExecutor, KubernetesSettings, Toleration, Volume, annotate,
};
pub use local::LocalExecutor;
pub use ray::{RayExecutor, RaySettings};
pub use seam::{
    AttemptId, End, Executor, ExecutorError, Launch, Limits, Notice, Observed, Part, Phase,
    RankEnd, RankPlace, Usage,
};
pub use slurm::{SlurmExecutor, SlurmSettings};
