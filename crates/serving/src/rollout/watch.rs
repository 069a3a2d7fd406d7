//! What this server sees of its endpoints' variants, until it is added to their records.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use falaj_base::{EndpointId, ErrorKind, Name, ProjectId, Result, code};
use falaj_store::db::Tx;
use falaj_store::worker::Worker;
use tokio::sync::Semaphore;

use super::mark::{marks, round_of};
use super::record::Seen;
use super::store;
use crate::Serving;
use crate::endpoint::{Endpoint, store as endpoints};
use crate::traffic::shadow::Answered;

const EVERY: Duration = Duration::from_secs(1);

/// How many KiB of requests are repeated to shadows at a time; what is beyond is not compared.
const REPEATED_KIB: usize = 64 * 1024;

/// Everything that is watched here.
#[derive(Debug)]
pub(crate) struct Watch {
    known: RwLock<HashMap<EndpointId, Arc<Watched>>>,
    repeats: Arc<Semaphore>,
}

impl Default for Watch {
    fn default() -> Self {
        Self { known: RwLock::default(), repeats: Arc::new(Semaphore::new(REPEATED_KIB)) }
    }
}

/// One endpoint in one round.
pub(crate) struct Watched {
    pub(super) project: ProjectId,
    pub(super) name: Name,
    round: i64,
    /// The marks of its variants, for ids of answers.
    marks: Vec<(Name, u16)>,
    /// Whether every answer needs an id to report its outcome with.
    pub(crate) wants_outcomes: bool,
    pub(super) repeats: Arc<Semaphore>,
    seen: Mutex<Seen>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Watch {
    /// Where to note what an endpoint's variants do; nowhere if nothing follows from it.
    pub(crate) fn of(&self, project: ProjectId, endpoint: &Endpoint) -> Option<Arc<Watched>> {
        if !endpoint.spec.watches() {
            return None;
        }
        let round = round_of(endpoint);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = known.get(&endpoint.id).filter(|known| known.round == round) {
            return Some(watched.clone());
        }
        drop(known);
        let variants: Vec<Name> =
            endpoint.running.iter().map(|running| running.variant.clone()).collect();
        let watched = Arc::new(Watched {
            project,
            name: endpoint.name.clone(),
            round,
            marks: variants.iter().cloned().zip(marks(round, &variants)).collect(),
            wants_outcomes: endpoint
                .spec
                .strategy
                .as_ref()
                .is_some_and(super::Strategy::wants_outcomes),
            repeats: self.repeats.clone(),
            seen: Mutex::default(),
        });
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have read the same meanwhile, and noted something already.
        if let Some(first) = known.get(&endpoint.id).filter(|known| known.round == round) {
            return Some(first.clone());
        }
        known.insert(endpoint.id, watched.clone());
        Some(watched)
    }

    fn all(&self) -> Vec<(EndpointId, Arc<Watched>)> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // One that nobody answers for any more was told of the last time.
        known.retain(|_, watched| Arc::strong_count(watched) > 1 || !watched.seen().is_empty());
        known.iter().map(|(id, watched)| (*id, watched.clone())).collect()
    }
}

impl Watched {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the id of a variant's answer is marked with.
    pub(crate) fn mark(&self, variant: &Name) -> u16 {
        let found = self.marks.iter().find(|(name, _)| name == variant);
        found.map_or(0, |(_, mark)| *mark)
    }

    /// An answer, or none, of a variant that was given the request by its share. Mistakes of
    /// whoever asked say nothing about who answers, nor does a deadline of their own (`hurried`),
    /// nor that this server has too much to do.
    pub(crate) fn note<T>(
        &self,
        variant: &Name,
        took: Duration,
        hurried: bool,
        answer: &Result<T>,
    ) {
        let fault = match answer {
            Ok(_) => false,
            Err(error) if [&code::OVERLOADED, &code::SHUTTING_DOWN].contains(&error.code()) => {
                return;
            }
            Err(error) => match error.kind() {
                ErrorKind::Timeout if hurried => return,
                ErrorKind::Internal | ErrorKind::Timeout | ErrorKind::Unavailable => true,
                _ => return,
            },
        };
        let mut seen = self.seen();
        let observed = match seen.variants.get_mut(variant) {
            Some(observed) => observed,
            None => seen.variants.entry(variant.clone()).or_default(),
        };
        if fault {
            observed.failed();
        } else {
            observed.succeeded(took.as_secs_f64() * 1e3);
        }
    }

    /// A request that was repeated to a shadow.
    pub(super) fn compare(
        &self,
        shadow: &Name,
        primary: Answered<'_>,
        answer: Option<Answered<'_>>,
    ) {
        self.seen().shadows.entry(shadow.clone()).or_default().record(primary, answer);
    }
}

impl Serving {
    /// Adds what was seen here to the records.
    pub(crate) async fn tell_traffic(&self) -> Result<()> {
        for (endpoint, watched) in self.watch().all() {
            let seen = std::mem::take(&mut *watched.seen());
            if seen.is_empty() {
                continue;
            }
            let (project, name, round) = (watched.project, watched.name.clone(), watched.round);
            let telling = seen.clone();
            let write = move |tx: &mut Tx<'_>| {
                let Some(mut kept) = store::hold(tx, endpoint)? else { return Ok(()) };
                // What ran then does not run any more.
                if kept.round != round {
                    return Ok(());
                }
                let spec = endpoints::find(tx, project, name.as_str())?.map(|found| found.spec);
                let strategy = spec.as_ref().and_then(|spec| spec.strategy.as_ref());
                kept.record.add(&telling, strategy)?;
                let now = tx.now();
                store::put(tx, (project, endpoint, name.as_str()), &kept, now)
            };
            if let Err(error) = self.db().write(write).await {
                let error = error.chain();
                tracing::warn!(endpoint = %watched.name, error, "traffic could not be noted");
                watched.seen().merge(&seen)?;
            }
        }
        Ok(())
    }

    /// Runs on every server: each has its own notes.
    pub(crate) fn traffic_teller(&self) -> Worker {
        let serving = self.clone();
        Worker::new("endpoint-traffic", EVERY, move || {
            let serving = serving.clone();
            async move { serving.tell_traffic().await }
        })
        .on_every_server()
    }
}
