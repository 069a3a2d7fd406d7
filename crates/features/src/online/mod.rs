//! The latest values of features.
//!
//! | module | holds |
//! |---|---|
//! | `shape`, `rows` | a version of a view, and rows, as the store has them |
//! | `shelf`, `opening`, `refill` | the store: opened, kept up with the log, filled where it was lost |
//! | `ask`, `answer` | which features of which entities, and what was found |
//! | `push`, `materialize` | rows on their way in: one by one, and from their sources |
//! | `http`, `body` | our own routes; Feast's are in `feast` |
//!
//! Must hold:
//! - What a push acknowledged is durable in the log and read by whoever asks this server afterwards.
//! - Present, null, missing and expired are told apart. A value that is as old as its view's time to
//!   live is still given, one that is older is not.
//! - Every view that a request names, itself or by a service, is authorised.
//!
//! Not here: how rows are found (`falaj_online`), how pushes are kept (`history`).

mod answer;
mod ask;
pub(crate) mod body;
pub mod config;
pub(crate) mod http;
mod lawful;
pub(crate) mod materialize;
mod opening;
mod push;
mod refill;
mod rows;
mod shape;
mod shelf;

pub(crate) use answer::{Answer, Found, Status, ViewAnswer};
pub(crate) use ask::{Entities, Picked, Wanted};
pub use config::OnlineConfig;
pub(crate) use http::called;
pub(crate) use lawful::lawful;
pub(crate) use materialize::{Underway, Window};
pub(crate) use push::To;
pub(crate) use rows::{column, pack, size};
pub(crate) use rows::{column as column_of, value as value_in};
pub(crate) use shape::{Shape, place};
pub(crate) use shelf::Shelf;
