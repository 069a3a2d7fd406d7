//! Makes the proof of versions right after they were registered.

use std::time::Duration;

use falaj_base::{Ctx, ProjectId, Result};
use falaj_store::worker::Worker;

use super::store;
use crate::Registry;
use crate::version::store as versions;

/// How many versions one look at the table finds.
const BATCH: usize = 50;
const EVERY: Duration = Duration::from_mins(1);
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// The longest reason that is kept, in characters.
const MAX_REASON: usize = 300;

pub(crate) fn worker(registry: &Registry) -> Worker {
    let (signal, registry) = (registry.signal(), registry.clone());
    Worker::new("model-evidence", EVERY, move || {
        let registry = registry.clone();
        async move { registry.make_due().await }
    })
    .woken_by(signal)
}

impl Registry {
    /// Makes every proof that is due. One that fails is put off and does not hold up the others.
    pub async fn make_due(&self) -> Result<()> {
        loop {
            let due = self.db().read(|tx| store::due(tx, BATCH)).await?;
            if due.is_empty() {
                return Ok(());
            }
            for (project, name, number) in due {
                self.make_one(project, name, number).await?;
            }
        }
    }

    async fn make_one(&self, project: ProjectId, name: String, number: i64) -> Result<()> {
        let wanted = name.clone();
        let found =
            move |tx: &mut falaj_store::db::Tx<'_>| versions::find(tx, project, &wanted, number);
        let Some(version) = self.db().read(found).await? else { return Ok(()) };
        let ctx = Ctx::system("model-evidence");
        let made = async {
            let project = self.tenancy().project_by_id(&ctx, project).await?;
            self.make_now(&project, &version).await
        };
        let Err(error) = made.await else { return Ok(()) };
        tracing::warn!(model = name, version = number, error = error.chain(), "cannot be signed");
        let of = (version.model, version.number);
        let reason: String = error.message().chars().take(MAX_REASON).collect();
        self.db()
            .write(move |tx| {
                let attempts = store::find(tx, of)?.map_or(0, |kept| kept.attempts);
                let until = tx.now() + pause(attempts);
                store::postpone(tx, of, &reason, until)
            })
            .await
    }
}

fn pause(attempts: i64) -> Duration {
    let doublings = u32::try_from(attempts.clamp(0, 20)).unwrap_or(20);
    FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let seconds: Vec<_> = [0, 1, 2, 8, 9, 1000].map(|n| pause(n).as_secs()).to_vec();
        assert_eq!(seconds, [10, 20, 40, 2560, 3600, 3600]);
    }
}
