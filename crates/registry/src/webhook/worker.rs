//! Sends what waits.

use std::collections::BTreeMap;
use std::time::Duration;

use falaj_base::{HumanDuration, Result};
use falaj_store::worker::Worker;
use futures::StreamExt;
use zeroize::Zeroizing;

use super::delivery::is_temporary;
use super::send::Parcel;
use super::service::PURPOSE;
use super::store::{self, Due};
use crate::Registry;

/// How much one look at the table finds.
const BATCH: usize = 500;

/// How many deliveries one webhook gets before the others have their turn.
const TURN: usize = 5;

/// The longest pause between two looks: a delivery that failed is tried again in time.
const EVERY: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_secs(1);

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
        loop {
            let due = self.db().read(|tx| store::due(tx, BATCH)).await?;
            if due.is_empty() {
                return Ok(());
            }
            let mut by_webhook: BTreeMap<String, Vec<Due>> = BTreeMap::new();
            for one in due {
                let queue = by_webhook.entry(one.webhook.clone()).or_default();
                if queue.len() < TURN {
                    queue.push(one);
                }
            }
            let at_once = self.config().webhooks.concurrency.max(1);
            let turns = futures::stream::iter(by_webhook.into_values())
                .map(|queue| self.serve(queue))
                .buffer_unordered(at_once);
            let results: Vec<Result<()>> = turns.collect().await;
            results.into_iter().collect::<Result<()>>()?;
        }
    }

    async fn serve(&self, queue: Vec<Due>) -> Result<()> {
        for due in queue {
            if !self.deliver(due).await? {
                break;
            }
        }
        Ok(())
    }

    /// Sends one delivery; whether the next of its webhook may follow.
    async fn deliver(&self, due: Due) -> Result<bool> {
        let secret = match &due.secret {
            Some(sealed) => match self.keys().open_small(Some(due.tenant), PURPOSE, sealed).await {
                Ok(secret) => Some(Zeroizing::new(secret)),
                Err(error) => return self.failed(due, error.message(), None).await,
            },
            None => None,
        };
        let now = self.db().now().micros() / 1_000_000;
        let parcel = Parcel { url: &due.url, id: &due.id, payload: &due.payload, now };
        match self.sender().send(parcel, secret.as_ref().map(|secret| secret.as_slice())).await {
            Ok(said) if is_temporary(said.status) => {
                let why = format!("the receiver answered {}", said.status);
                self.failed(due, &why, said.retry_after).await
            }
            Ok(said) => {
                if said.status >= 300 {
                    tracing::warn!(
                        webhook = due.webhook,
                        status = said.status,
                        "a webhook was refused by its receiver"
                    );
                }
                self.db().write(move |tx| store::done(tx, &due.id)).await?;
                Ok(true)
            }
            Err(why) => self.failed(due, &why, None).await,
        }
    }

    /// Tries again later, or gives up.
    async fn failed(&self, due: Due, why: &str, asked: Option<Duration>) -> Result<bool> {
        let config = &self.config().webhooks;
        if due.attempts + 1 >= config.max_attempts {
            tracing::warn!(webhook = due.webhook, delivery = due.id, why, "a webhook was given up");
            self.db().write(move |tx| store::done(tx, &due.id)).await?;
            return Ok(true);
        }
        let pause = pause(due.attempts, asked, &config.longest_pause);
        self.db()
            .write(move |tx| {
                let until = tx.now() + pause;
                store::postpone(tx, &due, until)
            })
            .await?;
        Ok(false)
    }
}

/// Doubling, and no shorter than the receiver asked for; all up to a limit.
fn pause(attempts: u32, asked: Option<Duration>, longest: &HumanDuration) -> Duration {
    let own = FIRST_PAUSE.saturating_mul(1 << attempts.min(16));
    own.max(asked.unwrap_or_default()).min(longest.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let longest = HumanDuration::from_secs(60);
        let plain = [0, 1, 2, 5, 6, 99].map(|n| pause(n, None, &longest).as_secs());
        assert_eq!(plain, [1, 2, 4, 32, 60, 60]);
        assert_eq!(pause(0, Some(Duration::from_secs(7)), &longest).as_secs(), 7);
        assert_eq!(pause(0, Some(Duration::from_hours(7)), &longest).as_secs(), 60);
    }
}
