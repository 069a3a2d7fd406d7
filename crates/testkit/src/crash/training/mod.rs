//! Clients that speak MLflow's protocol: they make runs, log to them and register models, as a
//! training does.
//!
//! What must hold of them is more than of plain writes:
//! - every acknowledged point, parameter, tag, run and version is there exactly once;
//! - a logging request whose answer never came is there as a whole or not at all, and repeating it
//!   brings it there exactly once;
//! - repeating the creation of a run whose answer never came, as the stock client does, makes no
//!   second run.

mod book;
mod check;
mod client;

pub use book::Books;
pub use client::run;

/// How many of them train at the same time, beside the other clients.
const TRAINERS: usize = 6;

/// Where the protocol is spoken.
const API: &str = "/api/2.0/mlflow";
