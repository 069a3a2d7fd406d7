//! What the cluster has of ours, and what was written on it.

use std::collections::HashMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::names;
use super::objects::Kept;
use super::state::{self, Cause, Rank, Table};
use crate::AttemptId;

/// Jobs and pods at one moment, by the names of their jobs.
#[derive(Debug, Default)]
pub(super) struct Lists {
    jobs: HashMap<String, Job>,
    pods: HashMap<String, Vec<Pod>>,
}

impl Lists {
    /// Of those that are ours.
    pub(super) fn of(
        jobs: Vec<Job>,
        pods: Vec<Pod>,
        is_ours: impl Fn(&ObjectMeta) -> bool,
    ) -> Self {
        let mut lists = Self::default();
        for job in jobs.into_iter().filter(|job| is_ours(&job.metadata)) {
            lists.jobs.insert(job.metadata.name.clone().unwrap_or_default(), job);
        }
        for pod in pods.into_iter().filter(|pod| is_ours(&pod.metadata)) {
            let name = pod.metadata.labels.as_ref().and_then(|labels| labels.get(names::ATTEMPT));
            lists.pods.entry(name.cloned().unwrap_or_default()).or_default().push(pod);
        }
        lists
    }

    /// Every attempt that has a job.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (AttemptId, &Job)> {
        self.jobs.values().filter_map(|job| Some((attempt(&job.metadata)?, job)))
    }

    /// The job of an attempt; one of the same name that is another's is none.
    pub(super) fn job(&self, of: &AttemptId) -> Option<&Job> {
        let job = self.jobs.get(&names::job(of))?;
        (attempt(&job.metadata).as_ref() == Some(of)).then_some(job)
    }

    /// Pods that are only here because we keep them, and whose attempt is unknown.
    pub(super) fn orphans(&self, is_known: impl Fn(&AttemptId) -> bool) -> Vec<&str> {
        let all = self.pods.values().flatten();
        let orphans = all.filter(|pod| pod.metadata.deletion_timestamp.is_some() && is_kept(pod));
        let orphans = orphans.filter(|pod| !attempt(&pod.metadata).is_some_and(|it| is_known(&it)));
        orphans.filter_map(|pod| pod.metadata.name.as_deref()).collect()
    }

    /// Whether everything is there which its pods need. Earlier versions did not write that down; a rank that has
    /// started had it.
    pub(super) fn is_whole(&self, job: &Job) -> bool {
        let has_started = |pod: &Pod| {
            let ranks = kept(job).map(|kept| state::ranks(pod, kept.per_node));
            ranks.into_iter().flatten().any(|rank| rank.started().is_some_and(|at| at > 0))
        };
        let pods = job.metadata.name.as_ref().and_then(|name| self.pods.get(name));
        is_whole(job) || pods.into_iter().flatten().any(has_started)
    }

    pub(super) fn pods(&self, of: &AttemptId) -> Vec<&Pod> {
        self.pods.get(&names::job(of)).into_iter().flatten().collect()
    }
}

/// Whether it is kept until its end is known.
pub(super) fn is_kept(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|one| one == names::KEEPS)
}

fn written<'a>(on: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    on.annotations.as_ref()?.get(name).map(String::as_str)
}

pub(super) fn attempt(of: &ObjectMeta) -> Option<AttemptId> {
    written(of, names::ATTEMPT).and_then(AttemptId::new)
}

pub(super) fn kept(job: &Job) -> Option<Kept> {
    let kept: Kept = serde_json::from_str(written(&job.metadata, names::LAUNCH)?).ok()?;
    (kept.per_node > 0 && kept.nodes.saturating_mul(kept.per_node) <= crate::MOST_RANKS)
        .then_some(kept)
}

/// Whether it is written down that everything is there which its pods need: whoever made it did not die before that.
pub(super) fn is_whole(job: &Job) -> bool {
    written(&job.metadata, names::WHOLE).is_some()
}

pub(super) fn cause(job: &Job) -> Option<Cause> {
    serde_json::from_str(written(&job.metadata, names::CAUSE)?).ok()
}

pub(super) fn kill(job: &Job) -> Option<u64> {
    written(&job.metadata, names::KILL)?.parse().ok()
}

/// A container of a pod that runs.
pub(super) fn running(table: &Table<'_>, kept: &Kept, pod: &str) -> Option<String> {
    let at = table
        .pods
        .iter()
        .position(|one| one.is_some_and(|one| one.metadata.name.as_deref() == Some(pod)))?;
    let own = table.ranks.iter().skip(at * kept.per_node).take(kept.per_node);
    let number = own.into_iter().position(|rank| matches!(rank, Rank::Running(_)))?;
    Some(names::container(number))
}
