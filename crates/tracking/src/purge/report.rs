//! What garbage collection found, and what became of it.

use falaj_base::{Error, Result, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::keeper::References;
use super::store::Due;
use crate::experiment::ExperimentId;

/// How many things that stay are named in a reply.
const NAMED: usize = 100;

/// What garbage there is, or what became of it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct GcReport {
    /// Deleted before this moment is old enough.
    pub before: Option<Timestamp>,
    pub experiments: u64,
    pub runs: u64,
    pub logged_models: u64,
    /// Files deleted so far, and their bytes.
    pub files: u64,
    pub bytes: u64,
    /// What stays although it is old enough, and why; the first hundred.
    pub kept: Vec<KeptItem>,
    /// How many stay.
    pub kept_count: u64,
    /// Whether there is more: ask again.
    pub more: bool,
    /// Whether rows or files are still being cleared away in the background.
    pub pending: bool,
}

/// Something that stays, and why.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct KeptItem {
    pub kind: &'static str,
    pub id: String,
    pub why: String,
}

impl Due {
    pub(super) fn experiment(&self) -> ExperimentId {
        match self {
            Self::Experiment(id) | Self::Run(id, _) | Self::Model(id, _) => *id,
        }
    }

    pub(super) fn check(&self, kept: &References) -> Result<()> {
        match self {
            Self::Experiment(id) => kept.check_experiment(*id),
            Self::Run(_, run) => kept.check_run(*run),
            Self::Model(_, model) => kept.check_model(*model),
        }
    }

    fn named(&self) -> (&'static str, String) {
        match self {
            Self::Experiment(id) => ("experiment", id.to_string()),
            Self::Run(_, run) => ("run", run.to_string()),
            Self::Model(_, model) => ("logged-model", model.to_string()),
        }
    }
}

impl GcReport {
    pub(super) fn purged(&self) -> u64 {
        self.experiments + self.runs + self.logged_models
    }

    pub(super) fn count(&mut self, due: &Due) {
        match due {
            Due::Experiment(_) => self.experiments += 1,
            Due::Run(..) => self.runs += 1,
            Due::Model(..) => self.logged_models += 1,
        }
    }

    pub(super) fn keep(&mut self, due: &Due, why: &Error) {
        self.kept_count += 1;
        if self.kept.len() < NAMED {
            let (kind, id) = due.named();
            self.kept.push(KeptItem { kind, id, why: why.message().to_owned() });
        }
    }
}
