//! Which outputs are copied when, by whom, and from where.
//!
//! Must hold:
//! - An output is copied by one at a time.
//! - A node that does not answer costs little time: what could not be copied is tried again later and later, and who
//!   copies says until when it may take. Who got no time is the next, and first of all those whose end waits for it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};

use super::api::{Api, Fault};
use super::logs::{self, Copied, Source};
use super::names;
use super::objects::Kept;
use super::state::{self, Table};
use crate::AttemptId;

/// How often output is copied: soon again where some came, and more and more rarely where none does.
const SOONEST: Duration = Duration::from_secs(2);
const LATEST: Duration = Duration::from_secs(20);
/// The same where it could not be had.
const LATEST_FAILED: Duration = Duration::from_mins(1);
/// How old a copy may be that somebody reads.
const READ: Duration = Duration::from_millis(500);
/// How many outputs are copied at a time, and at one look.
const AT_A_TIME: usize = 16;
const MOST: usize = 256;
/// How much longer than it may take a copy is waited for: it ends by itself.
const SPARE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Copies {
    known: Mutex<HashMap<AttemptId, Vec<Copy>>>,
    turns: Mutex<HashMap<AttemptId, Turn>>,
}

/// When an attempt had its turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Whether all of it was wanted.
    all: bool,
    last: Option<Instant>,
}

#[derive(Debug)]
struct Copy {
    source: Source,
    last: Option<Instant>,
    pause: Duration,
    /// Whether it could not be had the last time.
    failed: bool,
    busy: bool,
}

impl Copy {
    /// How it is with its container now. What a pod writes before it is removed is to be had only until then.
    fn is(&mut self, ended: bool, removed: bool) {
        self.source.ended = ended;
        self.source.removed = removed;
        if removed && !self.failed {
            self.pause = self.pause.min(READ);
        }
    }

    /// Whether it is too early to try again what did not work.
    fn rests(&self) -> bool {
        self.failed && self.last.is_some_and(|last| last.elapsed() < self.pause)
    }
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

/// What is to be copied.
struct Taken {
    sources: Vec<Source>,
    /// Whether some is left to others, or for later.
    left: bool,
    /// Whether some could not be had a moment ago.
    rests: bool,
}

impl Copies {
    fn known(&self) -> MutexGuard<'_, HashMap<AttemptId, Vec<Copy>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<AttemptId, Turn>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts those first of whom all is wanted, and among them those whose turn was the longest ago.
    pub(super) fn sort<T>(&self, attempts: &mut [(AttemptId, T)]) {
        let turns = self.turns();
        attempts.sort_by_key(|(attempt, _)| {
            let turn = turns.get(attempt).copied().unwrap_or_default();
            (!turn.all, turn.last)
        });
    }

    /// Writes down that it is an attempt's turn, for so long.
    fn turn(&self, attempt: &AttemptId, which: Which, within: Duration) {
        // Whoever reads one output takes no time from others.
        if matches!(which, Which::Of(_)) {
            return;
        }
        let mut turns = self.turns();
        let turn = turns.entry(attempt.clone()).or_default();
        turn.all = which == Which::All;
        if !within.is_zero() {
            turn.last = Some(Instant::now());
        }
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
            let removed = pod.is_some_and(state::takes_its_output_along);
            let Some(pod) = pod.and_then(|pod| pod.metadata.name.clone()) else { continue };
            let Ok(number) = u32::try_from(number) else { continue };
            let ended = rank.is_over();
            match copies.iter_mut().find(|copy| copy.source.rank == number) {
                Some(copy) => copy.is(ended, removed),
                None => copies.push(Copy {
                    source: Source {
                        folder: folder.to_owned(),
                        rank: number,
                        pod,
                        container: names::container(own),
                        ended,
                        removed,
                        keep,
                    },
                    last: None,
                    pause: Duration::ZERO,
                    failed: false,
                    busy: false,
                }),
            }
        }
    }

