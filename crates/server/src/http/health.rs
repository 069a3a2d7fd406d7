//! Alive, and ready.
//!
//! Both answer without a credential, so neither says more than yes or no; and asking costs the
//! database one query a second at most, however often anyone asks.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::{Error, Result, code};
use falaj_store::db::Db;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::drain::Drain;

/// How long an answer stands.
const FRESH: Duration = Duration::from_secs(1);
/// A database that takes longer than this does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether requests should be sent here.
#[derive(Clone, Debug)]
pub struct Readiness {
    db: Db,
    drain: Drain,
    last: Arc<Mutex<Option<(Instant, bool)>>>,
}

impl Readiness {
    /// Made once the schema is up to date: until then nobody listens who could be asked.
    #[must_use]
    pub fn new(db: Db, drain: Drain) -> Self {
        Self { db, drain, last: Arc::default() }
    }

    pub async fn check(&self) -> Result<()> {
        self.drain.note_watcher();
        if self.drain.is_announced() {
            return Err(Error::new(&code::SHUTTING_DOWN, "the server is stopping"));
        }
        let mut last = self.last.lock().await;
        let answers = match *last {
            Some((at, answers)) if at.elapsed() < FRESH => answers,
            _ => {
                let answers = self.ask().await;
                *last = Some((Instant::now(), answers));
                answers
            }
        };
        if answers {
            return Ok(());
        }
        Err(Error::new(&code::UNAVAILABLE, "the database does not answer").retry_after(FRESH))
    }

    async fn ask(&self) -> bool {
        let question = self.db.read(|tx| tx.query_one("SELECT 1 AS one", &[]).map(drop));
        match tokio::time::timeout(PATIENCE, question).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(error = error.chain(), "the database does not answer");
                false
            }
            Err(_) => {
                tracing::warn!("the database takes too long to answer");
                false
            }
        }
    }
}
