//! A question to a model, and its answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use falaj_inference::Tensor;

/// Tensors by name, held once however many look at them: the model, its shadow, the log.
pub type Inputs = Arc<Vec<(String, Tensor)>>;

/// What a model is asked.
#[derive(Clone, Debug)]
pub struct Ask {
    pub inputs: Inputs,
    /// The outputs wanted; none named means all.
    pub outputs: Vec<String>,
    /// When the answer is of no use any more. The model's own timeout holds beside it.
    pub deadline: Option<Instant>,
    pub priority: Priority,
}

impl Ask {
    /// Asks for all outputs, with no deadline but the model's own.
    #[must_use]
    pub fn new(inputs: impl Into<Inputs>) -> Self {
        let (outputs, deadline, priority) = (Vec::new(), None, Priority::default());
        Self { inputs: inputs.into(), outputs, deadline, priority }
    }
}

/// Who goes first when requests wait: the higher, and among the same who came first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    High,
    #[default]
    Normal,
    Low,
}

impl Priority {
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];
}

/// What a model answered.
#[derive(Clone, Debug)]
pub struct Answer {
    pub outputs: Vec<(String, Tensor)>,
    pub times: Times,
}

/// How an answer came about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Until an instance took it.
    pub queued: Duration,
    /// By the instance, for all rows of the batch.
    pub computed: Duration,
    /// The rows that were computed together, those of others included.
    pub batch_rows: usize,
    /// Whether it was a kept answer.
    pub cached: bool,
}