    pub(super) fn forget(&self, attempt: &AttemptId) {
        self.known().remove(attempt);
        self.turns().remove(attempt);
    }

    /// The ranks that have written something, and where it is copied from.
    pub(super) fn sources(&self, attempt: &AttemptId) -> Vec<Source> {
        let known = self.known();
        known.get(attempt).into_iter().flatten().map(|copy| copy.source.clone()).collect()
    }

    /// Copies some outputs of an attempt, for so long at most; whether all of them are here as far as they go. What
    /// cannot be had, or could not a moment ago, is a fault.
    pub(super) fn copy(
        &self,
        api: &Api,
        attempt: &AttemptId,
        which: Which,
        within: Duration,
    ) -> Result<bool, Fault> {
        self.turn(attempt, which, within);
        if within.is_zero() {
            return Ok(false);
        }
        let Taken { sources, left, rests } = self.take(attempt, which);
        let rests = || {
            let text = "Kubernetes: its output could not be read a moment ago".to_owned();
            if rests { Err(Fault::Away(text)) } else { Ok(()) }
        };
        if sources.is_empty() {
            return rests().map(|()| !left);
        }
        let ranks: Vec<u32> = sources.iter().map(|source| source.rank).collect();
        let until = tokio::time::Instant::now() + within;
        let copied = stream::iter(sources)
            .map(|source| one(api, source, which == Which::All, until))
            .buffer_unordered(AT_A_TIME)
            .collect::<Vec<_>>();
        let copied = api.within(within + SPARE, copied);
        self.give_back(attempt, &ranks, copied.as_deref().unwrap_or_default());
        let mut whole = !left;
        for (_, outcome, _) in copied? {
            whole &= outcome? == Copied::All;
        }
        rests().map(|()| whole)
    }

    fn take(&self, attempt: &AttemptId, which: Which) -> Taken {
        let mut taken = Taken { sources: Vec::new(), left: false, rests: false };
        let mut known = self.known();
        let Some(copies) = known.get_mut(attempt) else { return taken };
        let is_due = |copy: &Copy| match which {
            Which::Due => copy.last.is_none_or(|last| last.elapsed() >= copy.pause),
            Which::Of(rank) => {
                copy.source.rank == rank && copy.last.is_none_or(|last| last.elapsed() >= READ)
            }
            Which::All => true,
        };
        let most = if which == Which::All { usize::MAX } else { MOST };
        for copy in copies.iter_mut().filter(|copy| is_due(copy)) {
            taken.rests |= copy.rests();
            if copy.busy || copy.rests() || taken.sources.len() >= most {
                taken.left = true;
                continue;
            }
            copy.busy = true;
            taken.sources.push(copy.source.clone());
        }
        taken
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
            let outcome = outcomes.iter().find(|(rank, ..)| *rank == copy.source.rank);
            copy.busy = false;
            copy.last = Some(Instant::now());
            // One of which nothing is told took too long.
            copy.failed = outcome.is_none_or(|(_, outcome, _)| outcome.is_err());
            let latest = if copy.failed { LATEST_FAILED } else { LATEST };
            let grew = outcome.is_some_and(|(.., grew)| *grew);
            copy.pause = if grew { SOONEST } else { (copy.pause * 2).clamp(SOONEST, latest) };
        }
    }
}

