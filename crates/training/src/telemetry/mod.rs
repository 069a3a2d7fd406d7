//! What starts really use: read every few seconds, kept as metrics of their runs and as one bounded
//! summary each, and what follows from that: idle ones are told of or give up their nodes, and those
//! that ask for too much are told what would do.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | what can be set |
//! | [`reading`] | two readings into a sample |
//! | [`summary`] | all samples of a start, in bounded space |
//! | [`idle`] | whether a start is idle, and what its rule says |
//! | [`hints`] | what a job should ask for |
//! | [`names`] | samples in MLflow's words |
//! | [`watching`] | what the one who schedules has in mind |
//! | [`board`] | the newest samples, for requests and `/metrics` |
//! | [`store`] | summaries in the database |
//!
//! Must hold:
//! - What an executor or a device does not tell is absent, and nobody is judged by what is absent.
//! - Samples are written together, never one by one; one summary of each start, whatever its length.
//! - Nobody loses nodes for being idle who has not had them for as long as the rule says.
//!
//! Not here: asking executors and stopping starts (`live::sense`), reading devices (`executors::gpu`).

pub(crate) mod board;
pub mod config;
pub mod hints;
pub(crate) mod http;
pub(crate) mod idle;
pub mod metrics;
pub(crate) mod names;
pub(crate) mod reading;
mod service;
pub(crate) mod store;
pub mod summary;
pub(crate) mod watching;

use std::time::Duration;

use falaj_store::db::Tx;
use falaj_store::worker::Worker;

use crate::Training;

pub use reading::{GpuSample, Sample};
pub use service::{JobHints, StartTelemetry, Telemetry};

/// The worker that forgets old summaries.
pub(crate) fn forgetter(training: &Training) -> Worker {
    let training = training.clone();
    Worker::new("training-telemetry", Duration::from_mins(10), move || {
        let training = training.clone();
        async move {
            const AT_ONCE: usize = 1000;
            let before = training.db().now() - training.config().telemetry.keep.get();
            loop {
                let trim = move |tx: &mut Tx<'_>| store::trim(tx, before, AT_ONCE);
                if training.db().write(trim).await? < AT_ONCE as u64 {
                    return Ok(());
                }
            }
        }
    })
}
