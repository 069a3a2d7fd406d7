//! Where models come from.

use bytes::Bytes;
use falaj_base::Result;
use falaj_inference::golden::Golden;
use futures::future::BoxFuture;

use super::key::ModelKey;
use super::remote::RemoteConfig;
use super::settings::Settings;

/// Knows what a key stands for: the registry; a folder at the edge.
pub trait Source: Send + Sync {
    /// Fetches a model. A key that stands for nothing is an error, remembered for a short time.
    fn fetch<'a>(&'a self, key: &'a ModelKey) -> BoxFuture<'a, Result<Fetched>>;
}

/// A model, and how it is to run.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub model: Content,
    /// Inputs and the outputs that belong to them: an engine that gives others does not serve it.
    pub golden: Option<Golden>,
    /// Whether a row's answer was found to be the same in any batch. If not, none is shared.
    pub batch_invariant: bool,
    pub settings: Settings,
}

/// What computes a model.
#[derive(Clone, Debug)]
pub enum Content {
    /// An engine here, from an ONNX file.
    File(Bytes),
    /// Another server of the Open Inference Protocol.
    Remote(RemoteConfig),
}

impl From<Bytes> for Content {
    fn from(file: Bytes) -> Self {
        Self::File(file)
    }
}

impl From<RemoteConfig> for Content {
    fn from(remote: RemoteConfig) -> Self {
        Self::Remote(remote)
    }
}