/// Copies one output; whether some came.
async fn one(
    api: &Api,
    source: Source,
    all: bool,
    until: tokio::time::Instant,
) -> (u32, Result<Copied, Fault>, bool) {
    let length = || logs::length(&source).unwrap_or(0);
    let before = length();
    let mut outcome = logs::copy(api, &source, until).await;
    while all && matches!(outcome, Ok(Copied::Part)) && tokio::time::Instant::now() < until {
        outcome = logs::copy(api, &source, until).await;
    }
    let grew = length() != before;
    (source.rank, outcome, grew)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies(attempt: &AttemptId) -> Copies {
        let source = |rank: u32| Source {
            folder: "/nowhere".into(),
            rank,
            pod: format!("pod-{rank}"),
            container: "rank-0".to_owned(),
            ended: false,
            removed: false,
            keep: 1,
        };
        let of = |rank| Copy {
            source: source(rank),
            last: None,
            pause: Duration::ZERO,
            failed: false,
            busy: false,
        };
        let copies = Copies::default();
        copies.known().insert(attempt.clone(), vec![of(0), of(1)]);
        copies
    }

    const COPIED: Duration = Duration::from_secs(1);

    fn ranks(taken: &Taken) -> Vec<u32> {
        taken.sources.iter().map(|source| source.rank).collect()
    }

    #[test]
    fn what_could_not_be_had_rests_and_holds_nobody_up() {
        let attempt = AttemptId::new("job-1").unwrap();
        let copies = copies(&attempt);
        let all = copies.take(&attempt, Which::All);
        assert_eq!((ranks(&all), all.left, all.rests), (vec![0, 1], false, false));
        // Somebody copies them: whoever needs them all has not got them.
        let none = copies.take(&attempt, Which::All);
        assert_eq!((ranks(&none), none.left, none.rests), (vec![], true, false));
        // The first came, of the second nothing was heard in time.
        copies.give_back(&attempt, &[0, 1], &[(0, Ok(Copied::All), true)]);
        let again = copies.take(&attempt, Which::All);
        assert_eq!((ranks(&again), again.left, again.rests), (vec![0], true, true));
        copies.give_back(&attempt, &[0], &[(0, Ok(Copied::All), true)]);
        let pause = |copies: &Copies| copies.known()[&attempt][1].pause;
        assert_eq!(pause(&copies), SOONEST);
        for _ in 0..10 {
            copies.give_back(&attempt, &[1], &[]);
        }
        assert_eq!(pause(&copies), LATEST_FAILED);
    }

    #[test]
    fn of_a_pod_that_is_being_removed_output_is_due_at_every_look() {
        let attempt = AttemptId::new("job-1").unwrap();
        let copies = copies(&attempt);
        for _ in 0..10 {
            copies.give_back(&attempt, &[0, 1], &[(0, Ok(Copied::All), false)]);
        }
        let pauses = |copies: &Copies| {
            let known = copies.known();
            [known[&attempt][0].pause, known[&attempt][1].pause]
        };
        assert_eq!(pauses(&copies), [LATEST, LATEST_FAILED]);
        copies.known().get_mut(&attempt).unwrap().iter_mut().for_each(|copy| copy.is(false, true));
        // What could not be had still rests.
        assert_eq!(pauses(&copies), [READ, LATEST_FAILED]);
    }

    #[test]
    fn who_got_no_time_is_the_next_and_ends_come_first() {
        let copies = Copies::default();
        let of = |name: &str| AttemptId::new(name).unwrap();
        let sorted = || {
            let mut all: Vec<_> = ["a", "b", "c", "d"].map(|name| (of(name), ())).into();
            copies.sort(&mut all);
            all.iter().map(|(attempt, ())| attempt.to_string()).collect::<String>()
        };
        let (some, none) = (COPIED, Duration::ZERO);
        copies.turn(&of("a"), Which::Due, some);
        copies.turn(&of("b"), Which::Due, none);
        copies.turn(&of("c"), Which::All, some);
        copies.turn(&of("d"), Which::All, none);
        assert_eq!(sorted(), "dcba");
        // Those that do not answer use up one look each, and not every one.
        copies.turn(&of("d"), Which::All, some);
        assert_eq!(sorted(), "cdba");
        copies.turn(&of("b"), Which::Of(0), some);
        assert_eq!(sorted(), "cdba");
        copies.turn(&of("b"), Which::Due, some);
        assert_eq!(sorted(), "cdab");
        copies.forget(&of("c"));
        assert_eq!(sorted(), "dcab");
    }
}
