//! Features that are computed: rows by SQL, events by windows, requests by what comes with them.
//!
//! | module | holds |
//! |---|---|
//! | [`spec`], [`form`] | what a definition says of it, and what a version freezes |
//! | `settle` | types checked and features told, when a definition is applied |
//! | `ready` | a form that was read, to be run |
//! | `moments` | what windows say at moments: training sets |
//! | `tiles` | windows in the online store: kept up with pushes, read at now |
//! | `bring` | windows of what lies in sources, brought into the online store |
//! | `demand`, `derived` | views computed from others: when they are asked for, in training sets |
//!
//! Must hold:
//! - History keeps rows as they came. What is made of them is made by one evaluator, whoever asks:
//!   training sets, pushes and requests agree because they run the same.
//! - A window says the same online and in a training set of that moment.
//!
//! Not here: the evaluator and the tiles themselves (`falaj_transform`).

pub(crate) mod bring;
pub(crate) mod demand;
pub(crate) mod derived;
pub mod form;
pub(crate) mod moments;
pub(crate) mod ready;
pub(crate) mod settle;
pub mod spec;
pub(crate) mod tiles;

pub(crate) use ready::Ready;
