//! Whether a start is idle, and what its rule says is done then. Pure.

use std::time::Duration;

use falaj_base::Timestamp;

use super::config::{IdleAction, IdlePolicy};
use super::summary::Summary;

/// What is known of a start that may be idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// When it got its nodes.
    pub(crate) started: Timestamp,
    /// Whether its definition says `reclaim = false`.
    pub(crate) protected: bool,
    /// Whether it was told to leave its nodes already.
    pub(crate) leaving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Busy,
    /// Since then, and what is to be done.
    Idle {
        since: Timestamp,
        action: IdleAction,
    },
}

/// What a start is by its rule. Readings from before it started are none of its own.
pub(crate) fn judge(
    summary: &Summary,
    about: About,
    policy: &IdlePolicy,
    now: Timestamp,
) -> Verdict {
    let after: Duration = policy.after.get();
    let Some(since) = summary.idle_since.map(|since| since.max(about.started)) else {
        return Verdict::Busy;
    };
    // The last reading must be new: one who is not looked at is not judged.
    let fresh = summary.last.as_ref().is_some_and(|last| now.since(last.at) < after);
    let young = now.since(about.started) < after || now.since(since) < after;
    if !fresh || young || policy.action == IdleAction::Ignore {
        return Verdict::Busy;
    }
    let keeps = about.leaving || (about.protected && policy.allow_protected);
    let action = if keeps { IdleAction::Report } else { policy.action };
    Verdict::Idle { since, action }
}

#[cfg(test)]
mod tests {
    use falaj_base::HumanDuration;

    use super::super::reading::{GpuSample, Has, Sample};
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_micros(minutes * 60_000_000)
    }

    /// Idle from a minute on, looked at every minute until another.
    fn idle(from: i64, until: i64) -> Summary {
        let mut summary = Summary::new(Has { cores: 1.0, memory_bytes: 1, gpus: 1.0 });
        for minute in from - 1..=until {
            let utilization = Some(if minute < from { 90.0 } else { 1.0 });
            let sample = Sample {
                at: at(minute),
                cpu_cores: None,
                cpu_percent: None,
                memory_bytes: None,
                peak_memory_bytes: None,
                read_bytes: None,
                written_bytes: None,
                read_per_second: None,
                written_per_second: None,
                gpus: vec![GpuSample { utilization, ..GpuSample::default() }],
            };
            summary.add(sample, 5.0, false);
        }
        summary
    }

    #[test]
    fn nobody_is_idle_before_its_time_and_nobody_leaves_who_may_stay() {
        use IdleAction::{Ignore, Reclaim, Report};
        let about =
            |started, protected, leaving| About { started: at(started), protected, leaving };
        let plain = about(0, false, false);
        for (summary, about, action, allow, now, expected) in [
            (idle(10, 39), plain, Reclaim, false, 39, None),
            (idle(10, 40), plain, Reclaim, false, 40, Some(Reclaim)),
            (idle(10, 40), plain, Report, false, 40, Some(Report)),
            (idle(10, 40), plain, Ignore, false, 40, None),
            // It has had its nodes for ten minutes only.
            (idle(10, 40), about(30, false, false), Reclaim, false, 40, None),
            // Nobody has looked for an hour.
            (idle(10, 40), plain, Reclaim, false, 100, None),
            (idle(10, 40), about(0, true, false), Reclaim, true, 40, Some(Report)),
            (idle(10, 40), about(0, true, false), Reclaim, false, 40, Some(Reclaim)),
            (idle(10, 40), about(0, false, true), Reclaim, false, 40, Some(Report)),
        ] {
            let policy = IdlePolicy {
                action,
                allow_protected: allow,
                after: HumanDuration::from_mins(30),
                ..IdlePolicy::default()
            };
            let expected =
                expected.map_or(Verdict::Busy, |action| Verdict::Idle { since: at(10), action });
            assert_eq!(judge(&summary, about, &policy, at(now)), expected, "{about:?} {now}");
        }
    }
}
