//! Serves the webhooks that something waits for, in turn.
//!
//! Must hold:
//! - Each webhook is served by itself: one that is slow holds up its own deliveries and nobody
//!   else's. No tenant has more than half of the places.
//! - A turn is short, and whoever had one waits for the others: none is passed over.
//! - At most one payload of each webhook that is being served is in memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use falaj_base::{Result, TenantId};
use falaj_store::worker::Worker;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::store::{self, Ready};
use crate::Registry;

/// How many deliveries a webhook gets before the others have their turn, and for how long.
const TURN: usize = 5;
const TURN_TIME: Duration = Duration::from_secs(5);

/// The longest pause between two looks: a delivery that failed is tried again in time.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) fn worker(registry: &Registry) -> Worker {
    let (signal, registry) = (registry.told(), registry.clone());
    Worker::new("webhooks", EVERY, move || {
        let registry = registry.clone();
        async move { registry.deliver_due().await }
    })
    .woken_by(signal)
}

impl Registry {
    /// Sends everything that is due. Webhooks are served side by side, the deliveries of one in
    /// order; one that fails waits, and its later ones with it.
    pub async fn deliver_due(&self) -> Result<()> {
        let mut turns = FuturesUnordered::new();
        let outcome = self.serve_all(&mut turns).await;
        // After a failure of ours, what is on its way still ends: sent twice is not nice.
        while turns.next().await.is_some() {}
        outcome
    }

    async fn serve_all<'a>(&'a self, turns: &mut FuturesUnordered<Turn<'a>>) -> Result<()> {
        let mut places = Places::new(self.config().webhooks.concurrency);
        let told = self.told();
        loop {
            loop {
                let next = self.next_in_turn(&mut places).await?;
                if next.is_empty() {
                    break;
                }
                turns.extend(next.into_iter().map(|webhook| self.serve(webhook).boxed()));
            }
            if turns.is_empty() {
                return Ok(());
            }
            tokio::select! {
                Some((webhook, outcome)) = turns.next() => {
                    places.leave(&webhook);
                    outcome?;
                }
                () = told.notified() => {}
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    /// Gives free places to those who are next. There may be more while there are some.
    async fn next_in_turn(&self, places: &mut Places) -> Result<Vec<Ready>> {
        if places.free() == 0 {
            return Ok(Vec::new());
        }
        let (after, crowd, most) = (places.last.clone(), places.crowd(), places.at_once);
        let mut ready = self.db().read(move |tx| store::ready(tx, &after, crowd, most)).await?;
        ready.retain(|webhook| places.enter(webhook));
        Ok(ready)
    }

    /// One turn of one webhook.
    async fn serve(&self, webhook: Ready) -> (String, Result<()>) {
        let outcome = self.take_turn(&webhook.id).await;
        (webhook.id, outcome)
    }

    async fn take_turn(&self, webhook: &str) -> Result<()> {
        let begun = Instant::now();
        for _ in 0..TURN {
            let wanted = webhook.to_owned();
            let next = self.db().read(move |tx| store::next(tx, &wanted)).await?;
            let Some(next) = next else { break };
            if !self.deliver(next).await? || begun.elapsed() > TURN_TIME {
                break;
            }
        }
        Ok(())
    }
}

/// A turn that is being taken: whose, and what came of it.
type Turn<'a> = BoxFuture<'a, (String, Result<()>)>;

/// Who is being served.
#[derive(Debug)]
struct Places {
    at_once: usize,
    taken: BTreeMap<String, TenantId>,
    /// Who was the last to get a place: the next one is after it.
    last: String,
}

impl Places {
    fn new(at_once: usize) -> Self {
        Self { at_once: at_once.max(1), taken: BTreeMap::new(), last: String::new() }
    }

    fn free(&self) -> usize {
        self.at_once - self.taken.len()
    }

    fn is_crowded(&self, tenant: TenantId) -> bool {
        let most = self.at_once.div_ceil(2);
        self.taken.values().filter(|one| **one == tenant).count() >= most
    }

    /// The tenant that has its half of the places. While a place is free there is at most one.
    fn crowd(&self) -> Option<TenantId> {
        self.taken.values().copied().find(|tenant| self.is_crowded(*tenant))
    }

    /// Takes a place, if there is one for it.
    fn enter(&mut self, webhook: &Ready) -> bool {
        let refused = self.free() == 0
            || self.taken.contains_key(&webhook.id)
            || self.is_crowded(webhook.tenant);
        if !refused {
            self.last.clone_from(&webhook.id);
            self.taken.insert(webhook.id.clone(), webhook.tenant);
        }
        !refused
    }

    fn leave(&mut self, webhook: &str) {
        self.taken.remove(webhook);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_places() {
        let (one, two) = (TenantId::new(), TenantId::new());
        let ready = |id: &str, tenant| Ready { id: id.to_owned(), tenant };
        let mut places = Places::new(4);
        assert!(places.enter(&ready("a", one)));
        assert!(!places.enter(&ready("a", one)), "it is being served");
        assert_eq!(places.crowd(), None);
        assert!(places.enter(&ready("b", one)));
        assert_eq!(places.crowd(), Some(one));
        assert!(!places.enter(&ready("c", one)), "half is enough");
        assert!(places.enter(&ready("d", two)) && places.enter(&ready("e", two)));
        assert_eq!((places.free(), places.last.as_str()), (0, "e"));
        places.leave("a");
        assert!(!places.enter(&ready("f", two)) && places.enter(&ready("c", one)));
        // A single place is still a place.
        assert!(Places::new(0).enter(&ready("a", one)));
    }
}
