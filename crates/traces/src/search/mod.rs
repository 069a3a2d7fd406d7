//! Searching traces, and counting over them.
//!
//! A search walks through the traces of its experiments, newest first, and looks at each: first at
//! what stands in its row, and only then, if the filter asks for them, at its assessments, links
//! and spans. What is held in memory is one page, one handful of rows and the spans of one trace.

mod budget;
mod correlation;
pub mod http;
mod metrics;
mod order;
mod row;
mod scan;
mod service;

pub(crate) use service::TraceSearch;
