//! Where a job stands in line, and when it may start.

use std::cmp::{Ordering, Reverse};

use super::{Change, Estimate, Rule};
use crate::model::Millis;
use crate::scheduler::{Job, Scheduler, State};
use crate::waiting::{Lane, Score};

/// Who goes before a job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    pub(super) jobs: usize,
    /// That they ask for.
    pub(super) gpus: f64,
    /// How many of them do because their queue borrows as well, and has and has had less.
    pub(super) fairer: usize,
}

impl Scheduler {
    /// How many jobs go before one as the order stands, and the GPUs they ask for.
    pub(super) fn ahead_of(&self, slot: u32, job: &Job) -> Ahead {
        let mut ahead = Ahead::default();
        if job.state == State::First {
            let before = self.first.range(..(job.queued, job.sequence, slot));
            for &(_, _, other) in before {
                ahead.jobs += 1;
                ahead.gpus +=
                    self.job(other).map_or(0.0, |other| other.gpus(other.spec.nodes.min.into()));
            }
            return ahead;
        }
        for &(_, _, other) in &self.first {
            ahead.jobs += 1;
            ahead.gpus +=
                self.job(other).map_or(0.0, |other| other.gpus(other.spec.nodes.min.into()));
        }
        let own = match job.lane {
            Lane::Scored(score) => score,
            Lane::Fresh => Score::of(self.score(job)),
        };
        let own_fairness = self.fairness(job);
        let priority = Reverse(job.spec.priority);
        let (all, none) = ((priority, u64::MAX, u32::MAX), (priority, 0, 0));
        for &at in self.waiting.active() {
            let class = self.waiting.class(at);
            let scored = class.scored.first().map(|(_, _, _, first)| first);
            let fresh = class.fresh.first().map(|(_, _, first)| first);
            let Some(first) = fresh.or(scored).and_then(|first| self.job(first)) else { continue };
            let fairness = self.fairness(first);
            let here = match fairness.cmp(&own_fairness) {
                Ordering::Less => {
                    class.scored.before(&(priority, Score::LAST, u64::MAX, u32::MAX))
                        + class.fresh.before(&all)
                }
                Ordering::Greater => {
                    class.scored.before(&(priority, Score::FIRST, 0, 0)) + class.fresh.before(&none)
                }
                Ordering::Equal => {
                    let mut here = class.scored.before(&(priority, own, job.sequence, slot));
                    if let Some(first) = fresh.and_then(|first| self.job(first)) {
                        // All fresh jobs of a class have one score, and go in the order they came.
                        let key = match Score::of(self.score(first)).cmp(&own) {
                            Ordering::Less => all,
                            Ordering::Equal => (priority, job.sequence, slot),
                            Ordering::Greater => none,
                        };
                        here += class.fresh.before(&key);
                    }
                    here
                }
            };
            ahead.jobs += here;
            if fairness.0 && fairness < own_fairness {
                ahead.fairer += here;
            }
            let ask = &class.shape.ask;
            ahead.gpus += here as f64 * ask.gpus() * f64::from(class.shape.nodes.min);
        }
        ahead
    }

    /// When a job may start: when what it needs has become free at the rate of late, or when those
    /// who hold it end.
    pub(super) fn estimate(
        &self,
        slot: u32,
        job: &Job,
        rule: &Rule,
        changes: &[Change],
        gpus_ahead: f64,
    ) -> Option<Estimate> {
        if matches!(rule, Rule::Never(_) | Rule::NoNode) {
            return None;
        }
        if let Some(kept) = self.reservation.as_ref().filter(|kept| kept.slot == slot)
            && let Some(at) = kept.at
        {
            return Some(Estimate { earliest: self.now, likely: at, latest: at });
        }
        let ends = changes.iter().find_map(|change| match change {
            Change::JobsEnd { by, known, .. } => Some((*by, *known)),
            _ => None,
        });
        let needs = gpus_ahead + job.gpus(job.spec.nodes.min.into());
        let waiting = self.releases.rate(self.now).map(|rate| (needs / rate * 1000.0) as Millis);
        let likely = match (waiting, ends) {
            (Some(wait), Some((by, _))) if gpus_ahead > 0.0 => (self.now + wait).max(by),
            (_, Some((by, _))) => by,
            (Some(wait), None) => self.now + wait,
            (None, None) => return None,
        };
        let wait = likely - self.now;
        let sure = gpus_ahead == 0.0 && ends.is_some_and(|(_, known)| known);
        let latest = if sure { likely } else { self.now + wait.saturating_mul(3) };
        Some(Estimate { earliest: self.now + wait / 3, likely, latest })
    }
}
