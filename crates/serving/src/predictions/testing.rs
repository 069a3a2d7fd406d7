//! What the tests of this folder offer.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::{
    ByteSize, EndpointId, HumanDuration, Name, ProjectId, Resource, Scope, TenantId, Timestamp,
};
use falaj_inference::Tensor;
use uuid::Uuid;

use super::config::PredictionsConfig;
use super::prediction::{Home, Prediction};

pub(super) fn home() -> Arc<Home> {
    let (tenant, project) = (TenantId::new(), ProjectId::new());
    Arc::new(Home {
        tenant,
        project,
        zone: Name::new("local").unwrap(),
        endpoint: EndpointId::new(),
        resource: Resource::new("endpoint", "x", Scope::Project(tenant, project)),
    })
}

/// The tensors of a prediction.
pub(super) struct Sample(Vec<(String, Tensor)>);

impl Sample {
    pub(super) fn new(input: &str, elements: usize) -> Self {
        let tensor = Tensor::of([elements], vec![0.5_f32; elements]).unwrap();
        Self(vec![(input.to_owned(), tensor)])
    }

    pub(super) fn prediction(&self) -> Prediction<'_> {
        Prediction {
            id: Uuid::now_v7(),
            at: Timestamp::from_micros(1),
            model: "m",
            version: "1",
            variant: "a",
            key: None,
            inputs: &self.0,
            outputs: &[],
            latency: Duration::from_millis(1),
        }
    }
}

pub(super) fn config() -> PredictionsConfig {
    PredictionsConfig {
        file_rows: 3,
        file_bytes: ByteSize::from_bytes(100_000),
        file_age: HumanDuration::from_secs(10),
        max_memory: ByteSize::from_bytes(400_000),
        ..PredictionsConfig::default()
    }
}
