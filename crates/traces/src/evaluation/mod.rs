//! What generative AI is judged by: datasets of examples, and scorers.

pub mod dataset;
pub mod scorer;
