//! What is scheduled and on what: amounts, nodes, jobs, queues. Data only.

mod amounts;
mod gpu;
mod job;
mod node;
mod queue;

pub use amounts::{Amounts, DIMENSIONS, Dimension, UNLIMITED};
pub use gpu::{GPU_PARTS, GpuAsk, GpuType, MAX_GPU_TYPES, MigProfile};
pub use job::{Ask, JobId, JobSpec, Level, Spot, Topology, Width};
pub use node::{MAX_GPUS, NodeId, NodeSpec, Zone, ZoneSet};
pub use queue::{QueueId, QueueSpec, Quota};

/// Milliseconds since any fixed moment. The caller has the clock.
pub type Millis = u64;
