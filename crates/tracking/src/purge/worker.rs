//! The background work: finishing purges, and applying each project's retention.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use falaj_base::{Ctx, Result, Scope, Timestamp};
use falaj_store::worker::Worker;

use super::gc::{Collector, tenant_of};
use super::retention;
use super::store::Which;
use crate::Tracking;

/// How often purges that were left unfinished are looked for.
const LOOK: Duration = Duration::from_mins(1);

/// Clears away what requests left, and from time to time purges what retention no longer keeps.
pub(crate) fn worker(tracking: &Tracking) -> Worker {
    let tracking = tracking.clone();
    let applied: Arc<Mutex<Option<Timestamp>>> = Arc::default();
    Worker::new("tracking-retention", LOOK, move || {
        let (tracking, applied) = (tracking.clone(), applied.clone());
        async move {
            tracking.clear_away(Which::Any, None).await?;
            let (now, every) = (tracking.db().now(), tracking.config().purge.retention_every.get());
            let last = *applied.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| now < last + every) {
                return Ok(());
            }
            tracking.apply_retention().await?;
            *applied.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
            Ok(())
        }
    })
}

impl Tracking {
    /// Purges what the retention of each project no longer keeps.
    pub async fn apply_retention(&self) -> Result<()> {
        for (project, days) in self.db().read(retention::all).await? {
            let Some(tenant) = self.db().read(move |tx| tenant_of(tx, project)).await? else {
                continue;
            };
            let collector = Collector {
                ctx: Ctx::system("tracking-retention"),
                project,
                scope: Scope::Project(tenant, project),
                attributes: falaj_base::Attributes::default(),
                why: "retention",
            };
            loop {
                let limit = self.config().purge.max_gc;
                let report = self.collect(&collector, self.moment_before(days), limit).await?;
                self.clear_away(Which::Project(project), None).await?;
                let (experiments, runs) = (report.experiments, report.runs);
                if experiments + runs + report.logged_models > 0 {
                    tracing::info!(%project, experiments, runs, "purged what retention let go");
                }
                if !report.more {
                    break;
                }
            }
        }
        Ok(())
    }
}
