//! What a start is made of: the environment of each rank, and the whole as an executor takes it.

mod ranks;

pub(crate) use ranks::{Gang, ranks, shares_gpus};
