//! A session in place of one that panicked.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use falaj_base::Result;
use falaj_inference::Session;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use super::instances::Instances;

/// The longest pause between attempts.
const LONGEST: Duration = Duration::from_secs(30);

/// Loads the same model again, if no session is there to share the weights with. The file is fetched
/// again: to keep it for this would cost its size for as long as the model is loaded.
#[derive(Clone)]
pub(super) struct Reload {
    pub runtime: Handle,
    pub load: Arc<Load>,
}

/// Makes one session.
pub(super) type Load = dyn Fn() -> BoxFuture<'static, Result<Box<dyn Session>>> + Send + Sync;

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload")
    }
}

pub(super) fn repair(instances: &Arc<Instances>, reload: &Reload) {
    let load = Arc::clone(&reload.load);
    reload.runtime.spawn(attempts(Arc::downgrade(instances), load));
}

async fn attempts(instances: Weak<Instances>, load: Arc<Load>) {
    let mut pause = Duration::from_millis(200);
    while instances.strong_count() > 0 {
        let shared = instances.upgrade().and_then(|instances| instances.another());
        let made = match shared {
            Some(session) => Ok(session),
            None => load().await,
        };
        match made {
            Ok(session) => {
                if let Some(instances) = instances.upgrade() {
                    instances.give_back(session);
                }
                return;
            }
            Err(error) => {
                if let Some(instances) = instances.upgrade() {
                    let (model, error) = (instances.key(), error.chain());
                    tracing::error!(%model, error, "a session could not be loaded again");
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}
