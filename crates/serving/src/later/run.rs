//! One attempt at one request, and what comes of it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use falaj_base::{BlobId, Ctx, Error, ErrorKind, Result, TenantId, code};
use falaj_oip::Written;
use futures::TryStreamExt;

use super::desk::Behind;
use super::store::Claimed;
use super::work::Count;
use crate::Serving;
use crate::oip::later::{Asked, answer};

/// Who answers, on records.
pub(super) const NAME: &str = "later-requests";

const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// What came of an attempt.
enum Outcome {
    Answered(Written),
    /// It would end the same way again.
    Failed(Error),
    /// It may end otherwise another time.
    Passing(Error),
}

impl Serving {
    /// Runs a request that was taken, for as long as the claim is held.
    pub(super) async fn run_claimed(&self, claimed: Claimed) {
        let (id, claim) = (claimed.row.shown.id, claimed.claim);
        let ended = tokio::select! {
            ended = self.attempt(claimed) => ended,
            () = self.keep_claim(id, claim) => {
                tracing::info!(request = %id, "its claim was lost: cancelled, or taken over");
                return;
            }
        };
        // Nothing was written down: when its claim ends it is run again.
        if let Err(error) = ended {
            let error = error.chain();
            tracing::warn!(request = %id, error, "what came of a request could not be kept");
        }
    }

    async fn attempt(&self, claimed: Claimed) -> Result<()> {
        let (attempts, most) = (claimed.row.shown.attempts, self.config().later.max_attempts);
        if attempts > most {
            let text = format!("its server was lost {most} times while it ran");
            return self.settle_failed(claimed, &Error::new(&code::UNAVAILABLE, text)).await;
        }
        match self.outcome(&claimed).await {
            Outcome::Answered(written) => match self.keep_result(&claimed, &written).await {
                Ok(staged) => self.settle_done(claimed, staged, written.header_length).await,
                Err(error) if *error.code() == code::TOO_LARGE => {
                    self.settle_failed(claimed, &error).await
                }
                Err(error) => self.again(claimed, &error).await,
            },
            Outcome::Failed(error) => self.settle_failed(claimed, &error).await,
            Outcome::Passing(error) => self.again(claimed, &error).await,
        }
    }

    /// Another attempt after a while, or the end.
    async fn again(&self, claimed: Claimed, error: &Error) -> Result<()> {
        let attempts = claimed.row.shown.attempts;
        if attempts >= self.config().later.max_attempts {
            return self.settle_failed(claimed, error).await;
        }
        self.later().count(Count::Again);
        let pause = pause(attempts, error.wait(), self.config().later.longest_pause.get());
        self.put_back(claimed, error, pause).await
    }

    async fn outcome(&self, claimed: &Claimed) -> Outcome {
        let (row, of) = (&claimed.row, claimed.of);
        let Some(_memory) = self.later().memory(row.shown.size).await else {
            return Outcome::Passing(Error::new(&code::SHUTTING_DOWN, "the server is stopping"));
        };
        let ctx = Ctx::system(NAME);
        let place = self.registry().tenancy().project_by_id(&ctx, of.project).await;
        let body = async {
            let body = row.body.ok_or_else(|| Error::internal("a request without its body"))?;
            self.body(of.tenant, body).await
        };
        let (place, body) = match (place, body.await) {
            (Ok(place), Ok(body)) => (place, body),
            (_, Err(error)) if *error.code() == code::ERASED => return Outcome::Failed(error),
            (Err(error), _) | (_, Err(error)) => return Outcome::Passing(error),
        };
        let desk = Behind::new(self, ctx, place);
        let asked = Asked {
            name: &row.shown.endpoint,
            version: row.shown.version.as_deref(),
            key: row.routing_key.as_deref(),
            header_length: row.header_length,
            body,
        };
        match answer(&desk, asked).await {
            Ok(written) => Outcome::Answered(written),
            Err(error) if passes(error.kind()) => Outcome::Passing(error),
            Err(error) => {
                if error.kind() == ErrorKind::Internal {
                    let (request, error) = (row.shown.id, error.chain());
                    tracing::error!(%request, error, "a request that is answered later failed");
                }
                Outcome::Failed(error)
            }
        }
    }

    async fn body(&self, tenant: TenantId, blob: BlobId) -> Result<Bytes> {
        let blob = self.registry().tracking().objects().blob(tenant, blob).await?;
        let mut content = BytesMut::with_capacity(usize::try_from(blob.size()).unwrap_or(0));
        let mut pieces = blob.read();
        while let Some(piece) = pieces.try_next().await? {
            content.extend_from_slice(&piece);
        }
        Ok(content.freeze())
    }
}

/// Whether another attempt may end otherwise: too much was asked, a model was being loaded, a
/// server did not answer.
fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::RateLimited)
}

/// Doubling, and no shorter than was asked for; all up to a limit.
fn pause(attempts: u32, asked: Option<Duration>, longest: Duration) -> Duration {
    let own = FIRST_PAUSE.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    own.max(asked.unwrap_or_default()).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let longest = Duration::from_mins(5);
        let plain = [1, 2, 3, 9, 10, 99].map(|n| pause(n, None, longest).as_secs());
        assert_eq!(plain, [1, 2, 4, 256, 300, 300]);
        assert_eq!(pause(1, Some(Duration::from_secs(7)), longest).as_secs(), 7);
        assert_eq!(pause(1, Some(Duration::from_hours(7)), longest), longest);
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for again in [&code::OVERLOADED, &code::UNAVAILABLE, &code::DEADLINE_EXCEEDED] {
            assert!(passes(again.kind), "{}", again.id);
        }
        for end in [&code::INVALID_INPUT, &code::NOT_FOUND, &code::TOO_LARGE, &code::INTERNAL] {
            assert!(!passes(end.kind), "{}", end.id);
        }
    }
}
