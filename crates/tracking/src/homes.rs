//! Where each run lives. A run never moves, so the answer can be remembered; that spares every
//! logging call a read. Another server may purge a run that is remembered here: whoever acts on
//! one finds its row gone, or nothing.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use falaj_base::ProjectId;

use crate::experiment::ExperimentId;
use crate::run::RunId;

/// How many runs are remembered; about a hundred bytes each.
const REMEMBERED: usize = 100_000;

/// The project and experiment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) project: ProjectId,
    pub(crate) experiment: i64,
    pub(crate) experiment_id: ExperimentId,
}

#[derive(Debug, Default)]
pub(crate) struct Homes(RwLock<HashMap<RunId, Address>>);

impl Homes {
    pub(crate) fn get(&self, run: RunId) -> Option<Address> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&run).copied()
    }

    /// Forgets a run that was deleted for good.
    pub(crate) fn forget(&self, run: RunId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&run);
    }

    /// Forgets everything: an experiment was deleted for good.
    pub(crate) fn clear(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn remember(&self, run: RunId, address: Address) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(run, address);
    }
}
