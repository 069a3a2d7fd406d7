//! The verbs on scorers. A scorer belongs to an experiment and is authorised there.

use std::collections::HashMap;

use falaj_base::{Error, Result, code};
use falaj_mlflow::Call;
use falaj_store::record::Change;
use falaj_tracking::ExperimentId;
use falaj_tracking::access::resource;
use falaj_tracking::experiment::{Experiment, require_active};
use falaj_tracking::purge::check_no_hold;
use serde_json::json;
use uuid::Uuid;

use super::scorer::{NewScorer, Version};
use super::store;
use crate::{EVALUATION_DELETE, EVALUATION_READ, EVALUATION_WRITE, Traces};

impl Traces {
    /// Adds a version to a scorer, which it makes if there is none. Numbers are not given twice.
    pub(super) async fn register_scorer(
        &self,
        call: &Call,
        experiment: ExperimentId,
        new: NewScorer,
    ) -> Result<Version> {
        let experiment = self.tracking().experiment(call, experiment, &EVALUATION_WRITE).await?;
        require_active(&experiment)?;
        let resource = resource(&call.place, experiment.id, false);
        let (now, most) = (self.tracking().now_ms(), self.config().max_scorers);
        let ctx = call.ctx.clone();
        self.db()
            .write(move |tx| {
                tx.lock(&format!("scorers/{}", experiment.no))?;
                let (scorer_id, last) = match store::find(tx, experiment.no, &new.name)? {
                    Some(known) => known,
                    None if store::count(tx, experiment.no)? >= most => {
                        return Err(full(&format!("an experiment has at most {most} scorers")));
                    }
                    None => (Uuid::now_v7().to_string(), 0),
                };
                if store::count_versions(tx, &scorer_id)? >= most {
                    return Err(full(&format!("a scorer has at most {most} versions")));
                }
                let NewScorer { name, serialized } = new;
                let version =
                    Version { scorer_id, name, number: last + 1, created_at: now, serialized };
                store::insert(tx, experiment.no, &version)?;
                let data = shown(&experiment, &version.name, Some(version.number));
                let change = Change::new(&EVALUATION_WRITE, &resource)
                    .event("scorer.registered", &data)
                    .after(&(&data, &version.serialized))
                    .detail("scorer", &version.name)
                    .detail("version", version.number);
                tx.record(&ctx, change)?;
                Ok(version)
            })
            .await
    }

    /// The last version of each scorer of one experiment, by name.
    pub(super) async fn scorers(
        &self,
        call: &Call,
        experiment: ExperimentId,
    ) -> Result<Vec<(ExperimentId, Version)>> {
        let experiment = self.tracking().experiment(call, experiment, &EVALUATION_READ).await?;
        require_active(&experiment)?;
        self.latest_scorers(vec![(experiment.no, experiment.id)]).await
    }

    /// The same for those of several experiments that are there and that the caller may see: of the
    /// whole project, if none is named.
    pub(super) async fn scorers_across(
        &self,
        call: &Call,
        experiments: Option<Vec<ExperimentId>>,
    ) -> Result<Vec<(ExperimentId, Version)>> {
        call.ctx.filtered(&EVALUATION_READ);
        let mut here = self.tracking().active_experiments(call).await?;
        here.retain(|(_, id)| {
            experiments.as_ref().is_none_or(|wanted| wanted.contains(id))
                && call.ctx.allows(&EVALUATION_READ, &resource(&call.place, *id, false))
        });
        self.latest_scorers(here).await
    }

    async fn latest_scorers(
        &self,
        experiments: Vec<(i64, ExperimentId)>,
    ) -> Result<Vec<(ExperimentId, Version)>> {
        let room = self.config().max_reply_size.as_usize();
        let ids: HashMap<i64, ExperimentId> = experiments.into_iter().collect();
        let numbers: Vec<i64> = ids.keys().copied().collect();
        let found = self.db().read(move |tx| store::latest(tx, &numbers, room)).await?;
        let found = found.ok_or_else(|| too_much(room))?;
        let place = |(no, version): (i64, Version)| ids.get(&no).map(|id| (*id, version));
        let mut all: Vec<_> = found.into_iter().filter_map(place).collect();
        all.sort_by(|(a, one), (b, other)| (a, &one.name).cmp(&(b, &other.name)));
        Ok(all)
    }

