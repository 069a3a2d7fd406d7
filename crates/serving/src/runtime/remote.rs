//! A model that another server computes, asked by the Open Inference Protocol over HTTP.

use std::time::Duration;

use falaj_base::Secret;

/// Where a model is that another server computes.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// Up to what comes before `/v2`: `https://host:port/path`.
    pub url: String,
    pub model: String,
    pub version: Option<String>,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<Secret>,
    /// PEM of certificate authorities that are trusted beside the machine's.
    pub authorities: Option<String>,
    pub connect_timeout: Duration,
    /// The most bytes of an answer.
    pub max_answer: usize,
}
