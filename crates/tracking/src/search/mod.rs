//! Searching runs. What a filter or an ordering looks at is kept in memory by columns, one set
//! for each experiment, loaded when first asked for and refreshed from what was touched since;
//! the runs of the page are then read from the database.
//!
//! ```text
//! text → Expr            filter and ordering, checked            (mlflow::filter)
//! Frame::refresh         runs touched since the last look        frame.rs
//! select                 one bit per run, comparison by comparison    select.rs
//! rank                   the first so many, in order             rank.rs
//! run::load              the page itself
//! ```
//!
//! Must hold:
//! - A search sees every write that was acknowledged before it began: the columns are refreshed
//!   inside the snapshot that the page is read from.
//! - Memory is bounded: columns that were not asked for lately go first.

mod column;
mod datasets;
mod experiments;
mod frame;
mod frames;
pub mod http;
mod rank;
mod select;
mod service;

pub(crate) use frames::Frames;
pub use service::RunSearch;
