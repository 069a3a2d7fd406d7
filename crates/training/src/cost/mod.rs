//! Metering: what starts had reserved, for how long, and what that costs by the price book.
//!
//! Must hold: what a start costs by the hour is written down when it starts, so a price that changes
//! later changes nothing that was. What jobs cost stays when they are deleted.

pub(crate) mod http;
pub(crate) mod kept;
mod rates;
mod report;

/// Reports ask for what had not ended before a time.
pub(crate) const INDEX: &str = "
    CREATE INDEX training_attempt_ended ON training_attempt (ended_at, started_at);";

pub(crate) use rates::{Rates, cheapest, money};
pub use report::{By, CostLine};
