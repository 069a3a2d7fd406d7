//! Aggregates over windows of time.
//!
//! ```text
//! aggregate   what is asked: a function, a window, a hop
//! partial     what is known of some events: merged in any order, it says the same
//! tiles       the partials of one entity, hop by hop, and what they say at a moment
//! ```
//!
//! **What a window is.** Time is cut into tiles of one hop, counted from 1970. At a moment T the window
//! is the tile that T lies in, as far as T, and the whole tiles before it, as many as make up the
//! window with it. So it is as long as the window at the end of a tile and up to a hop shorter
//! before; an event that counts is never older than the window.
//!
//! Must hold:
//! - A partial is a function of the events it was made of, not of their order, their batches, or
//!   what was merged first. Sums of floats are kept exactly and rounded once, at the end.
//! - The bytes of a partial are, too: equal partials are written alike.
//! - What a tile takes is bounded, whatever comes.

mod aggregate;
mod bytes;
mod distinct;
mod exact;
mod item;
mod partial;
mod quantile;
mod tiles;

pub use aggregate::{Aggregate, Function};
pub use item::{Item, Items};
pub use partial::Partial;
pub use tiles::{Plan, Tiles};
