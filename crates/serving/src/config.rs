//! What can be set about serving.

use std::path::PathBuf;

use falaj_base::{ByteSize, HumanDuration};
use falaj_inference::Limits as ModelLimits;
use falaj_oip::Limits as TensorLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::later::LaterConfig;
use crate::predictions::PredictionsConfig;
use crate::remote::RemotesConfig;
use crate::runtime::FleetConfig;

/// Engines, memory and limits of the models that answer requests.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServingConfig {
    /// The library of ONNX Runtime. Without it the library is looked for beside the binary, in the
    /// data directory and in Python environments; models that our own kernels cover need none.
    pub onnxruntime: Option<PathBuf>,
    /// How much memory loaded models take together; the one that was not asked for the longest is
    /// unloaded first.
    pub memory: ByteSize,
    /// The largest model that is read, with the files beside it.
    pub max_model: ByteSize,
    /// How many models are loaded at the same time.
    #[schemars(range(min = 1, max = 64))]
    pub loads_at_once: usize,
    /// How long a model that nobody asks stays loaded.
    pub idle: HumanDuration,
    /// The most endpoints of one project.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_endpoints: usize,
    /// The most elements of the tensors of one request.
    pub max_elements: usize,
    /// The largest golden pair that is kept with a version.
    pub max_golden: ByteSize,
    /// How long the check of one registered model may take.
    pub profile_timeout: HumanDuration,
    /// How requests and their answers are kept.
    pub predictions: PredictionsConfig,
    /// Requests that are answered later.
    pub later: LaterConfig,
    /// Servers elsewhere whose models endpoints may serve.
    pub remote: RemotesConfig,
}

impl Default for ServingConfig {
    fn default() -> Self {
        Self {
            onnxruntime: None,
            memory: ByteSize::gib(4),
            max_model: ByteSize::gib(1),
            loads_at_once: 2,
            idle: HumanDuration::from_hours(1),
            max_endpoints: 1000,
            max_elements: 16_000_000,
            max_golden: ByteSize::mib(1),
            profile_timeout: HumanDuration::from_mins(2),
            predictions: PredictionsConfig::default(),
            later: LaterConfig::default(),
            remote: RemotesConfig::default(),
        }
    }
}

impl ServingConfig {
    /// What all models share.
    pub(crate) fn fleet(&self) -> FleetConfig {
        FleetConfig {
            memory: self.memory.bytes(),
            loads: self.loads_at_once,
            idle: Some(self.idle.into()),
            limits: self.model_limits(),
            ..FleetConfig::default()
        }
    }

    /// What a model may be made of.
    pub(crate) fn model_limits(&self) -> ModelLimits {
        ModelLimits { file_bytes: self.max_model.as_usize(), ..ModelLimits::default() }
    }

    /// How much one request may hold.
    pub(crate) fn tensor_limits(&self) -> TensorLimits {
        TensorLimits { max_elements: self.max_elements, ..TensorLimits::default() }
    }
}
