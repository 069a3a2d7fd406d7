//! Checkpoints as a protocol: what a job saved, and what of that can be gone on from.
//!
//! A rank reports `(step, path, digests of files)` over HTTP, or finishes a file `rank-<n>.json` that
//! says the same in a folder below `CHECKPOINT_DIR`, with its start and the number of its ranks.
//!
//! Must hold:
//! - A checkpoint counts when every rank of one start has it, and not before.
//! - A start goes on from the last one that counts, and only if its files are what their digests say,
//!   where they can be read from here.
//! - One that was found broken stays so until it is saved anew.
//! - What was begun by a start that is over, and does not count, is cleared away; nothing is removed
//!   that is, holds or lies in a checkpoint that stays.
//! - A path that is looked at from here lies below the job's own folder, and leads nowhere else.

mod folder;
pub(crate) mod http;
mod keep;
mod often;
mod report;
mod resume;
pub(crate) mod store;

pub(crate) use often::Reports;
pub use report::{Report, Reported, Saved};
pub use store::CheckpointShown;
