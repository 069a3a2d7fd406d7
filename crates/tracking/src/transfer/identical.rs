//! Whether what is sent is what is here already.

use falaj_base::{Result, SetDigest};
use falaj_store::db::Tx;

use super::check::{input_digest, link, metrics, pairs};
use super::logged_models::ReadyModel;
use super::runs::{Ready, input};
use crate::dataset::store as lineage;
use crate::experiment::Stage;
use crate::logged_model::store as models;
use crate::run::load::load;

/// Whether a run that is here is the one that was sent, in everything but where its files are.
pub(super) fn is_run(tx: &mut Tx<'_>, sent: &Ready) -> Result<bool> {
    let Some(here) = load(tx, &[sent.id])?.pop() else { return Ok(false) };
    let (info, run) = (&here.info, &sent.run);
    let (mut theirs, mut ours) = (SetDigest::default(), SetDigest::default());
    for dataset in &run.datasets {
        theirs.merge(input_digest(&input(dataset)));
    }
    for dataset in &here.lineage.datasets {
        ours.merge(input_digest(dataset));
    }
    Ok(info.name == run.name
        && info.status == sent.status
        && info.user_id == run.user_id
        && (info.start_time, info.end_time) == (run.start_time, run.end_time)
        && info.stage == Stage::from(run.stage)
        && pairs(&here.data.params) == pairs(&run.params)
        && pairs(&here.data.tags) == pairs(&run.tags)
        && ours == theirs)
}

/// Whether a run that is here is an earlier state of the one that was sent: it began at the same
/// time, and has no parameter that the sent one has not.
pub(super) fn is_earlier_run(tx: &mut Tx<'_>, sent: &Ready) -> Result<bool> {
    let Some(here) = load(tx, &[sent.id])?.pop() else { return Ok(false) };
    Ok(here.info.start_time == sent.run.start_time
        && here.data.params.iter().all(|pair| sent.run.params.contains(pair)))
}

/// The same of a logged model.
pub(super) fn is_earlier_model(tx: &mut Tx<'_>, sent: &ReadyModel) -> Result<bool> {
    let Some(here) = models::find(tx, sent.model.id)? else { return Ok(false) };
    Ok(here.created_at == sent.model.created_at
        && here.params.iter().all(|pair| sent.model.params.contains(pair)))
}

/// Whether a logged model that is here is the one that was sent.
pub(super) fn is_model(tx: &mut Tx<'_>, sent: &ReadyModel) -> Result<bool> {
    let Some(here) = models::find(tx, sent.model.id)? else { return Ok(false) };
    let model = &sent.model;
    let mut links = SetDigest::default();
    for run in &sent.inputs {
        links.merge(link(*run, None));
    }
    for (run, step) in &sent.outputs {
        links.merge(link(*run, Some(*step)));
    }
    let mut there = SetDigest::default();
    for (run, step) in lineage::runs_of_model(tx, model.id)? {
        there.merge(link(run, step));
    }
    Ok(here.name == model.name
        && here.model_type == model.model_type
        && here.source_run == model.source_run
        && here.status == model.status
        && here.stage == model.stage
        && here.created_at == model.created_at
        && pairs(&here.params) == pairs(&model.params)
        && pairs(&here.tags) == pairs(&model.tags)
        && metrics(&here) == metrics(model)
        && links == there)
}
