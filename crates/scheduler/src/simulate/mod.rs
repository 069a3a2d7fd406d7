//! The scheduler on yesterday's jobs: a trace goes through the very core that decides live, on a
//! clock that jumps from event to event.

mod measure;
mod plot;
mod run;
mod trace;

pub use measure::Outcome;
pub use plot::svg;
pub use run::{Setup, run};
pub use trace::{Trace, TraceError, TraceJob};
