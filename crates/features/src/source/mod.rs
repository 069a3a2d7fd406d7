//! Where the rows of views lie, and reading them, as Arrow, in an order that stays.
//!
//! Must hold:
//! - A history is read any number of times with the same rows in the same order; a file that
//!   changes meanwhile is noticed.
//! - Columns are taken for what the view says they are only if nothing is lost by it.
//! - A stranger's file is refused, by its name and column, and never believed.
//!
//! Not here: which row answers (`offline`).

mod blob;
mod files;
mod fit;
mod history;
mod objects;
mod open;
mod rows;

pub(crate) use blob::BlobRanges;
pub(crate) use files::root_of;
pub(crate) use fit::{fit, fits};
pub(crate) use history::{History, Stop};
pub use objects::{FoundObject, ProjectObjects};
pub(crate) use open::{Origins, SourceRead, blocking};
