//! One start of one task, and what was decided about it.

use falaj_base::{Name, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::state::State;

/// A node's share of a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlacedAt {
    pub node: String,
    /// Its GPUs, by bit.
    pub devices: u16,
    /// The eighths of the one GPU's memory, for a MIG slice.
    #[serde(default)]
    pub slice: u8,
}

/// A start of a task.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Attempt {
    pub task: u32,
    /// Counted from 1.
    pub attempt: u32,
    pub state: State,
    pub pool: Name,
    pub nodes: Vec<PlacedAt>,
    /// How many ranks it has.
    pub world_size: u32,
    /// How its limits are kept, as its executor tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// The step of the checkpoint that it went on from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<i64>,
    /// How it ended, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// The exit code of the rank that decided about its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    pub started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Of all ranks, as far as the executor tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// What it had reserved cost.
    pub cost: f64,
    /// The stacks of its ranks, if it hung.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<String>,
}

/// Something that the scheduler decided about a task.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Decided {
    pub task: u32,
    pub at: Timestamp,
    /// `start`, `stop`, `resize`, `move`, `refuse` or `retry`.
    pub kind: String,
    pub detail: serde_json::Value,
}
