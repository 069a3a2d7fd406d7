//! A prediction as it is kept, and where it belongs.

use std::time::Duration;

use falaj_base::{EndpointId, Name, ProjectId, Resource, TenantId, Timestamp};
use falaj_inference::{DataType, Tensor};
use uuid::Uuid;

/// The endpoint that predictions are of: whose they are and where they may lie.
#[derive(Clone, Debug)]
pub struct Home {
    pub tenant: TenantId,
    pub project: ProjectId,
    pub zone: Name,
    pub endpoint: EndpointId,
    /// What everything about the endpoint is authorised and recorded on.
    pub resource: Resource,
}

/// One request and its answer, as whoever gave it has them.
#[derive(Clone, Copy, Debug)]
pub struct Prediction<'a> {
    pub id: Uuid,
    pub at: Timestamp,
    pub model: &'a str,
    pub version: &'a str,
    pub variant: &'a str,
    /// What kept the request with its variant.
    pub key: Option<&'a str>,
    pub inputs: &'a [(String, Tensor)],
    pub outputs: &'a [(String, Tensor)],
    pub latency: Duration,
}

/// Bytes that a tensor takes once it is copied.
fn held(tensor: &Tensor) -> usize {
    /// What the allocator takes for a piece of memory, beside what is in it.
    const PIECE: usize = 32;
    let pieces = if tensor.data_type() == DataType::Bytes { tensor.len() } else { 0 };
    tensor.bytes() + pieces * PIECE
}

impl Prediction<'_> {
    /// Bytes that it holds, all in all.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// Ids, times, shapes and the rest, about.
        const AROUND: usize = 256;
        let tensors = self.inputs.iter().chain(self.outputs);
        let tensors: usize = tensors.map(|(name, tensor)| 64 + name.len() + held(tensor)).sum();
        AROUND + self.key.map_or(0, str::len) + tensors
    }
}
