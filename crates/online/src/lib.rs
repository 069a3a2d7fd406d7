//! The latest values of features, found by key in microseconds.
//!
//! | module | holds |
//! |---|---|
//! | [`value`] | kinds and values, and their names and JSON |
//! | [`moment`] | moments and days as text, as Feast writes them |
//! | [`decimal`] | decimals, exact |
//! | [`key`] | an entity of a view as bytes |
//! | [`row`] | its values as bytes, and which of two rows stays |
//! | [`store`] | where rows lie: a file of this server, or Redis |
//!
//! Must hold: of all rows of a key the one with the greatest stamp (event, known, place in the log)
//! is found, in whatever order they came. Whether it is still young enough, the reader says.
//!
//! Not here: what a feature view is and who may read it (`features`), the log that pushed rows are
//! kept in (the metadata database).

pub mod decimal;
pub mod key;
pub mod moment;
pub mod row;
pub mod store;
pub mod value;

pub use decimal::Decimal;
pub use key::{Key, Pattern};
pub use row::{Layout, Packing, Row, Stamp};
pub use store::{About, Batch, Home, Online, Position};
pub use value::{Kind, Moments, Scalar, Value};
