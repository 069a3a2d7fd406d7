//! Approvals: one person asks to promote a version, another one agrees.
//!
//! Must hold:
//! - Who asked cannot approve.
//! - What is approved is there to be looked at: a version whose files are kept here is signed, and
//!   one without files cannot be asked for.
//! - An approval is for one version as it was when it was asked for, and for one alias or stage.
//!   When its files, card or description change it is stale and counts no more.
//! - It is decided once and used once, whoever else tries at the same moment.

#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod approval;
pub(crate) mod http;
mod service;
pub(crate) mod store;

pub use approval::{Approval, ApprovalId, NewApproval, Verb};
