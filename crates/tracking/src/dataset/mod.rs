//! What went into runs and came out of them: datasets, and logged models.

pub(crate) mod http;
mod service;
pub(crate) mod store;
mod used;

pub(crate) use store::SCHEMA;
pub use used::DatasetUse;

/// A dataset as a run knew it: which data, not the data itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    pub name: String,
    pub digest: String,
    pub source_type: String,
    pub source: String,
    pub schema: Option<String>,
    pub profile: Option<String>,
}

impl Dataset {
    /// Roughly what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let long = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.name.len() + self.source.len() + long(&self.schema) + long(&self.profile) + 128
    }
}

/// A dataset that went into a run, with what the run says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetInput {
    pub dataset: Dataset,
    pub tags: Vec<(String, String)>,
}

/// Everything that went into a run and came out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    pub datasets: Vec<DatasetInput>,
    pub models_in: Vec<String>,
    pub models_out: Vec<(String, i64)>,
}
