//! What it takes to promote a version: a project's rules for its protected aliases and stages.
//!
//! Must hold:
//! - The files of every version that an alias is pointed at, or that goes to Production, were
//!   checked against their signature before.
//! - A protected alias or stage moves only with everything its rules ask for; a refusal names what
//!   is missing. Card and approval are looked at in the transaction that moves it, and whether the
//!   files and their signature are still those that were checked.
//! - Going back to where an alias pointed before needs no new approval while the content is the one
//!   that it pointed at: it was approved then, and an emergency does not wait. With other files it
//!   is a promotion like any other. It is on record like every move.

mod decide;
pub(crate) mod http;
mod policy;
mod service;
pub(crate) mod store;
mod target;

pub use policy::Policy;
pub(crate) use service::{allow, allow_back, guarded_place};
pub use target::Target;
