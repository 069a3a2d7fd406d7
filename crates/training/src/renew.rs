//! Tokens of starts that go on: they live for a day, and are renewed while their start is there.
//!
//! Must hold: a token outlives neither its start nor, by more than its life, the platform's knowing of
//! it. All tokens of a start are renewed: a launch that was tried twice may have been taken at the first
//! time, and then runs with the first.

use std::time::Duration;

use falaj_base::{Result, TokenId};
use falaj_store::db::{Tx, params};
use falaj_store::worker::Worker;

use crate::Training;

/// How often that is done at least, and for how many starts in one transaction.
const EVERY: Duration = Duration::from_hours(1);
const AT_ONCE: usize = 500;

pub(crate) fn worker(training: &Training) -> Worker {
    let training = training.clone();
    let every = EVERY.min(training.config().token_life.get() / 4).max(Duration::from_secs(1));
    Worker::new("training-tokens", every, move || {
        let training = training.clone();
        async move { training.renew_tokens().await }
    })
}

impl Training {
    async fn renew_tokens(&self) -> Result<()> {
        let Some(authenticator) = self.authenticator() else { return Ok(()) };
        let life = self.config().token_life.get();
        let tokens = self.db().read(tokens_in_use).await?;
        for some in tokens.chunks(AT_ONCE) {
            let (some, renewing) = (some.to_vec(), authenticator.clone());
            let renew = move |tx: &mut Tx<'_>| renewing.renew_job_tokens(tx, &some, life);
            if let Some(moved) = self.db().write(renew).await? {
                authenticator.told_of(moved);
            }
        }
        Ok(())
    }
}

fn tokens_in_use(tx: &mut Tx<'_>) -> Result<Vec<TokenId>> {
    let mut found = Vec::new();
    let sql = "SELECT token FROM training_attempt WHERE open = 2 AND token IS NOT NULL";
    tx.scan(sql, &params![], |row| {
        let text: String = row.get("token")?;
        found.extend(text.split(',').filter_map(|token| token.parse::<TokenId>().ok()));
        Ok(())
    })?;
    Ok(found)
}
