//! Where the rows of views lie, and reading them, as Arrow, in an order that stays.
//!
//! Must hold:
//! - A history is read any number of times with the same rows in the same order; a file that
//!   changes meanwhile is noticed.
//! - Columns are taken for what the view says they are only if nothing is lost by it.
//! - A stranger's file is refused, by its name and column, and never believed.
//!
//! Not here: which row answers (`offline`).

pub(crate) mod declared;
mod files;
mod fit;
mod history;
mod lake;
mod objects;
mod open;
mod postgres;
mod roots;
mod rows;
mod rows_of;
mod spool;
mod window;

pub(crate) use fit::{fit, fits};
pub(crate) use history::{Go, History, Step, Stop};
pub use objects::{FoundObject, ProjectObjects};
pub(crate) use open::{Origins, SourceRead, aside, blocking};
pub(crate) use roots::{Roots, database_of, root_of, source_zones};
pub(crate) use window::bounds;
