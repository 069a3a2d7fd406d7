//! Background work: writing when tokens and sessions were last used, and clearing away dead ones.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::Result;
use falaj_store::worker::Worker;

use super::authenticate::Authenticator;
use super::{session, token};

/// How often uses are written.
const FLUSH: Duration = Duration::from_secs(10);
/// How often dead rows are cleared away.
const PURGE: Duration = Duration::from_mins(10);
/// How many uses are written in one transaction.
const BATCH: usize = 500;

/// The workers of this module. Uses are noted in each server's memory, so each writes its own.
#[must_use]
pub fn workers(auth: &Arc<Authenticator>) -> Vec<Worker> {
    let (flusher, purger) = (auth.clone(), auth.clone());
    vec![
        Worker::new("identity-uses", FLUSH, move || {
            let auth = flusher.clone();
            async move { auth.flush_uses().await }
        })
        .on_every_server(),
        Worker::new("identity-purge", PURGE, move || {
            let auth = purger.clone();
            async move { auth.purge().await }
        }),
    ]
}

impl Authenticator {
    /// Writes the noted uses. What fails to be written is lost; the next use is noted again.
    pub async fn flush_uses(&self) -> Result<()> {
        for batch in self.token_uses.take().chunks(BATCH) {
            let batch = batch.to_vec();
            self.db.write(move |tx| token::store::note_uses(tx, &batch)).await?;
        }
        for batch in self.session_uses.take().chunks(BATCH) {
            let batch = batch.to_vec();
            self.db.write(move |tx| session::note_uses(tx, &batch)).await?;
        }
        Ok(())
    }

    /// Removes sessions that have ended, and tokens that ended long ago.
    pub async fn purge(&self) -> Result<()> {
        let config = self.config.session.clone();
        let now = self.clock.now();
        let dead = now - self.config.token.keep_dead.get();
        self.db
            .write(move |tx| {
                session::purge(tx, &config, now)?;
                token::store::purge(tx, dead)
            })
            .await
            .map(drop)
    }
}
