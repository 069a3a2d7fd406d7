//! Registered models: versions, aliases, and the proof of what they are.

pub mod bom;
pub mod scan;
pub mod signing;