    pub(super) async fn scorer_versions(
        &self,
        call: &Call,
        experiment: ExperimentId,
        name: &str,
    ) -> Result<Vec<Version>> {
        let (experiment, scorer) = self.found_scorer(call, experiment, name).await?;
        let room = self.config().max_reply_size.as_usize();
        let found = self
            .db()
            .read(move |tx| {
                if store::weight_of(tx, &scorer)? > room {
                    return Err(too_much(room));
                }
                store::versions(tx, &scorer)
            })
            .await?;
        if found.is_empty() { Err(no_scorer(&experiment, name, None)) } else { Ok(found) }
    }

    pub(super) async fn scorer(
        &self,
        call: &Call,
        experiment: ExperimentId,
        name: &str,
        version: Option<i64>,
    ) -> Result<Version> {
        let (experiment, scorer) = self.found_scorer(call, experiment, name).await?;
        let found = self.db().read(move |tx| store::version(tx, &scorer, version)).await?;
        found.ok_or_else(|| no_scorer(&experiment, name, version))
    }

    /// Deletes one version, or a scorer with all of them, for good.
    pub(super) async fn delete_scorer(
        &self,
        call: &Call,
        experiment: ExperimentId,
        name: String,
        version: Option<i64>,
    ) -> Result<()> {
        let experiment = self.tracking().experiment(call, experiment, &EVALUATION_DELETE).await?;
        require_active(&experiment)?;
        check_name(&experiment, &name)?;
        let resource = resource(&call.place, experiment.id, false);
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        self.db()
            .write(move |tx| {
                check_no_hold(tx, project, [Some(experiment.id)])?;
                tx.lock(&format!("scorers/{}", experiment.no))?;
                let missing = || no_scorer(&experiment, &name, version);
                let (scorer, _) = store::find(tx, experiment.no, &name)?.ok_or_else(missing)?;
                if store::delete(tx, &scorer, version)? == 0 && version.is_some() {
                    return Err(missing());
                }
                let data = shown(&experiment, &name, version);
                let change = Change::new(&EVALUATION_DELETE, &resource)
                    .event("scorer.deleted", &data)
                    .before(&data)
                    .detail("scorer", &name);
                tx.record(&ctx, change)
            })
            .await
    }

    /// The experiment and the id of a scorer that is there.
    async fn found_scorer(
        &self,
        call: &Call,
        experiment: ExperimentId,
        name: &str,
    ) -> Result<(Experiment, String)> {
        let experiment = self.tracking().experiment(call, experiment, &EVALUATION_READ).await?;
        require_active(&experiment)?;
        check_name(&experiment, name)?;
        let (no, wanted) = (experiment.no, name.to_owned());
        match self.db().read(move |tx| store::find(tx, no, &wanted)).await? {
            Some((scorer, _)) => Ok((experiment, scorer)),
            None => Err(no_scorer(&experiment, name, None)),
        }
    }
}

/// No scorer has such a name, and a database would refuse it.
fn check_name(experiment: &Experiment, name: &str) -> Result<()> {
    if name.contains('\0') { Err(no_scorer(experiment, name, None)) } else { Ok(()) }
}

fn shown(experiment: &Experiment, name: &str, version: Option<i64>) -> serde_json::Value {
    json!({ "experiment_id": experiment.id.to_string(), "name": name, "version": version })
}

fn no_scorer(experiment: &Experiment, name: &str, version: Option<i64>) -> Error {
    let name: String = name.chars().take(64).collect();
    let which = version.map(|version| format!(" and version {version}")).unwrap_or_default();
    let text =
        format!("Scorer with name '{name}'{which} not found for experiment {}.", experiment.id);
    Error::new(&code::NOT_FOUND, text)
}

fn full(what: &str) -> Error {
    Error::new(&code::CONFLICT, format!("{what} (`traces.max_scorers`)"))
}

fn too_much(most: usize) -> Error {
    let text = format!("these scorers have more than {most} bytes (`traces.max_reply_size`)");
    Error::new(&code::TOO_LARGE, text)
}
