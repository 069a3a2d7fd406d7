//! The scheduler's core: rules by example, and invariants over random workloads.

mod packing;
mod properties;
mod quotas;
mod ranked;
mod rules;
mod simulate;
mod waits;
mod world;
