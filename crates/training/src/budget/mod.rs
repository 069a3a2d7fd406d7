//! Budgets: how much the jobs of a tenant or of a project may cost in a month, a quarter or altogether.
//!
//! Must hold:
//! - What was spent is a sum that grows in the transaction that ends a start, so nobody adds up all
//!   starts to know it; what runs is counted beside it, at its rate.
//! - A hard budget is asked before each start, and what runs counts there until its time limit: many
//!   that start together do not overrun it.
//! - Each share of a budget that is to be told is told once in its period, with the change that says so.
//!
//! Not here: what a single job may cost (its definition), prices (`cost`), what a pass does about a
//! budget (`live::purse`).

#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod budget;
pub(crate) mod http;
mod ledger;
mod meter;
mod period;
mod service;
pub(crate) mod store;

pub use budget::{Budget, BudgetSet, Overrun, Whose};
pub(crate) use ledger::{Ledger, Shortage};
pub(crate) use meter::{Meter, Running, in_currency, millionths};
pub use period::Period;
