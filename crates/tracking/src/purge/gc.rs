//! Collecting garbage: everything in a project's bin that is old enough.

use std::collections::HashSet;

use falaj_base::{Ctx, Error, ProjectId, Resource, Result, Scope, TenantId, Timestamp, code};
use falaj_mlflow::Call;
use falaj_store::db::{Tx, params};
use falaj_store::record::Change;

use super::keeper::References;
use super::report::GcReport;
use super::service::{Act, Gone, condemn_experiment, condemn_model, condemn_run};
use super::store::{self, Due, Place, Which};
use super::{hold, retention};
use crate::experiment::ExperimentId;
use crate::{EXPERIMENT_PURGE, GC, RUN_PURGE, RUN_READ, Tracking};

/// How much of the bin is looked at at a time.
const AT_ONCE: usize = 1000;

/// Which part of the bin is meant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gc {
    /// Days since deletion; the project's retention if absent.
    pub older_than_days: Option<i64>,
}

/// On whose word garbage is collected.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    pub(super) ctx: Ctx,
    pub(super) project: ProjectId,
    pub(super) scope: Scope,
    pub(super) attributes: falaj_base::Attributes,
    pub(super) why: &'static str,
}

impl Collector {
    fn resource(&self, id: ExperimentId) -> Resource {
        Resource::new("experiment", format!("{}/{id}", self.project), self.scope)
            .with(self.attributes.clone())
            .shown_as(id)
    }
}

impl Tracking {
    /// What would be purged, of the experiments that the caller may read.
    pub async fn garbage(&self, call: &Call, gc: Gc) -> Result<GcReport> {
        call.ctx.filtered(&RUN_READ);
        let before = self.cutoff(call.place.id, gc).await?;
        let mut report = GcReport { before: Some(before), ..GcReport::default() };
        let mut from = Some(Place::START);
        while let Some(place) = from.take() {
            let (found, next) = self.judged(call.place.id, before, place).await?;
            for (due, in_the_way) in found {
                let resource = crate::access::resource(&call.place, due.experiment(), false);
                match in_the_way {
                    _ if !call.ctx.allows(&RUN_READ, &resource) => {}
                    None => report.count(&due),
                    Some(error) => report.keep(&due, &error),
                }
            }
            from = next;
        }
        Ok(report)
    }

    /// Purges what is old enough, at most so much in one call.
    pub async fn collect_garbage(&self, call: &Call, gc: Gc) -> Result<GcReport> {
        let resource = call.place.resource();
        call.ctx.authorize(&GC, &resource).await?;
        let before = self.cutoff(call.place.id, gc).await?;
        let collector = Collector {
            ctx: call.ctx.clone(),
            project: call.place.id,
            scope: call.place.scope(),
            attributes: call.place.attributes(),
            why: "garbage collection",
        };
        let mut report = self.collect(&collector, before, self.config().purge.max_gc).await?;
        let until = std::time::Instant::now() + self.config().purge.patience.get();
        let Gone { files, bytes, pending } =
            self.clear_away(Which::Project(call.place.id), Some(until)).await?;
        (report.files, report.bytes, report.pending) = (files, bytes, pending);
        let (ctx, shown) = (call.ctx.clone(), report.clone());
        self.db()
            .write(move |tx| {
                let change = Change::new(&GC, &resource)
                    .detail("experiments", shown.experiments)
                    .detail("runs", shown.runs)
                    .detail("logged_models", shown.logged_models)
                    .detail("kept", shown.kept_count);
                tx.record(&ctx, change)
            })
            .await?;
        Ok(report)
    }

