//! Streams as sources: records of Kafka and NATS become rows of views, each once.
//!
//! ```text
//! spec    what a source says about its stream
//! record  a record of JSON as the rows of its views, or why not
//! whose   whose a record is that is no row
//! keep    rows, bad records and the offset behind them, in one transaction
//! reader  one partition: read, keep, again
//! keeper  which partitions there are, and who reads them
//! ```
//!
//! Must hold:
//! - The offset of a partition is a row of the metadata database, moved by the transaction that keeps
//!   what was read up to it, from where it stood and from nowhere else. So whatever is stopped or
//!   runs twice, a record is kept once.
//! - Rows go to the versions of views that are the latest in that transaction.
//! - A record that fits not all views of its source is kept by none of them.
//! - Whoever reads holds the lease of the partition; a lease that was lost moves nothing.
//!
//! Not here: the servers (`falaj_streams`), what becomes of rows in the log (`history`, `online`).

mod config;
pub(crate) mod http;
mod keep;
mod keeper;
mod metrics;
mod quarantine;
mod reader;
mod record;
mod spec;
mod status;
pub(crate) mod store;
#[cfg(test)]
mod tests;
mod whose;

pub use config::{QuarantineConfig, check};
pub(crate) use keeper::{Streams, worker};
pub use metrics::StreamCollector;
pub use quarantine::Quarantined;
pub(crate) use quarantine::{Kept, kept_records, overwrite};
pub use spec::{FieldPath, Format, OnBad, OnGap, Reading, StartAt, StreamForm, Unit};
pub(crate) use spec::{checked, unasked};
pub use status::{State, StreamStatus};
pub(crate) use whose::{Keys, Whose};
