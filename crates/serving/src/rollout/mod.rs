//! Traffic that finds its own way: canaries, tests, bandits and shadows of real endpoints.
//!
//! ```text
//! answer   a server notes what its variants did, in memory (`watch`)
//! flush    every second, into the endpoint's record (`store`), where all servers' notes add up
//! report   outcomes count in the same record, in the transaction that keeps them
//! judge    one server looks at every record, each second (`judge`): wait, change shares, or end
//! ```
//!
//! Must hold:
//! - What was seen of other versions says nothing of these: every change of what runs is a new
//!   *round*, and begins with an empty record.
//! - A decision changes the endpoint in the transaction that judged it, with an event that says
//!   why.
//! - Requests that named a version were not shared out, and are not counted.
//!
//! Not here: the decisions themselves (`traffic`, pure).

pub(crate) mod http;
mod judge;
mod mark;
pub(crate) mod outcomes;
mod record;
mod repeat;
mod report;
pub(crate) mod store;
mod strategy;
mod watch;

pub(crate) use judge::{begin, judge};
pub(crate) use mark::{mark, round_of};
pub(crate) use repeat::Repeated;
pub use strategy::{Canary, Compared, Kind, Strategy, Then};
pub(crate) use watch::{Watch, Watched};