    /// Purges at most `limit` things that were deleted before `before`, each in a transaction of
    /// its own that looks again. What cannot be purged is told, and in nobody's way.
    pub(super) async fn collect(
        &self,
        by: &Collector,
        before: Timestamp,
        limit: usize,
    ) -> Result<GcReport> {
        let mut report = GcReport { before: Some(before), ..GcReport::default() };
        let mut asked: HashSet<(&'static str, ExperimentId)> = HashSet::new();
        let mut from = Some(Place::START);
        while let Some(place) = from.take() {
            let (found, next) = self.judged(by.project, before, place).await?;
            for (due, in_the_way) in found {
                if report.purged() >= limit as u64 {
                    report.more = true;
                    return Ok(report);
                }
                let outcome = match in_the_way {
                    Some(error) => Err(error),
                    None => self.collect_one(by, &due, &mut asked).await,
                };
                match outcome {
                    Ok(()) => report.count(&due),
                    // Held, in use, not allowed, restored or purged meanwhile.
                    Err(error) if is_in_the_way(&error) => report.keep(&due, &error),
                    Err(error) => return Err(error),
                }
            }
            from = next;
        }
        Ok(report)
    }

    /// A part of the bin, with what is in the way of each at this moment.
    async fn judged(
        &self,
        project: ProjectId,
        before: Timestamp,
        from: Place,
    ) -> Result<(Vec<(Due, Option<Error>)>, Option<Place>)> {
        let this = self.clone();
        self.db()
            .read(move |tx| {
                let cutoff = before.micros() / 1000;
                let (found, next) = store::due(tx, project, cutoff, &from, AT_ONCE)?;
                let holds = hold::all(tx, project)?;
                let kept = References::seen(tx, project, this.keeper())?;
                let judged = found.into_iter().map(|due| {
                    let covering = holds.iter().find(|hold| hold.covers(Some(due.experiment())));
                    let error = match covering {
                        Some(covering) => Some(covering.refusal()),
                        None => due.check(&kept).err(),
                    };
                    (due, error)
                });
                Ok((judged.collect(), next))
            })
            .await
    }

    /// Purges one thing, which is looked at again.
    async fn collect_one(
        &self,
        by: &Collector,
        due: &Due,
        asked: &mut HashSet<(&'static str, ExperimentId)>,
    ) -> Result<()> {
        let resource = by.resource(due.experiment());
        let action = match due {
            Due::Experiment(_) => &EXPERIMENT_PURGE,
            Due::Run(..) | Due::Model(..) => &RUN_PURGE,
        };
        if !by.ctx.allows(action, &resource) {
            let text = format!("{} is not allowed to you there", action.name);
            return Err(Error::new(&code::FORBIDDEN, text));
        }
        if asked.insert((action.name, due.experiment())) {
            by.ctx.authorize(action, &resource).await?;
        }
        let (by, this, one) = (by.clone(), self.clone(), due.clone());
        let purged = self.db().write(move |tx| {
            let kept = References::read(tx, by.project, this.keeper())?;
            let (ctx, project, why) = (&by.ctx, by.project, by.why);
            let act = Act { ctx, project, resource: &resource, force: false, why };
            match one {
                Due::Experiment(id) => condemn_experiment(tx, act, id, &kept),
                Due::Run(experiment, run) => condemn_run(tx, act, experiment, run, &kept),
                Due::Model(experiment, model) => condemn_model(tx, act, experiment, model, &kept),
            }
        });
        purged.await?;
        match due {
            Due::Experiment(_) => self.0.homes.clear(),
            Due::Run(_, run) => self.0.homes.forget(*run),
            Due::Model(..) => {}
        }
        Ok(())
    }

    /// Before when something must have been deleted.
    async fn cutoff(&self, project: ProjectId, gc: Gc) -> Result<Timestamp> {
        let kept = self.db().read(move |tx| retention::find(tx, project)).await?.deleted_days;
        let days = match (gc.older_than_days, kept) {
            (Some(days), _) if !(0..=36_500).contains(&days) => {
                return Err(Error::invalid("older_than_days", days, "0 to 36500"));
            }
            (Some(days), Some(kept)) if days < kept => {
                let allowed = format!("{kept} or more: the project keeps what was deleted so long");
                return Err(Error::invalid("older_than_days", days, allowed));
            }
            (Some(days), _) | (None, Some(days)) => days,
            (None, None) => {
                let text = "the project has no retention: say how old garbage must be";
                return Err(Error::new(&code::INVALID_INPUT, text).at("older_than_days"));
            }
        };
        Ok(self.moment_before(days))
    }

    pub(super) fn moment_before(&self, days: i64) -> Timestamp {
        let age = std::time::Duration::from_millis(
            days.unsigned_abs() * retention::DAY_MS.unsigned_abs(),
        );
        // What was deleted this very millisecond is old enough for zero days.
        self.db().now() - age + std::time::Duration::from_millis(1)
    }
}

fn is_in_the_way(error: &Error) -> bool {
    [&code::LEGAL_HOLD, &code::IN_USE, &code::FORBIDDEN, &code::INVALID_STATE, &code::NOT_FOUND]
        .contains(&error.code())
}

/// The tenant that a project belongs to.
pub(super) fn tenant_of(tx: &mut Tx<'_>, project: ProjectId) -> Result<Option<TenantId>> {
    tx.query_opt("SELECT tenant FROM project WHERE id = $1", &params![project])?
        .map(|row| row.get("tenant"))
        .transpose()
}
