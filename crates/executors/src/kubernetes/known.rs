//! How things are in the cluster, as far as this process knows.
//!
//! Must hold: what is told of how things are was asked for after everything that this process changed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::api::Fault;
use super::look::Lists;
use super::{KubernetesExecutor, act, look, names};
use crate::{AttemptId, plain};

/// How soon the cluster is asked again how things are.
pub(super) const FRESH: Duration = Duration::from_millis(400);
/// The same if it tells of changes, and has told of none.
const STALE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Known {
    /// How often something was changed.
    changes: u64,
    pub(super) lists: Option<Remembered>,
    /// When the cluster was asked last and did not answer, and what was said.
    failed: Option<(Instant, String)>,
    /// Whose jobs were seen to have our mark: when they are missing, they are gone.
    pub(super) listed: HashSet<AttemptId>,
    /// Pods that were killed, by their names.
    pub(super) killed: HashMap<String, act::Killed>,
}

/// How things were at some time.
#[derive(Debug)]
pub(super) struct Remembered {
    pub(super) begun: Instant,
    /// How much was told of changes before that.
    pub(super) heard: Option<u64>,
    lists: Arc<Lists>,
}

impl KubernetesExecutor {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the cluster says is asked anew from now on.
    pub(super) fn has_changed(&self) {
        let mut known = self.known();
        known.lists = None;
        known.changes += 1;
    }

    /// Jobs and pods as they are, or were a moment ago.
    pub(super) fn lists(&self) -> Result<Arc<Lists>, Fault> {
        let wanted = Instant::now();
        if let Some(lists) = self.remembered(wanted)? {
            return Ok(lists);
        }
        // One asks for all who wait.
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lists) = self.remembered(wanted)? {
            return Ok(lists);
        }
        let labels = self.labels();
        if self.watch.begins() {
            self.api.watch::<Job>(&labels, self.watch.clone());
            self.api.watch::<Pod>(&labels, self.watch.clone());
        }
        let (begun, heard, changes) = (Instant::now(), self.watch.heard(), self.known().changes);
        // Jobs before pods: a pod that a job has counted is then in the later list, since ours are kept until
        // their end was read.
        let jobs = self.api.list::<Job>(&labels);
        let listed = jobs.and_then(|jobs| Ok((jobs, self.api.list::<Pod>(&labels)?)));
        let mut known = self.known();
        match listed {
            Ok((jobs, pods)) => {
                let lists = Arc::new(Lists::of(jobs, pods, |of| self.is_ours(of)));
                // What was changed meanwhile may not be in it: to whoever asks next it would be missing.
                if known.changes == changes {
                    known.lists = Some(Remembered { begun, heard, lists: lists.clone() });
                }
                known.failed = None;
                Ok(lists)
            }
            Err(fault) => {
                let error = fault.away();
                known.failed = Some((begun, error.to_string()));
                Err(Fault::Away(error.to_string()))
            }
        }
    }

    /// What all that is ours is marked with, and perhaps some that is not.
    pub(super) fn labels(&self) -> String {
        let owner = &self.settings.owner;
        match &self.settings.former_owner {
            None => format!("{}={owner}", names::OWNER),
            Some(former) => format!("{} in ({owner},{former})", names::OWNER),
        }
    }

    /// Whether something that is so marked is ours. The former mark may be another's too: it has to be known here.
    fn is_ours(&self, of: &ObjectMeta) -> bool {
        let Some(former) = &self.settings.former_owner else { return true };
        let mark = of.labels.as_ref().and_then(|labels| labels.get(names::OWNER));
        mark != Some(former)
            || look::attempt(of).is_some_and(|it| plain::is_there(&self.folder.of(&it)))
    }

    /// What is still so: it was asked for just now, or after somebody wanted it, or nothing has changed since. Those
    /// who waited while it was not answered need not ask the same again.
    fn remembered(&self, wanted: Instant) -> Result<Option<Arc<Lists>>, Fault> {
        let known = self.known();
        let is_new = |at: Instant| at >= wanted || at.elapsed() < FRESH;
        if let Some((_, text)) = known.failed.as_ref().filter(|(begun, _)| is_new(*begun)) {
            return Err(Fault::Away(text.clone()));
        }
        Ok(known.lists.as_ref().and_then(|one| {
            let is_same = one.heard.is_some() && self.watch.heard() == one.heard;
            let is_same = is_same && one.begun.elapsed() < STALE;
            (is_new(one.begun) || is_same).then(|| one.lists.clone())
        }))
    }
}
