//! A bill of materials for a model version: `CycloneDX` 1.6, as JSON.
//!
//! The model is the subject, with its model card; every file (with its SHA-256) and every declared
//! Python or conda package is a component it depends on.
//!
//! What must hold: the document passes the official schema whatever the facts say, and the same
//! facts give the same document.
//!
//! Not here: resolving requirements. What a version declares is listed; what an installer would
//! choose is not known.

mod document;
mod requirement;
mod signature;

use falaj_base::Timestamp;
use uuid::Uuid;

use crate::signing::Manifest;

pub use document::document;
pub use requirement::{Ecosystem, MAX_REQUIREMENTS, Requirement, conda_yaml, requirements_txt};
pub use signature::columns;

/// The media type of [`document`].
pub const MEDIA_TYPE: &str = "application/vnd.cyclonedx+json; version=1.6";

/// Everything known about a version that its bill of materials shows.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    pub name: String,
    pub version: String,
    /// The document's own number; a new one for each document that differs.
    pub serial: Uuid,
    /// When the document was made.
    pub at: Timestamp,
    pub files: Manifest,
    /// What the model belongs to, such as `tenant/project`.
    pub group: Option<String>,
    pub description: Option<String>,
    pub licence: Option<String>,
    /// Who registered the version.
    pub author: Option<String>,
    /// Such as `classification` or `text-generation`.
    pub task: Option<String>,
    /// Such as `transformer`.
    pub architecture_family: Option<String>,
    /// Such as `ResNet-50`.
    pub architecture: Option<String>,
    /// What goes in and comes out, one text each: see [`columns`].
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub datasets: Vec<Dataset>,
    pub metrics: Vec<Metric>,
    pub considerations: Considerations,
    pub requirements: Vec<Requirement>,
    /// Further facts by name, such as the run a version came from; shown as `falaj:<name>`.
    pub properties: Vec<(String, String)>,
}

impl ModelFacts {
    /// The facts every version has; the others start empty.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        version: impl Into<String>,
        files: Manifest,
        serial: Uuid,
        at: Timestamp,
    ) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            serial,
            at,
            files,
            group: None,
            description: None,
            licence: None,
            author: None,
            task: None,
            architecture_family: None,
            architecture: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            datasets: Vec::new(),
            metrics: Vec::new(),
            considerations: Considerations::default(),
            requirements: Vec::new(),
            properties: Vec::new(),
        }
    }
}

/// A dataset that a model was made or measured with.
#[derive(Clone, Debug, Default)]
pub struct Dataset {
    pub name: String,
    pub digest: Option<String>,
    /// Where it came from.
    pub source: Option<String>,
    /// What it was used for, such as `training`.
    pub context: Option<String>,
}

/// A measure of how good the model is.
#[derive(Clone, Debug)]
pub struct Metric {
    pub name: String,
    pub value: f64,
    /// The dataset or part of it that was measured.
    pub slice: Option<String>,
}

/// What the model card says about the model's use.
#[derive(Clone, Debug, Default)]
pub struct Considerations {
    pub users: Vec<String>,
    pub use_cases: Vec<String>,
    pub technical_limitations: Vec<String>,
    pub performance_tradeoffs: Vec<String>,
    /// A risk, and what is done about it.
    pub ethical: Vec<(String, Option<String>)>,
}

#[cfg(test)]
mod tests;
