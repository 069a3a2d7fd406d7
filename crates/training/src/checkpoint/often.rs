//! How often ranks report: so often and no more, and on the audit log by the second.
//!
//! Thousands of ranks that say how far they are would be most of what a server writes. A report of a
//! checkpoint is an entry of its own, and so is the first of a start in a second; all others of that second
//! are counted, and are one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use falaj_base::{Ctx, Error, Resource, Result, Timestamp, code};
use falaj_governance::audit::{ReadLog, Tally};

use crate::JOB_REPORT;
use crate::name::StartId;

/// Starts that are remembered.
const REMEMBERED: usize = 100_000;
const SECOND: i64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Reports {
    most: u32,
    tally: Tally,
    /// How many came in the second that began then.
    heard: Mutex<HashMap<StartId, (i64, u32)>>,
}

impl Reports {
    pub(crate) fn new(most: u32, reads: ReadLog) -> Self {
        let tally = Tally::new(&JOB_REPORT, reads);
        Self { most: most.max(1), tally, heard: Mutex::default() }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Takes a report in, unless the start has sent too many in this second; whether it is the first.
    pub(crate) fn hear(&self, id: StartId, now: Timestamp) -> Result<bool> {
        let second = now.micros().div_euclid(SECOND);
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.len() >= REMEMBERED {
            heard.retain(|_, (since, _)| *since == second);
        }
        let entry = heard.entry(id).or_insert((second, 0));
        if entry.0 != second {
            *entry = (second, 0);
        }
        if entry.1 >= self.most {
            let text = format!(
                "a start reports at most {} times in a second, all its ranks together \
                 (`training.max_reports`)",
                self.most
            );
            return Err(Error::new(&code::RATE_LIMITED, text));
        }
        entry.1 += 1;
        Ok(entry.1 == 1)
    }

    /// Counts a report that changed nothing but how far a rank is.
    pub(crate) fn count(&self, ctx: &Ctx, of: &Resource, now: Timestamp) {
        self.tally.count(ctx, of, now);
        ctx.note_recorded(&JOB_REPORT);
    }
}
