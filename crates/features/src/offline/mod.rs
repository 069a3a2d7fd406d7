//! Joining histories to moments.
//!
//! ```text
//! Moments::new     who is asked about, and when: grouped by key, in the order of time
//! Latest::add      a history, batch by batch, in any order: only keys and times are looked at
//! Latest::finish   the row of the history that answers each moment, if one does
//! Gathered::add    the history again: its values, of the rows that answer
//! Gathered::finish the values, moment by moment
//! ```
//!
//! A row of a history says when something was so (*event*) and since when that is known (*known*).
//! It can answer a moment that is neither before the one nor before the other, and at most its time
//! to live after the event. Of several, the latest event answers; of those, the one known last; of
//! those, the one that stands last in the history.
//!
//! Must hold:
//! - The moments that a row can answer lie side by side in the order of time, so a row is noted at
//!   the first of them and forgotten: memory grows with what is asked, not with the history, and
//!   the cost of a row with the logarithm of the moments of its key.
//! - The answers do not depend on the order of batches but for the last tie.

mod answered;
mod gather;
mod key;
mod latest;
mod moments;
mod numbers;
mod order;
mod time;

#[cfg(test)]
mod tests;

pub use answered::Answered;
pub use gather::{Gathered, MOST, least};
pub use latest::{Answers, Latest, Rules};
pub use moments::Moments;
