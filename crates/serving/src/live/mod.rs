//! Endpoints as requests find them: read once, and again when one changed.

mod served;
mod table;

pub(crate) use served::{Arm, Served};
pub(crate) use table::Live;
