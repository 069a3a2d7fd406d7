//! What attempts use, where the cluster has metrics (`metrics.k8s.io`).
//!
//! The cluster says how many cores a container used over some seconds, and its memory. CPU time is added up from
//! that, so it is an estimate; what is read and written is not told.
//!
//! Must hold:
//! - What an attempt has used does not become less, also after this process was started anew.
//! - Of one that runs, something is told when it was measured anew, and nothing otherwise: the same sum again would
//!   say that it does nothing.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::api::DynamicObject;
use serde_json::Value;

use super::api::Fault;
use super::{KubernetesExecutor, names};
use crate::ends::END;
use crate::folder::away;
use crate::plain;
use crate::seam::{AttemptId, ExecutorError, Usage};

const USAGE: &str = "usage.json";
/// How often the cluster is asked; it measures about as often.
const EVERY: Duration = Duration::from_secs(15);
/// How long a cluster is left alone that has no metrics, or lets us see none.
const NONE: Duration = Duration::from_mins(10);
/// The longest time that one measurement stands for.
const LONGEST: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct Meters(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// When to ask again.
    next: Option<Instant>,
    last: Option<Instant>,
    /// What was measured last, by the names of jobs: cores and bytes.
    now: HashMap<String, Measured>,
    /// Since when it was not added up.
    since: HashMap<AttemptId, Instant>,
}

/// Cores that are used, and bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Measured {
    cores: f64,
    memory: u64,
}

impl Meters {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is time to ask; whoever is told so asks.
    fn is_due(&self) -> bool {
        let mut known = self.known();
        let is_due = known.next.is_none_or(|next| Instant::now() >= next);
        if is_due {
            known.next = Some(Instant::now() + EVERY);
        }
        is_due
    }

    pub(super) fn forget(&self, attempt: &AttemptId) {
        self.known().since.remove(attempt);
    }

    /// What was measured of an attempt, and for how long that stands, if there is something new.
    fn take(&self, attempt: &AttemptId) -> Option<(Measured, Duration)> {
        let mut known = self.known();
        let (last, measured) = (known.last?, *known.now.get(&names::job(attempt))?);
        let since = known.since.insert(attempt.clone(), last);
        match since {
            Some(since) if since >= last => None,
            Some(since) => Some((measured, (last - since).min(LONGEST))),
            None => Some((measured, EVERY)),
        }
    }
}

/// A number with a unit as the cluster writes it: `250m`, `1536Ki`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, and not below 0"
)]
fn quantity(text: &str) -> Option<f64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

/// What the containers of a pod use.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes, and not below 0"
)]
fn measured(pod: &Value) -> Measured {
    let containers = pod["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |name: &str| -> f64 {
        let texts = containers.iter().filter_map(|one| one["usage"][name].as_str());
        texts.filter_map(quantity).sum()
    };
    Measured { cores: of("cpu"), memory: of("memory") as u64 }
}

impl Usage {
    /// The same after some more time in which so much was used.
    fn after(self, measured: Measured, time: Duration) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds + measured.cores * time.as_secs_f64(),
            memory_bytes: measured.memory,
            peak_memory_bytes: self.peak_memory_bytes.max(measured.memory),
            ..self
        }
    }
}

impl KubernetesExecutor {
    pub(super) fn measure(&self, attempt: &AttemptId) -> Result<Option<Usage>, ExecutorError> {
        let folder = self.folder.known(attempt)?;
        let failed = |error: io::Error| away(&folder, &error);
        if self.meters.is_due() {
            self.read_meters();
        }
        let path = folder.join(USAGE);
        let before: Option<Usage> = plain::get(&path, plain::RECORD).map_err(failed)?;
        let Some((measured, time)) = self.meters.take(attempt) else {
            let is_over = plain::is_there(&folder.join(END));
            return Ok(before.filter(|_| is_over));
        };
        let after = before.unwrap_or_default().after(measured, time);
        plain::put(&path, &after).map_err(failed)?;
        Ok(Some(after))
    }

    fn read_meters(&self) {
        let listed = self.api.metrics(&self.labels());
        let mut known = self.meters.known();
        let pods: Vec<DynamicObject> = match listed {
            Ok(pods) => pods,
            Err(fault) => {
                tracing::debug!(?fault, "the cluster tells nobody what pods use");
                if !matches!(fault, Fault::Away(_)) {
                    known.next = Some(Instant::now() + NONE);
                }
                return;
            }
        };
        known.now.clear();
        for pod in pods {
            let job = pod.metadata.labels.as_ref().and_then(|labels| labels.get(names::ATTEMPT));
            let Some(job) = job.cloned() else { continue };
            let (sum, own) = (known.now.entry(job).or_default(), measured(&pod.data));
            sum.cores += own.cores;
            sum.memory = sum.memory.saturating_add(own.memory);
        }
        known.last = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_of_the_cluster_are_read() {
        for (text, wanted) in [
            ("250m", Some(0.25)),
            ("1500000000n", Some(1.5)),
            ("2", Some(2.0)),
            ("3Ki", Some(3072.0)),
            ("1G", Some(1e9)),
            ("-1", None),
            ("x", None),
            ("1Xi", None),
            ("", None),
        ] {
            assert_eq!(quantity(text), wanted, "{text}");
        }
        let pod = json!({"containers": [
            {"name": "rank-0", "usage": {"cpu": "500m", "memory": "1Ki"}},
            {"name": "rank-1", "usage": {"cpu": "1", "memory": "2Ki"}},
        ]});
        assert_eq!(measured(&pod), Measured { cores: 1.5, memory: 3072 });
        assert_eq!(measured(&json!({})), Measured::default());
    }

    #[test]
    fn what_is_used_is_added_up_and_told_once() {
        let used = Usage::default()
            .after(Measured { cores: 2.0, memory: 100 }, Duration::from_secs(10))
            .after(Measured { cores: 0.5, memory: 40 }, Duration::from_secs(10));
        assert!((used.cpu_seconds - 25.0).abs() < 1e-9, "{used:?}");
        assert_eq!((used.memory_bytes, used.peak_memory_bytes), (40, 100));

        let meters = Meters::default();
        let attempt = AttemptId::new("job-1").unwrap();
        assert!(meters.is_due() && !meters.is_due());
        assert_eq!(meters.take(&attempt), None);
        let one = Measured { cores: 1.0, memory: 1 };
        meters.known().now.insert(names::job(&attempt), one);
        let at = Instant::now();
        meters.known().last = Some(at);
        assert_eq!(meters.take(&attempt), Some((one, EVERY)));
        assert_eq!(meters.take(&attempt), None);
        meters.known().last = Some(at + Duration::from_secs(17));
        assert_eq!(meters.take(&attempt), Some((one, Duration::from_secs(17))));
        // Nobody has asked for a long time: that says nothing about all of it.
        meters.known().last = Some(at + Duration::from_hours(1));
        assert_eq!(meters.take(&attempt), Some((one, LONGEST)));
    }
}
