//! Jobs by what a start of them costs at least: where that is the same, all of them have money or none
//! has, so that nobody looks at each. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use falaj_base::{ProjectId, TenantId, Timestamp};

use crate::budget::Running;
use crate::name::JobId;

/// What a start costs at least, and who pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Least {
    pub(crate) place: (TenantId, ProjectId),
    /// On the cheapest nodes that it could have, for an hour, in millionths.
    pub(crate) price: u64,
    pub(crate) limit: Option<Duration>,
}

impl Least {
    /// Such a start, were it made now.
    pub(crate) fn start(&self, now: Timestamp) -> Running {
        let until = self.limit.map(|limit| now + limit);
        Running { price: self.price, since: now, until }
    }
}

/// Jobs that the scheduler may know tasks of, where there are budgets.
#[derive(Debug, Default)]
pub(crate) struct Loose {
    jobs: BTreeMap<Least, BTreeSet<JobId>>,
    /// Grows with every job.
    version: u64,
    /// Which changes were there when all of them were asked for their money, and when that was.
    pub(crate) asked: Option<(u64, u64, Timestamp)>,
}

impl Loose {
    pub(crate) fn insert(&mut self, least: Least, job: JobId) {
        if self.jobs.entry(least).or_default().insert(job) {
            self.version += 1;
        }
    }

    pub(crate) fn remove(&mut self, least: &Least, job: JobId) {
        let Some(jobs) = self.jobs.get_mut(least) else { return };
        jobs.remove(&job);
        if jobs.is_empty() {
            self.jobs.remove(least);
        }
    }

    /// All that cost the same.
    pub(crate) fn take(&mut self, least: &Least) -> BTreeSet<JobId> {
        self.jobs.remove(least).unwrap_or_default()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Least> {
        self.jobs.keys()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_cost_the_same_are_taken_together() {
        let place = (TenantId::new(), ProjectId::new());
        let least = |price| Least { place, price, limit: Some(Duration::from_mins(5)) };
        let (one, two, dear) = (JobId::new(), JobId::new(), JobId::new());
        let mut loose = Loose::default();
        loose.insert(least(1), one);
        loose.insert(least(1), two);
        loose.insert(least(9), dear);
        let version = loose.version();
        loose.insert(least(1), one);
        assert_eq!(loose.version(), version, "it was there");
        loose.remove(&least(1), two);
        assert_eq!(loose.take(&least(1)), BTreeSet::from([one]));
        assert_eq!(loose.all().collect::<Vec<_>>(), [&least(9)]);
        assert!(loose.take(&least(1)).is_empty());
    }
}
