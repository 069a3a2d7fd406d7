//! One attempt to send one delivery, and what comes of it.

use std::time::Duration;

use falaj_base::{HumanDuration, Result, code};
use zeroize::Zeroizing;

use super::delivery::is_temporary;
use super::send::{Form, Parcel};
use super::service::PURPOSE;
use super::store::{self, Next};
use crate::Registry;

const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How long a webhook rests whose secret cannot be opened.
const KEY_PAUSE: Duration = Duration::from_secs(30);

impl Registry {
    /// Sends one delivery; whether the next of its webhook may follow.
    pub(super) async fn deliver(&self, next: Next) -> Result<bool> {
        let Next { delivery, webhook, payload, attempts, .. } = next;
        let secret = match &next.secret {
            Some(sealed) => {
                match self.keys().open_small(Some(next.tenant), PURPOSE, sealed).await {
                    Ok(secret) => Some(Zeroizing::new(secret)),
                    Err(error) if error.code().id == code::ERASED.id => {
                        // It will never be there again, and without it nothing may be sent.
                        tracing::warn!(webhook, delivery, "given up: its secret was erased");
                        self.db().write(move |tx| store::done(tx, &delivery)).await?;
                        return Ok(true);
                    }
                    Err(error) => {
                        // Ours to mend: nothing was sent, so it is no attempt.
                        let why = error.chain();
                        tracing::warn!(webhook, why, "the secret of a webhook cannot be opened");
                        self.rest(webhook, None, KEY_PAUSE).await?;
                        return Ok(false);
                    }
                }
            }
            None => None,
        };
        let now = self.db().now().micros() / 1_000_000;
        let form = if next.once { Form::Callback } else { Form::Mlflow };
        let parcel = Parcel { url: &next.url, id: &delivery, payload, now, form };
        let sent = self.sender().send(parcel, secret.as_ref().map(|secret| secret.as_slice()));
        let (why, asked) = match sent.await {
            Ok(said) if is_temporary(said.status) => {
                (format!("the receiver answered {}", said.status), said.retry_after)
            }
            Ok(said) => {
                if said.status >= 300 {
                    let status = said.status;
                    tracing::warn!(webhook, status, "a webhook was refused by its receiver");
                }
                self.db().write(move |tx| store::done(tx, &delivery)).await?;
                return Ok(true);
            }
            Err(why) => (why, None),
        };
        let config = &self.config().webhooks;
        if attempts + 1 >= config.max_attempts {
            tracing::warn!(webhook, delivery, why, "a webhook was given up");
            self.db().write(move |tx| store::done(tx, &delivery)).await?;
            return Ok(true);
        }
        let pause = pause(attempts, asked, &config.longest_pause);
        self.rest(webhook, Some(delivery), pause).await?;
        Ok(false)
    }

    /// Leaves a webhook alone for a while, after a delivery failed if one is named.
    async fn rest(&self, webhook: String, failed: Option<String>, pause: Duration) -> Result<()> {
        self.db()
            .write(move |tx| {
                let until = tx.now() + pause;
                if let Some(delivery) = failed {
                    store::count_attempt(tx, &delivery)?;
                }
                store::pause(tx, &webhook, until)
            })
            .await
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
