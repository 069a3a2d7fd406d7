//! What is known of attempts on an engine elsewhere: how those ended that have, and since when something
//! is odd about the others.
//!
//! Must hold: an end that was told once is told for ever. It is written down before it is told.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::folder::{Folder, away, not_ended};
use crate::plain;
use crate::seam::{AttemptId, ExecutorError, Observed, Phase};
use crate::shared::Ending;
use crate::{End, shim};

/// The end as it was found out, once and for all.
pub(crate) const END: &str = "end.json";

#[derive(Debug)]
pub(crate) struct Ends {
    engine: &'static str,
    /// The file with an attempt's secrets, which nobody needs once it has ended.
    secrets: &'static str,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    ended: HashMap<AttemptId, Observed>,
    /// Since when something is waited for that should be there.
    odd_since: HashMap<AttemptId, Instant>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptEnd {
    end: End,
    started: Option<u64>,
    ended: u64,
}

impl Ends {
    pub(crate) fn new(engine: &'static str, secrets: &'static str) -> Self {
        Self { engine, secrets, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how long it has been odd.
    pub(crate) fn odd_for(&self, attempt: &AttemptId) -> Duration {
        self.known().odd_since.entry(attempt.clone()).or_insert_with(Instant::now).elapsed()
    }

    /// Whatever was odd before has passed.
    pub(crate) fn is_fine(&self, attempt: &AttemptId) {
        self.known().odd_since.remove(attempt);
    }

    #[cfg(test)]
    pub(crate) fn nothing_is_odd(&self) -> bool {
        self.known().odd_since.is_empty()
    }

    /// The end that was found out before.
    pub(crate) fn of(
        &self,
        folder: &Folder,
        attempt: &AttemptId,
    ) -> Result<Option<Observed>, ExecutorError> {
        if let Some(ended) = self.known().ended.get(attempt) {
            return Ok(Some(ended.clone()));
        }
        let folder = folder.of(attempt);
        let kept: Option<KeptEnd> =
            plain::get(&folder.join(END), plain::RECORD).map_err(|error| away(&folder, &error))?;
        Ok(kept.map(|kept| {
            let phase = Phase::Ended(kept.end);
            let observed = self.observed(attempt, phase, kept.started, Some(kept.ended));
            self.known().ended.insert(attempt.clone(), observed.clone());
            observed
        }))
    }

    /// An attempt as it was found now. An end is written down.
    pub(crate) fn found(
        &self,
        folder: &Folder,
        attempt: &AttemptId,
        phase: Phase,
        started: Option<u64>,
        ending: Option<&Ending>,
    ) -> io::Result<Observed> {
        let Phase::Ended(end) = &phase else {
            return Ok(self.observed(attempt, phase, started, None));
        };
        let ended = ending.map_or_else(shim::now, |ending| ending.ended);
        let folder = folder.of(attempt);
        plain::remove(&folder.join(self.secrets));
        plain::put_durably(&folder.join(END), &KeptEnd { end: end.clone(), started, ended })?;
        Ok(self.observed(attempt, phase, started, Some(ended)))
    }

    /// Refuses what has not ended. Where no end is known yet, `look` is asked how it stands.
    pub(crate) fn require(
        &self,
        folder: &Folder,
        attempt: &AttemptId,
        look: impl FnOnce() -> Result<Option<Observed>, ExecutorError>,
    ) -> Result<(), ExecutorError> {
        let observed = match self.of(folder, attempt)? {
            Some(ended) => Some(ended),
            None => look()?,
        };
        if observed.is_some_and(|one| !matches!(one.phase, Phase::Ended(_))) {
            return Err(not_ended(attempt));
        }
        Ok(())
    }

    pub(crate) fn forget(&self, attempt: &AttemptId) {
        let mut known = self.known();
        known.ended.remove(attempt);
        known.odd_since.remove(attempt);
    }

    fn observed(
        &self,
        attempt: &AttemptId,
        phase: Phase,
        started: Option<u64>,
        ended: Option<u64>,
    ) -> Observed {
        let isolation = self.engine.to_owned();
        Observed { attempt: attempt.clone(), phase, started, ended, isolation }
    }
}
