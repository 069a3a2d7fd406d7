//! Model cards: what people should know about a version, in named fields and in their own words.

#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod card;
pub(crate) mod http;
mod service;
pub(crate) mod store;

pub(crate) use card::check_field;
pub use card::{Card, NewCard};
