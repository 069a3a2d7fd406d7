//! What this server sees of its endpoints' variants, until it is added to their records.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use falaj_base::{EndpointId, ErrorKind, Name, ProjectId, Result, code};
use falaj_store::db::Tx;
use falaj_store::worker::Worker;
use tokio::sync::Semaphore;

use super::mark::{marks, round_of, split_of};
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
    /// Of each endpoint that of now, and those of before that have something to tell.
    known: RwLock<HashMap<EndpointId, Vec<Arc<Watched>>>>,
    repeats: Arc<Semaphore>,
}

impl Default for Watch {
    fn default() -> Self {
        Self { known: RwLock::default(), repeats: Arc::new(Semaphore::new(REPEATED_KIB)) }
    }
}

/// One endpoint in one round, while its requests are shared out in one way.
pub(crate) struct Watched {
    pub(super) project: ProjectId,
    pub(super) name: Name,
    round: i64,
    split: i64,
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
        let (round, split) = (round_of(endpoint), split_of(endpoint));
        let of_now = |known: &HashMap<EndpointId, Vec<Arc<Watched>>>| {
            let mut own = known.get(&endpoint.id)?.iter();
            own.find(|known| known.round == round && known.split == split).cloned()
        };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = of_now(&known) {
            return Some(watched);
        }
        drop(known);
        let variants: Vec<Name> =
            endpoint.running.iter().map(|running| running.variant.clone()).collect();
        let watched = Arc::new(Watched {
            project,
            name: endpoint.name.clone(),
            round,
            split,
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
        if let Some(first) = of_now(&known) {
            return Some(first);
        }
        known.entry(endpoint.id).or_default().push(watched.clone());
        Some(watched)
    }

    fn all(&self) -> Vec<(EndpointId, Arc<Watched>)> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // One that nobody answers for any more was told of the last time.
        known.retain(|_, own| {
            own.retain(|watched| Arc::strong_count(watched) > 1 || !watched.seen().is_empty());
            !own.is_empty()
        });
        let each = known.iter().flat_map(|(id, own)| own.iter().map(|one| (*id, one.clone())));
        each.collect()
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
            let (project, name) = (watched.project, watched.name.clone());
            let (round, split) = (watched.round, watched.split);
            let telling = seen.clone();
            let write = move |tx: &mut Tx<'_>| {
                let Some(mut kept) = store::hold(tx, endpoint)? else { return Ok(()) };
                // What ran then does not run any more.
                if kept.round != round {
                    return Ok(());
                }
                let found = endpoints::find(tx, project, name.as_str())?;
                // A step is judged on its own requests: those of the one before only count.
                let of_now = found.as_ref().filter(|found| split_of(found) == split);
                let strategy = of_now.and_then(|found| found.spec.strategy.as_ref());
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

#[cfg(test)]
mod tests {
    use falaj_base::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::endpoint::Running;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    /// An endpoint in a step that began then.
    fn endpoint(id: EndpointId, share: f64, since: i64) -> Endpoint {
        let running = |variant: &str, share: f64| -> Running {
            let running = json!({
                "variant": variant, "version": 1, "batches": true, "since": at(0), "share": share,
            });
            serde_json::from_value(running).unwrap()
        };
        let steps = json!([{ "share": 0.1 }, { "share": 0.5 }]);
        let spec = json!({
            "variants": [
                { "name": "main", "model": "m", "version": 1 },
                { "name": "next", "model": "m", "version": 2 },
            ],
            "strategy": { "canary": { "variant": "next", "steps": steps } },
        });
        Endpoint {
            id,
            name: Name::new("canary").unwrap(),
            revision: 1,
            spec: serde_json::from_value(spec).unwrap(),
            running: vec![running("main", 1.0 - share), running("next", share)],
            paused: false,
            created_at: at(0),
            created_by: "someone".to_owned(),
            updated_at: at(since),
            updated_by: "someone".to_owned(),
        }
    }

    #[test]
    fn what_was_seen_in_one_step_is_kept_apart_from_the_next() {
        let (watch, project, id) = (Watch::default(), ProjectId::new(), EndpointId::new());
        let first = endpoint(id, 0.1, 1);
        let before = watch.of(project, &first).unwrap();
        assert!(Arc::ptr_eq(&before, &watch.of(project, &first).unwrap()));
        // One step keeps the shares, another changes them.
        let same = watch.of(project, &endpoint(id, 0.1, 2)).unwrap();
        let more = watch.of(project, &endpoint(id, 0.5, 3)).unwrap();
        assert!(!Arc::ptr_eq(&before, &same) && !Arc::ptr_eq(&same, &more));
        assert_eq!((before.round, same.round), (more.round, more.round));
        let next = Name::new("next").unwrap();
        before.note(&next, Duration::from_millis(1), false, &Ok(()));
        assert!(more.seen().is_empty() && !before.seen().is_empty());
        drop((before, same));
        assert_eq!(watch.all().len(), 2, "one that answers, one with something to tell");
        for (_, watched) in watch.all() {
            std::mem::take(&mut *watched.seen());
        }
        assert_eq!(watch.all().len(), 1);
    }
}
