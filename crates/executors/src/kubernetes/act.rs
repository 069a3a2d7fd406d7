//! What is done to the pods of an attempt.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::api::Fault;
use super::copies::Which;
use super::look;
use super::names;
use super::objects::Kept;
use super::state::{Act, TOLD, Table};
use super::{KubernetesExecutor, LAUNCH};
use crate::seam::{AttemptId, ExecutorError};
use crate::{folder, plain};

/// How long a killed pod may take before it is removed.
const KILLED_WITHIN: Duration = Duration::from_secs(3);
/// How long after that its removal waits for a copy of its output, which goes with it.
const COPIED_WITHIN: Duration = Duration::from_secs(6);
/// How soon what was removed and is still there is removed again.
const REMOVED_AGAIN: Duration = Duration::from_secs(10);
/// How long killed pods are remembered.
const REMEMBERED: Duration = Duration::from_mins(10);
/// How many pods are told at a time, and how long that may take.
const AT_A_TIME: usize = 16;
/// So few are told one after the other.
const FEW: usize = 4;
const TOLD_WITHIN: Duration = Duration::from_secs(30);

/// A pod that was killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Killed {
    at: Instant,
    /// Whether it could not be signalled.
    deaf: bool,
    removed: Option<Instant>,
}

impl Killed {
    /// Whether it is to be removed now, all of its output being copied or not.
    fn is_to_go(&self, copied: bool) -> bool {
        if let Some(removed) = self.removed {
            return removed.elapsed() >= REMOVED_AGAIN;
        }
        let since = self.at.elapsed();
        let is_slow = self.deaf || since >= KILLED_WITHIN;
        is_slow && (copied || since >= KILLED_WITHIN + COPIED_WITHIN)
    }
}

/// Does the same to all of them, to many of them at a time: a gang is to end within seconds.
pub(super) fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if items.len() <= FEW {
        return items.iter().map(work).collect();
    }
    let part = items.len().div_ceil(AT_A_TIME);
    std::thread::scope(|scope| {
        let work = &work;
        let parts: Vec<_> = items
            .chunks(part)
            .map(|part| scope.spawn(move || part.iter().map(work).collect::<Vec<R>>()))
            .collect();
        parts.into_iter().filter_map(|part| part.join().ok()).flatten().collect()
    })
}

/// Signals every rank of a pod; their numbers are in files that all its containers see.
fn line(signal: &str) -> String {
    format!(
        "for f in /falaj/run/*; do read -r p <\"$f\" && kill -{signal} \"$p\"; done 2>/dev/null; true"
    )
}

impl KubernetesExecutor {
    /// Does what a cause asks for. What fails is done again at the next look.
    pub(super) fn act(&self, attempt: &AttemptId, table: &Table<'_>, kept: &Kept, acts: &[Act]) {
        if acts.is_empty() {
            return;
        }
        let killed: Vec<&str> = acts
            .iter()
            .filter_map(|act| match act {
                Act::Kill(pod) => Some(pod.as_str()),
                _ => None,
            })
            .collect();
        let due = self.not_killed_yet(acts);
        if !due.is_empty() {
            self.has_changed();
        }
        let done = side_by_side(&due, |act| match act {
            Act::Bound(pod, seconds) => {
                let change = json!({"spec": {"activeDeadlineSeconds": seconds}});
                self.api.patch::<Pod>(pod, &change).map(drop)
            }
            Act::RemoveJob => self.api.delete::<Job>(&names::job(attempt), None),
            Act::Remove(pod) => self.api.delete::<Pod>(pod, Some(1)),
            Act::Tell(pod) => {
                let change = json!({"spec": {"activeDeadlineSeconds": TOLD}});
                self.api.patch::<Pod>(pod, &change).map(drop)
            }
            Act::Kill(pod) => {
                self.kill(table, kept, pod);
                Ok(())
            }
        });
        let removed = self.remove(attempt, &killed);
        for fault in done.into_iter().chain(removed).filter_map(Result::err) {
            tracing::warn!(%attempt, ?fault, "a pod could not be told");
        }
    }

