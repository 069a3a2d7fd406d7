//! The verbs on evaluation datasets.

use std::collections::BTreeMap;

use falaj_base::{Action, Error, ProjectId, Resource, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use falaj_tracking::access::{allowed, resource};
use falaj_tracking::experiment::Experiment;
use falaj_tracking::purge::check_no_hold;
use falaj_tracking::{EXPERIMENT_READ, ExperimentId};

use super::dataset::{Dataset, DatasetId, check_count, no_dataset};
use super::store;
use crate::{EVALUATION_DELETE, EVALUATION_READ, EVALUATION_WRITE, Traces};

/// A dataset, and the experiments it belongs to that the caller may see.
pub(super) type Placed = (Dataset, Vec<ExperimentId>);

impl Traces {
    pub(super) async fn create_dataset(
        &self,
        call: &Call,
        name: String,
        tags: BTreeMap<String, String>,
        experiments: &[String],
    ) -> Result<Placed> {
        let dataset = Dataset::new(name, tags, self.tracking().now_ms())?;
        let resource = dataset.resource(&call.place);
        call.ctx.authorize(&EVALUATION_WRITE, &resource).await?;
        let experiments = self.experiments_here(call, experiments).await?;
        let (ctx, project, most) = (call.ctx.clone(), call.place.id, self.config().max_datasets);
        self.db()
            .write(move |tx| {
                tx.lock(&format!("evaluation-datasets/{project}"))?;
                if store::count(tx, project)? >= most {
                    let text = format!(
                        "a project has at most {most} evaluation datasets (`traces.max_datasets`)"
                    );
                    return Err(Error::new(&code::CONFLICT, text));
                }
                store::insert(tx, project, &dataset)?;
                for experiment in &experiments {
                    store::link(tx, &dataset.id, experiment.no)?;
                }
                let change = Change::new(&EVALUATION_WRITE, &resource)
                    .event("evaluation_dataset.created", &dataset.shown())
                    .after(&dataset)
                    .detail("name", &dataset.name);
                tx.record(&ctx, change)?;
                let mut ids: Vec<ExperimentId> = experiments.iter().map(|one| one.id).collect();
                ids.sort_unstable();
                ids.dedup();
                Ok((dataset, ids))
            })
            .await
    }

    pub(super) async fn dataset(&self, call: &Call, id: &str) -> Result<Placed> {
        let (dataset, _) = self.found_dataset(call, id, &EVALUATION_READ).await?;
        let wanted = dataset.id.clone();
        let experiments = self.db().read(move |tx| store::experiments(tx, &wanted)).await?;
        Ok((dataset, seen(call, experiments)))
    }

    /// Deletes a dataset with its records, for good.
    pub(super) async fn delete_dataset(&self, call: &Call, id: &str) -> Result<()> {
        let event = "evaluation_dataset.deleted";
        self.change_dataset(call, id, &EVALUATION_DELETE, event, |tx, dataset, project| {
            hold(tx, project, &dataset.id)?;
            store::delete(tx, &dataset.id)?;
            Ok(Kept::<()>::No)
        })
        .await
        .map(drop)
    }

    pub(super) async fn tag_dataset(
        &self,
        call: &Call,
        id: &str,
        tags: BTreeMap<String, String>,
    ) -> Result<()> {
        let most = self.config().max_tags;
        self.update_dataset(call, id, move |_, dataset| {
            dataset.tags.extend(tags);
            check_count(dataset.tags.len(), most)
        })
        .await
        .map(drop)
    }

    /// Deletes a tag; one that is not there is already deleted.
    pub(super) async fn untag_dataset(&self, call: &Call, id: &str, key: String) -> Result<()> {
        self.update_dataset(call, id, move |_, dataset| {
            dataset.tags.remove(&key);
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Lets experiments point to a dataset. All of them must be there.
    pub(super) async fn add_to_experiments(
        &self,
        call: &Call,
        id: &str,
        experiments: &[String],
    ) -> Result<Placed> {
        // Who may not touch the dataset is not told which experiments there are.
        self.found_dataset(call, id, &EVALUATION_WRITE).await?;
        let experiments = self.experiments_here(call, experiments).await?;
        let now = self.tracking().now_ms();
        let (dataset, all) = self
            .update_dataset(call, id, move |tx, dataset| {
                for experiment in &experiments {
                    store::link(tx, &dataset.id, experiment.no)?;
                }
                dataset.updated_at = now;
                store::experiments(tx, &dataset.id)
            })
            .await?;
        Ok((dataset, seen(call, all)))
    }

    /// The opposite. An experiment that does not point to it, or is not there, is passed over.
    pub(super) async fn remove_from_experiments(
        &self,
        call: &Call,
        id: &str,
        experiments: &[String],
    ) -> Result<Placed> {
        self.found_dataset(call, id, &EVALUATION_WRITE).await?;
        let mut leaving = Vec::new();
        for experiment in experiments {
            let experiment: ExperimentId = experiment.parse()?;
            let found = self.tracking().experiment(call, experiment, &EXPERIMENT_READ).await;
            match found {
                Ok(found) => leaving.push(found),
                Err(error) if *error.code() == code::NOT_FOUND => {}
                Err(error) => return Err(error),
            }
        }
        let (now, project) = (self.tracking().now_ms(), call.place.id);
        let (dataset, all) = self
            .update_dataset(call, id, move |tx, dataset| {
                let mut gone = 0;
                for experiment in &leaving {
                    // A hold covers what an experiment points to only as long as it does.
                    check_no_hold(tx, project, [Some(experiment.id)])?;
                    gone += store::unlink(tx, &dataset.id, experiment.no)?;
                }
                if gone > 0 {
                    dataset.updated_at = now;
                }
                store::experiments(tx, &dataset.id)
            })
            .await?;
        Ok((dataset, seen(call, all)))
    }

    /// The dataset with this id, if the caller may do `action` with it. Not there and not yours
    /// read alike.
    pub(super) async fn found_dataset(
        &self,
        call: &Call,
        id: &str,
        action: &'static Action,
    ) -> Result<(Dataset, Resource)> {
        let not_there = || no_dataset(id);
        let found = match DatasetId::parse(id) {
            Some(id) => {
                let project = call.place.id;
                self.db().read(move |tx| store::find(tx, project, &id)).await?
            }
            None => None,
        };
        let Some(dataset) = found else {
            let name: String = id.chars().take(64).collect();
            let absent = Resource::absent("evaluation_dataset", name, call.place.scope());
            allowed(&call.ctx, action, &absent, not_there).await?;
            return Err(not_there());
        };
        let resource = dataset.resource(&call.place);
        allowed(&call.ctx, action, &resource, not_there).await?;
        Ok((dataset, resource))
    }

    async fn experiments_here(&self, call: &Call, ids: &[String]) -> Result<Vec<Experiment>> {
        let mut all = Vec::with_capacity(ids.len().min(100));
        for id in ids {
            all.push(self.tracking().experiment(call, id.parse()?, &EXPERIMENT_READ).await?);
        }
        Ok(all)
    }

    async fn update_dataset<T: Send + 'static>(
        &self,
        call: &Call,
        id: &str,
        change: impl FnOnce(&mut Tx<'_>, &mut Dataset) -> Result<T> + Send + 'static,
    ) -> Result<(Dataset, T)> {
        let event = "evaluation_dataset.updated";
        let (dataset, kept) = self
            .change_dataset(call, id, &EVALUATION_WRITE, event, |tx, dataset, _| {
                change(tx, dataset).map(Kept::Yes)
            })
            .await?;
        match kept {
            Kept::Yes(said) => Ok((dataset, said)),
            Kept::No => Err(Error::internal("an updated dataset is gone")),
        }
    }

    /// One change of one dataset, alone at it and on record.
    pub(super) async fn change_dataset<T: Send + 'static>(
        &self,
        call: &Call,
        id: &str,
        action: &'static Action,
        event: &'static str,
        change: impl FnOnce(&mut Tx<'_>, &mut Dataset, ProjectId) -> Result<Kept<T>> + Send + 'static,
    ) -> Result<(Dataset, Kept<T>)> {
        let (dataset, resource) = self.found_dataset(call, id, action).await?;
        let (ctx, project) = (call.ctx.clone(), call.place.id);
        self.db()
            .write(move |tx| {
                // The lock of holds comes before that of a thing, wherever both are taken.
                check_no_hold(tx, project, [])?;
                tx.lock(&format!("evaluation-dataset/{}", dataset.id))?;
                let gone = || no_dataset(dataset.id.as_str());
                let mut now = store::find(tx, project, &dataset.id)?.ok_or_else(gone)?;
                let before = now.clone();
                let kept = change(tx, &mut now, project)?;
                let record = Change::new(action, &resource).event(event, &now.shown());
                let record = match &kept {
                    Kept::Yes(_) => {
                        store::update(tx, &now)?;
                        record.before(&before).after(&now)
                    }
                    Kept::No => record.before(&before),
                };
                tx.record(&ctx, record.detail("name", &now.name).detail("records", now.records))?;
                Ok((now, kept))
            })
            .await
    }
}

/// Whether a dataset is still there after a change, and what came of it.
pub(super) enum Kept<T = ()> {
    Yes(T),
    No,
}

/// Refuses if the project, or an experiment that points to the dataset, is under a legal hold.
pub(super) fn hold(tx: &mut Tx<'_>, project: ProjectId, id: &DatasetId) -> Result<()> {
    let experiments = store::experiments(tx, id)?;
    check_no_hold(tx, project, std::iter::once(None).chain(experiments.into_iter().map(Some)))
}

/// Those of the experiments that the caller may see.
pub(super) fn seen(call: &Call, experiments: Vec<ExperimentId>) -> Vec<ExperimentId> {
    let visible =
        |id: &ExperimentId| call.ctx.allows(&EXPERIMENT_READ, &resource(&call.place, *id, false));
    experiments.into_iter().filter(visible).collect()
}
