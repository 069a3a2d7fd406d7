//! What is said about models, whoever asks and however it travels.

use std::sync::Arc;

use falaj_base::Result;
use falaj_oip::describe::{
    BatchStatistics, Batching, Duration, EXTENSIONS, InferStatistics, MemoryUsage, ModelConfig,
    ModelIndex, ModelMetadata, ModelStatistics, ServerMetadata, State, Statistics as AllStatistics,
};

use super::desk::{Desk, Purpose};
use super::infer::Of;
use crate::live::{Arm, Served};
use crate::runtime::{Model, Priority, Spent, Statistics};

pub(super) fn server() -> ServerMetadata {
    ServerMetadata {
        name: "falaj".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: EXTENSIONS.iter().map(|&name| name.to_owned()).collect(),
    }
}

/// Whether a model takes requests. One that is not there does not; nor does one that is unloaded.
pub(super) async fn is_ready(desk: &dyn Desk, of: Of<'_>) -> Result<bool> {
    let served = desk.served(of.name, Purpose::Look).await?;
    Ok(!served.paused && of.version.is_none_or(|version| served.version(version).is_ok()))
}

pub(super) async fn metadata(desk: &dyn Desk, of: Of<'_>) -> Result<ModelMetadata> {
    let (served, model) = loaded(desk, of).await?;
    let mut versions: Vec<String> = served.arms.iter().map(|arm| arm.version.to_string()).collect();
    versions.sort();
    versions.dedup();
    Ok(ModelMetadata::of(&served.name, versions, platform(&model), model.metadata()))
}

pub(super) async fn config(desk: &dyn Desk, of: Of<'_>) -> Result<ModelConfig> {
    let (served, model) = loaded(desk, of).await?;
    let settings = model.settings();
    let runs = Batching {
        instances: model.instances(),
        max_rows: if model.batches() { settings.batching.max_rows } else { 1 },
        delay: settings.batching.delay,
        preferred: settings.batching.preferred.clone(),
        max_queue: settings.max_queue,
        timeout: settings.timeout,
        priority_levels: Priority::ALL.len() as u64,
        default_priority: 2,
    };
    Ok(ModelConfig::of(&served.name, platform(&model), model.engine(), model.metadata(), &runs))
}

/// The model that answers by default, or the version asked for.
async fn loaded(desk: &dyn Desk, of: Of<'_>) -> Result<(Arc<Served>, Arc<Model>)> {
    let served = desk.served(of.name, Purpose::Look).await?;
    let arm = served.choose(of.version, of.key, 0.0)?;
    let model = desk.fleet().model(&arm.key).await?;
    Ok((served, model))
}

/// Triton's word for models of this kind.
fn platform(_: &Model) -> &'static str {
    "onnxruntime_onnx"
}

/// The endpoints that the caller may see: each version that runs.
pub(super) async fn index(desk: &dyn Desk, only_ready: bool) -> Result<Vec<ModelIndex>> {
    let entry = |served: &Served, arm: &Arm| {
        let (state, reason) =
            if served.paused { (State::Unavailable, "unloaded") } else { (State::Ready, "") };
        ModelIndex {
            name: served.name.clone(),
            version: arm.version.to_string(),
            state,
            reason: reason.to_owned(),
        }
    };
    let all = desk.all().await?;
    let models =
        all.iter().flat_map(|served| served.arms.iter().map(move |arm| entry(served, arm)));
    Ok(models.filter(|model| !only_ready || model.state == State::Ready).collect())
}

/// How often and how long models ran since they were loaded here.
pub(super) fn statistics(
    desk: &dyn Desk,
    served: &[Arc<Served>],
    version: Option<&str>,
) -> Result<AllStatistics> {
    if let (Some(version), [only]) = (version, served) {
        only.version(version)?;
    }
    let of_arm = |served: &Served, arm: &Arm| {
        let model = desk.fleet().ready(&arm.key);
        let done = model.as_ref().map(|model| model.statistics()).unwrap_or_default();
        told(served, arm, &done, model.map(|model| model.bytes()))
    };
    let arms = served.iter().flat_map(|served| served.arms.iter().map(move |arm| (served, arm)));
    let arms = arms.filter(|(_, arm)| version.is_none_or(|version| *arm.version == *version));
    Ok(AllStatistics { model_stats: arms.map(|(served, arm)| of_arm(served, arm)).collect() })
}

fn told(served: &Served, arm: &Arm, done: &Statistics, bytes: Option<u64>) -> ModelStatistics {
    let spent = |spent: Spent| Duration { count: spent.count, ns: spent.ns };
    let batches = done.batches.iter().map(|batch| BatchStatistics {
        batch_size: batch.batch_size,
        compute_input: spent(batch.compute_input),
        compute_infer: spent(batch.compute_infer),
        compute_output: spent(batch.compute_output),
    });
    let memory = bytes.map(|byte_size| MemoryUsage { kind: "CPU".to_owned(), id: 0, byte_size });
    ModelStatistics {
        name: served.name.clone(),
        version: arm.version.to_string(),
        last_inference: done.last_inference,
        inference_count: done.inference_count,
        execution_count: done.execution_count,
        inference_stats: InferStatistics {
            success: spent(done.success),
            fail: spent(done.fail),
            queue: spent(done.queue),
            compute_input: spent(done.compute_input),
            compute_infer: spent(done.compute_infer),
            compute_output: spent(done.compute_output),
            cache_hit: spent(done.cache_hit),
            cache_miss: spent(done.cache_miss),
        },
        batch_stats: batches.collect(),
        memory_usage: memory.into_iter().collect(),
        ..ModelStatistics::default()
    }
}
