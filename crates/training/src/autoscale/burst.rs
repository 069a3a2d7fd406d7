//! Who may go from a pool that has no room to another one. Pure.
//!
//! Must hold: a job goes only where its project's data may be, and only if it says that it may.

use std::time::Duration;

use falaj_base::{Name, Timestamp};

/// A job that waits.
#[derive(Clone, Debug)]
pub struct Waits<'a> {
    pub pool: &'a Name,
    pub tenant: &'a Name,
    /// Whether its definition allows it.
    pub burst: bool,
    /// The zones that its definition names; any if empty.
    pub zones: &'a [Name],
    /// Zones that residency rules allow for its project.
    pub allowed: &'a [Name],
    pub since: Timestamp,
    /// Whether any of it has started: what it saved lies in its pool.
    pub started: bool,
}

/// A pool that takes jobs of others.
#[derive(Clone, Debug)]
pub struct Takes<'a> {
    pub pools: &'a [Name],
    pub tenants: Option<&'a [Name]>,
    /// The zones of its nodes.
    pub zones: &'a [Name],
    pub after: Duration,
}

/// The zones of the other pool that a job may be in; none if it stays where it is.
#[must_use]
pub fn zones(job: &Waits<'_>, pool: &Takes<'_>, now: Timestamp) -> Vec<Name> {
    let may = job.burst
        && !job.started
        && pool.pools.contains(job.pool)
        && pool.tenants.is_none_or(|tenants| tenants.contains(job.tenant))
        && now.since(job.since) >= pool.after;
    if !may {
        return Vec::new();
    }
    let fits = |zone: &&Name| {
        job.allowed.contains(zone) && (job.zones.is_empty() || job.zones.contains(zone))
    };
    pool.zones.iter().filter(fits).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn a_job_leaves_only_for_where_its_data_may_be() {
        let (here, acme, other) = (name("here"), name("acme"), name("other"));
        let (dubai, dublin) = (name("dubai"), name("dublin"));
        let cloud = [dubai.clone(), dublin.clone()];
        let all = [dubai.clone(), dublin.clone(), name("home")];
        let only = [dubai.clone()];
        let from = [here.clone()];
        let job = Waits {
            pool: &here,
            tenant: &acme,
            burst: true,
            zones: &[],
            allowed: &only,
            since: Timestamp::from_micros(0),
            started: false,
        };
        let pool =
            Takes { pools: &from, tenants: None, zones: &cloud, after: Duration::from_mins(1) };
        let now = Timestamp::from_micros(60_000_000);
        assert_eq!(zones(&job, &pool, now), only);
        let free = Waits { allowed: &all, ..job.clone() };
        assert_eq!(zones(&free, &pool, now), cloud);
        let named = [dublin.clone()];
        assert_eq!(zones(&Waits { zones: &named, ..free.clone() }, &pool, now), named);
        let nowhere: [Name; 0] = [];
        for (job, pool, now) in [
            (Waits { burst: false, ..job.clone() }, pool.clone(), now),
            (Waits { started: true, ..job.clone() }, pool.clone(), now),
            (Waits { pool: &other, ..job.clone() }, pool.clone(), now),
            (Waits { zones: &named, ..job.clone() }, pool.clone(), now),
            (Waits { allowed: &[], ..job.clone() }, pool.clone(), now),
            (job.clone(), Takes { tenants: Some(&[]), ..pool.clone() }, now),
            (job.clone(), pool.clone(), Timestamp::from_micros(59_000_000)),
        ] {
            assert_eq!(zones(&job, &pool, now), nowhere, "{job:?}");
        }
    }
}
