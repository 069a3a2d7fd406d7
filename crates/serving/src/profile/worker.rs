//! Makes the profile of each version once it is signed, and tells of the models that no engine runs
//! before anybody deploys them.

use std::time::Duration;

use falaj_base::{Ctx, Error, Result, code};
use falaj_store::db::Tx;
use falaj_store::events::{Cursor, Event, Filter, Subscriptions};
use falaj_store::worker::Worker;

use crate::Serving;

const NAME: &str = "model-profile";
const KIND: &str = "falaj.model-version.signed";
const EVERY: Duration = Duration::from_secs(2);
const BATCH: usize = 50;

pub(crate) fn worker(serving: &Serving) -> Worker {
    let serving = serving.clone();
    Worker::new(NAME, EVERY, move || {
        let serving = serving.clone();
        async move { serving.make_profiles().await }
    })
}

impl Serving {
    /// Makes the profiles of all versions that were signed since the last time.
    pub async fn make_profiles(&self) -> Result<()> {
        let filter = Filter { tenant: None, kind: KIND.to_owned() };
        let start = Cursor { tx: 0, seq: 0 };
        self.db()
            .write(move |tx: &mut Tx<'_>| Subscriptions::ensure(tx, NAME, &filter, start).map(drop))
            .await?;
        let subscriptions = Subscriptions::new(self.db().clone());
        loop {
            let events = subscriptions.pending(NAME, BATCH).await?;
            let Some(last) = events.last().map(|event| event.cursor) else { return Ok(()) };
            for event in &events {
                if let Err(error) = self.make_profile(event).await {
                    // A deployment makes the profile too, so one that fails now holds up nothing.
                    tracing::warn!(event = %event.id, error = error.chain(), "no profile");
                }
            }
            self.db().write(move |tx| Subscriptions::acknowledge(tx, NAME, last)).await?;
        }
    }

    async fn make_profile(&self, event: &Event) -> Result<()> {
        let ctx = Ctx::system(NAME);
        let name = event.data["name"].as_str();
        let number = event.data["version"].as_str().and_then(|number| number.parse().ok());
        let (Some(project), Some(name), Some(number)) = (event.project, name, number) else {
            return Err(Error::internal("an event of another shape"));
        };
        let made = async {
            let project = self.registry().tenancy().project_by_id(&ctx, project).await?;
            self.profile(&ctx, &project, name, number).await
        };
        match made.await {
            // Deleted meanwhile.
            Err(error) if *error.code() == code::NOT_FOUND => Ok(()),
            made => made.map(drop),
        }
    }
}
