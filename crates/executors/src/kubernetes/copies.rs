//! Which outputs are copied when, by whom, and from where.
//!
//! Must hold: an output is copied by one at a time.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};

use super::api::{Api, Fault};
use super::logs::{self, Copied, Source};
use super::names;
use super::objects::Kept;
use super::state::Table;
use crate::AttemptId;

/// How often output is copied: soon again where some came, and more and more rarely where none does.
const SOONEST: Duration = Duration::from_secs(2);
const LATEST: Duration = Duration::from_secs(20);
/// How old a copy may be that somebody reads.
const READ: Duration = Duration::from_millis(500);
/// How many outputs are copied at a time, and at one look.
const AT_A_TIME: usize = 16;
const MOST: usize = 256;
const WITHIN: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(super) struct Copies {
    known: Mutex<HashMap<AttemptId, Vec<Copy>>>,
}

#[derive(Debug)]
struct Copy {
    source: Source,
    last: Option<Instant>,
    pause: Duration,
    busy: bool,
}

/// Which outputs are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Those whose turn it is.
    Due,
    /// That of one rank, unless it has just been copied.
    Of(u32),
    /// All of them, to the end.
    All,
}

impl Copies {
    fn known(&self) -> MutexGuard<'_, HashMap<AttemptId, Vec<Copy>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose output there is, from now on.
    pub(super) fn note(
        &self,
        attempt: &AttemptId,
        kept: &Kept,
        table: &Table<'_>,
        folder: &Path,
        keep: u64,
    ) {
        let mut known = self.known();
        let copies = known.entry(attempt.clone()).or_default();
        for (number, rank) in table.ranks.iter().enumerate().filter(|(_, rank)| rank.has_output()) {
            let (node, own) = (number / kept.per_node.max(1), number % kept.per_node.max(1));
            let pod = table.pods.get(node).copied().flatten();
            let Some(pod) = pod.and_then(|pod| pod.metadata.name.clone()) else { continue };
            let Ok(number) = u32::try_from(number) else { continue };
            match copies.iter_mut().find(|copy| copy.source.rank == number) {
                Some(copy) => copy.source.ended = rank.is_over(),
                None => copies.push(Copy {
                    source: Source {
                        folder: folder.to_owned(),
                        rank: number,
                        pod,
                        container: names::container(own),
                        ended: rank.is_over(),
                        keep,
                    },
                    last: None,
                    pause: Duration::ZERO,
                    busy: false,
                }),
            }
        }
    }

    pub(super) fn forget(&self, attempt: &AttemptId) {
        self.known().remove(attempt);
    }

    /// Copies some outputs of an attempt; whether all of them are here as far as they go.
    pub(super) fn copy(&self, api: &Api, attempt: &AttemptId, which: Which) -> Result<bool, Fault> {
        let Some(due) = self.take(attempt, which) else { return Ok(false) };
        if due.is_empty() {
            return Ok(true);
        }
        let ranks: Vec<u32> = due.iter().map(|source| source.rank).collect();
        let copied = stream::iter(due)
            .map(|source| one(api, source, which == Which::All))
            .buffer_unordered(AT_A_TIME)
            .collect::<Vec<_>>();
        let copied = api.within(WITHIN, copied);
        self.give_back(attempt, &ranks, copied.as_deref().unwrap_or_default());
        let mut whole = true;
        for (_, outcome, _) in copied? {
            whole &= outcome? == Copied::All;
        }
        Ok(whole)
    }

    /// What is to be copied, taken; `None` if somebody else copies some of it.
    fn take(&self, attempt: &AttemptId, which: Which) -> Option<Vec<Source>> {
        let mut known = self.known();
        let Some(copies) = known.get_mut(attempt) else { return Some(Vec::new()) };
        let is_due = |copy: &Copy| match which {
            Which::Due => copy.last.is_none_or(|last| last.elapsed() >= copy.pause),
            Which::Of(rank) => {
                copy.source.rank == rank && copy.last.is_none_or(|last| last.elapsed() >= READ)
            }
            Which::All => true,
        };
        if which == Which::All && copies.iter().any(|copy| copy.busy) {
            return None;
        }
        let most = if which == Which::All { usize::MAX } else { MOST };
        let mut taken = Vec::new();
        for copy in copies.iter_mut().filter(|copy| !copy.busy && is_due(copy)).take(most) {
            copy.busy = true;
            taken.push(copy.source.clone());
        }
        Some(taken)
    }

    fn give_back(
        &self,
        attempt: &AttemptId,
        ranks: &[u32],
        outcomes: &[(u32, Result<Copied, Fault>, bool)],
    ) {
        let mut known = self.known();
        let copies = known.get_mut(attempt).map(Vec::as_mut_slice).unwrap_or_default();
        for copy in copies.iter_mut().filter(|copy| ranks.contains(&copy.source.rank)) {
            copy.busy = false;
            copy.last = Some(Instant::now());
            let grew = outcomes.iter().any(|(rank, _, grew)| *rank == copy.source.rank && *grew);
            copy.pause = if grew { SOONEST } else { (copy.pause * 2).clamp(SOONEST, LATEST) };
        }
    }
}

/// Copies one output; whether some came.
async fn one(api: &Api, source: Source, all: bool) -> (u32, Result<Copied, Fault>, bool) {
    let length = || logs::length(&source).unwrap_or(0);
    let before = length();
    let mut outcome = logs::copy(api, &source).await;
    while all && matches!(outcome, Ok(Copied::Part)) {
        outcome = logs::copy(api, &source).await;
    }
    let grew = length() != before;
    (source.rank, outcome, grew)
}
