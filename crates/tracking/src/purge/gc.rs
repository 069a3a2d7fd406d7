//! Collecting garbage: everything in a project's bin that is old enough.

use std::collections::HashSet;

use falaj_base::{Ctx, Error, ProjectId, Resource, Result, Scope, TenantId, Timestamp, code};
use falaj_mlflow::Call;
use falaj_store::db::{Tx, params};
use falaj_store::record::Change;
use schemars::JsonSchema;
use serde::Serialize;

use super::keeper::References;
use super::service::{Act, Gone, condemn_experiment, condemn_model, condemn_run};
use super::store::{self, Due};
use super::{hold, retention};
use crate::experiment::ExperimentId;
use crate::{EXPERIMENT_PURGE, GC, RUN_PURGE, RUN_READ, Tracking};

/// How many things that stay are named in a reply.
const NAMED: usize = 100;

/// Which part of the bin is meant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gc {
    /// Days since deletion; the project's retention if absent.
    pub older_than_days: Option<i64>,
}

/// What garbage there is, or what became of it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct GcReport {
    /// Deleted before this moment is old enough.
    pub before: Option<Timestamp>,
    pub experiments: u64,
    pub runs: u64,
    pub logged_models: u64,
    /// Files deleted so far, and their bytes.
    pub files: u64,
    pub bytes: u64,
    /// What stays although it is old enough, and why; the first hundred.
    pub kept: Vec<KeptItem>,
    /// How many stay.
    pub kept_count: u64,
    /// Whether there is more: ask again.
    pub more: bool,
    /// Whether rows or files are still being cleared away in the background.
    pub pending: bool,
}

/// Something that stays, and why.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct KeptItem {
    pub kind: &'static str,
    pub id: String,
    pub why: String,
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
        let (project, before) = (call.place.id, self.cutoff(call.place.id, gc).await?);
        let place = call.place.clone();
        let ctx = call.ctx.clone();
        let this = self.clone();
        self.db()
            .read(move |tx| {
                let seen = |due: &Due| {
                    let resource = crate::access::resource(&place, due.experiment(), false);
                    ctx.allows(&RUN_READ, &resource)
                };
                let due = store::due(tx, project, before.micros() / 1000)?;
                let held = hold::all(tx, project)?;
                let kept = References::seen(tx, project, this.keeper())?;
                let mut report = GcReport { before: Some(before), ..GcReport::default() };
                for due in due.into_iter().filter(seen) {
                    let hold = held.iter().find(|hold| hold.covers(Some(due.experiment())));
                    let why = match hold {
                        Some(hold) => Err(hold.refusal()),
                        None => due.check(&kept),
                    };
                    match why {
                        Ok(()) => report.count(&due),
                        Err(error) => report.keep(&due, &error),
                    }
                }
                Ok(report)
            })
            .await
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
        let Gone { files, bytes, pending } = self.clear_away(None, Some(until)).await?;
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
        let project = by.project;
        let cutoff = before.micros() / 1000;
        let due = self.db().read(move |tx| store::due(tx, project, cutoff)).await?;
        let mut report = GcReport { before: Some(before), ..GcReport::default() };
        let mut asked: HashSet<(&'static str, ExperimentId)> = HashSet::new();
        for due in due {
            if report.purged() >= limit as u64 {
                report.more = true;
                break;
            }
            let resource = by.resource(due.experiment());
            let action = match due {
                Due::Experiment(_) => &EXPERIMENT_PURGE,
                _ => &RUN_PURGE,
            };
            if !by.ctx.allows(action, &resource) {
                let text = format!("{} is not allowed to you there", action.name);
                report.keep(&due, &Error::new(&code::FORBIDDEN, text));
                continue;
            }
            if asked.insert((action.name, due.experiment())) {
                by.ctx.authorize(action, &resource).await?;
            }
            let (by, this, one) = (by.clone(), self.clone(), due.clone());
            let purged = self.db().write(move |tx| {
                let kept = References::read(tx, by.project, this.keeper())?;
                let act = Act {
                    ctx: &by.ctx,
                    project: by.project,
                    resource: &resource,
                    force: false,
                    why: by.why,
                };
                match one {
                    Due::Experiment(id) => condemn_experiment(tx, act, id, &kept),
                    Due::Run(experiment, run) => condemn_run(tx, act, experiment, run, &kept),
                    Due::Model(experiment, model) => {
                        condemn_model(tx, act, experiment, model, &kept)
                    }
                }
            });
            match purged.await {
                Ok(_) => {
                    match &due {
                        Due::Experiment(_) => self.0.homes.clear(),
                        Due::Run(_, run) => self.0.homes.forget(*run),
                        Due::Model(..) => {}
                    }
                    report.count(&due);
                }
                // Held, in use, restored or purged meanwhile.
                Err(error) if is_in_the_way(&error) => report.keep(&due, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(report)
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
        let age = std::time::Duration::from_millis(days.unsigned_abs() * retention::DAY_MS.unsigned_abs());
        // What was deleted this very millisecond is old enough for zero days.
        self.db().now() - age + std::time::Duration::from_millis(1)
    }
}

fn is_in_the_way(error: &Error) -> bool {
    [&code::LEGAL_HOLD, &code::IN_USE, &code::INVALID_STATE, &code::NOT_FOUND]
        .contains(&error.code())
}

impl Due {
    fn experiment(&self) -> ExperimentId {
        match self {
            Self::Experiment(id) | Self::Run(id, _) | Self::Model(id, _) => *id,
        }
    }

    fn check(&self, kept: &References) -> Result<()> {
        match self {
            Self::Experiment(id) => kept.check_experiment(*id),
            Self::Run(_, run) => kept.check_run(*run),
            Self::Model(_, model) => kept.check_model(*model),
        }
    }

    fn named(&self) -> (&'static str, String) {
        match self {
            Self::Experiment(id) => ("experiment", id.to_string()),
            Self::Run(_, run) => ("run", run.to_string()),
            Self::Model(_, model) => ("logged-model", model.to_string()),
        }
    }
}

impl GcReport {
    fn purged(&self) -> u64 {
        self.experiments + self.runs + self.logged_models
    }

    fn count(&mut self, due: &Due) {
        match due {
            Due::Experiment(_) => self.experiments += 1,
            Due::Run(..) => self.runs += 1,
            Due::Model(..) => self.logged_models += 1,
        }
    }

    fn keep(&mut self, due: &Due, why: &Error) {
        self.kept_count += 1;
        if self.kept.len() < NAMED {
            let (kind, id) = due.named();
            self.kept.push(KeptItem { kind, id, why: why.message().to_owned() });
        }
    }
}

/// The tenant that a project belongs to.
pub(super) fn tenant_of(tx: &mut Tx<'_>, project: ProjectId) -> Result<Option<TenantId>> {
    tx.query_opt("SELECT tenant FROM project WHERE id = $1", &params![project])?
        .map(|row| row.get("tenant"))
        .transpose()
}
