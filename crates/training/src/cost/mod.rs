//! Metering: what starts had reserved, for how long, and what that costs by the price book.
//!
//! Must hold: what a start costs by the hour is written down when it starts, so a price that changes
//! later changes nothing that was.

pub(crate) mod http;
mod rates;
mod report;

pub(crate) use rates::{Rates, money};
pub use report::{By, CostLine};
