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
/// How long killed pods are remembered.
const REMEMBERED: Duration = Duration::from_mins(10);
/// How many pods are told at a time, and how long that may take.
const AT_A_TIME: usize = 16;
/// So few are told one after the other.
const FEW: usize = 4;
const TOLD_WITHIN: Duration = Duration::from_secs(30);

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
        self.has_changed();
        let done = side_by_side(acts, |act| match act {
            Act::RemoveJob => self.api.delete::<Job>(&names::job(attempt), None),
            Act::Remove(pod) => self.api.delete::<Pod>(pod, Some(1)),
            Act::Tell(pod) => {
                let change = json!({"spec": {"activeDeadlineSeconds": TOLD}});
                self.api.patch::<Pod>(pod, &change).map(drop)
            }
            Act::Kill(pod) => self.kill(attempt, table, kept, pod),
        });
        for fault in done.into_iter().filter_map(Result::err) {
            tracing::warn!(%attempt, ?fault, "a pod could not be told");
        }
    }

    fn kill(
        &self,
        attempt: &AttemptId,
        table: &Table<'_>,
        kept: &Kept,
        pod: &str,
    ) -> Result<(), Fault> {
        let since = {
            let mut known = self.known();
            known.killed.retain(|_, at| at.elapsed() < REMEMBERED);
            let since = known.killed.get(pod).map(Instant::elapsed);
            known.killed.entry(pod.to_owned()).or_insert_with(Instant::now);
            since
        };
        if since.is_some_and(|since| since < KILLED_WITHIN) {
            return Ok(());
        }
        if since.is_none()
            && let Some(container) = look::running(table, kept, pod)
        {
            match self.api.within(TOLD_WITHIN, self.api.run(pod, &container, &line("KILL")))? {
                Ok(true) => return Ok(()),
                answer => tracing::debug!(pod, ?answer, "it cannot be signalled"),
            }
        }
        // It goes, and its output with it.
        if let Err(fault) = self.copies.copy(&self.api, attempt, Which::All) {
            tracing::debug!(%attempt, ?fault, "output cannot be copied now");
        }
        self.api.delete::<Pod>(pod, Some(1))
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