    /// What is to be done for the first time, or is done at every look. Pods that are killed are noted.
    fn not_killed_yet<'a>(&self, acts: &'a [Act]) -> Vec<&'a Act> {
        let mut known = self.known();
        known.killed.retain(|_, one| one.at.elapsed() < REMEMBERED);
        let mut is_due = |act: &&Act| match act {
            Act::Kill(pod) => {
                let killed = Killed { at: Instant::now(), deaf: false, removed: None };
                let is_new = !known.killed.contains_key(pod);
                known.killed.entry(pod.clone()).or_insert(killed);
                is_new
            }
            _ => true,
        };
        acts.iter().filter(|act| is_due(act)).collect()
    }

    /// Kills the ranks of a pod.
    fn kill(&self, table: &Table<'_>, kept: &Kept, pod: &str) {
        let heard = match look::running(table, kept, pod) {
            Some(container) => {
                self.api.within(TOLD_WITHIN, self.api.run(pod, &container, &line("KILL")))
            }
            None => Ok(Ok(false)),
        };
        if !matches!(heard, Ok(Ok(true))) {
            tracing::debug!(pod, ?heard, "it cannot be signalled");
            if let Some(killed) = self.known().killed.get_mut(pod) {
                killed.deaf = true;
            }
        }
    }

    /// Removes pods that were killed and do not end. Their output goes with them: it is copied before, once for
    /// all of them.
    fn remove(&self, attempt: &AttemptId, pods: &[&str]) -> Vec<Result<(), Fault>> {
        let to_go = |copied: bool| -> Vec<&str> {
            let known = self.known();
            let of = |pod: &str| known.killed.get(pod).is_some_and(|one| one.is_to_go(copied));
            pods.iter().copied().filter(|pod| of(pod)).collect()
        };
        if to_go(true).is_empty() {
            return Vec::new();
        }
        let copied = self.copies.copy(&self.api, attempt, Which::All, COPIED_WITHIN);
        if let Err(fault) = &copied {
            tracing::debug!(%attempt, ?fault, "output cannot be copied now");
        }
        let going = to_go(copied.unwrap_or(false));
        if !going.is_empty() {
            self.has_changed();
        }
        for pod in &going {
            if let Some(killed) = self.known().killed.get_mut(*pod) {
                killed.removed = Some(Instant::now());
            }
        }
        side_by_side(&going, |pod| self.api.delete::<Pod>(pod, Some(1)))
    }

    /// Asks every rank to save what it has.
    pub(super) fn checkpoint(&self, attempt: &AttemptId) -> Result<(), ExecutorError> {
        let path = self.folder.of(attempt).join(LAUNCH);
        let kept: Option<Kept> =
            plain::get(&path, plain::LAUNCH).map_err(|error| folder::away(&path, &error))?;
        let Some(kept) = kept else { return Ok(()) };
        let lists = self.lists().map_err(Fault::away)?;
        let table = Table::of(&kept, &lists.pods(attempt));
        let pods: Vec<(String, String)> = table
            .pods
            .iter()
            .flatten()
            .filter_map(|pod| pod.metadata.name.clone())
            .filter_map(|pod| look::running(&table, &kept, &pod).map(|container| (pod, container)))
            .collect();
        let text = line("USR1");
        let told = stream::iter(&pods)
            .map(|(pod, container)| self.api.run(pod, container, &text))
            .buffer_unordered(AT_A_TIME)
            .collect::<Vec<_>>();
        for outcome in self.api.within(TOLD_WITHIN, told).map_err(Fault::away)? {
            match outcome {
                // It has ended meanwhile, or has no shell: it will not save, and is told to stop later.
                Ok(_) | Err(Fault::Absent(_) | Fault::Never(_) | Fault::Present) => {}
                Err(fault) => return Err(fault.away()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_goes_when_its_output_is_here_or_was_waited_for_and_not_at_every_look() {
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        let of =
            |at, deaf, removed| Killed { at: ago(at), deaf, removed: Option::map(removed, ago) };
        for (killed, copied, not_copied) in [
            (of(0, false, None), false, false),
            (of(0, true, None), true, false),
            (of(4, false, None), true, false),
            (of(10, false, None), true, true),
            (of(60, true, Some(5)), false, false),
            (of(60, true, Some(11)), true, true),
        ] {
            let found = (killed.is_to_go(true), killed.is_to_go(false));
            assert_eq!(found, (copied, not_copied), "{killed:?}");
        }
    }
}
