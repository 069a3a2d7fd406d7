//! `SELECT expression AS name, … FROM source [WHERE condition]`: rows in, rows out.
//!
//! ```text
//! parse      text into what the grammar says, within limits
//! typed      names found, types checked, everything that cannot be refused by its own words
//! eval       column by column, with SQL's nulls
//! ```
//!
//! Must hold:
//! - What was typed evaluates: of the errors that are left (a sum that does not fit, a text that is no
//!   number) each names the expression, the row and the values.
//! - An expression is evaluated only for rows that need it: the other branches of a `CASE`, and rows
//!   that `WHERE` leaves out, cannot fail.
//! - There is no value where there is no number: dividing by zero, the root or logarithm of what
//!   has none.

mod calendar;
mod cast;
mod column;
mod eval;
mod function;
mod like;
mod node;
mod parse;
mod projection;
mod text;
mod typed;

pub use parse::{MAX_BYTES, MAX_TOKENS};
pub use projection::{Output, Projection, Ran};
