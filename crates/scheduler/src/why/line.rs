//! Where a job stands in line, and when it may start.

use std::cmp::Reverse;

use super::{Change, Estimate, Rule};
use crate::model::Millis;
use crate::scheduler::{Job, Scheduler, State};
use crate::waiting::{Lane, Score};

impl Scheduler {
    /// How many jobs go before one as the order stands, and the GPUs they ask for.
    pub(super) fn ahead_of(&self, slot: u32, job: &Job) -> (usize, f64) {
        let mut ahead = 0;
        let mut gpus = 0.0;
        if job.state == State::First {
            let before = self.first.range(..(job.queued, job.sequence, slot));
            for &(_, _, other) in before {
                ahead += 1;
                gpus +=
                    self.job(other).map_or(0.0, |other| other.gpus(other.spec.nodes.min.into()));
            }
            return (ahead, gpus);
        }
        for &(_, _, other) in &self.first {
            ahead += 1;
            gpus += self.job(other).map_or(0.0, |other| other.gpus(other.spec.nodes.min.into()));
        }
        let own = match job.lane {
            Lane::Scored(score) => score,
            Lane::Fresh => Score::of(self.score(job)),
        };
        let priority = Reverse(job.spec.priority);
        for &at in self.waiting.active() {
            let class = self.waiting.class(at);
            let mut here = class.scored.before(&(priority, own, job.sequence, slot));
            if let Some((_, _, first)) = class.fresh.first()
                && let Some(first_job) = self.job(first)
            {
                // All fresh jobs of a class have one score, and go in the order they came.
                let score = Score::of(self.score(first_job));
                let key = match score.cmp(&own) {
                    std::cmp::Ordering::Less => (priority, u64::MAX, u32::MAX),
                    std::cmp::Ordering::Equal => (priority, job.sequence, slot),
                    std::cmp::Ordering::Greater => (priority, 0, 0),
                };
                here += class.fresh.before(&key);
            }
            ahead += here;
            let ask = &class.shape.ask;
            gpus += here as f64 * ask.gpus() * f64::from(class.shape.nodes.min);
        }
        (ahead, gpus)
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
