//! The work of loading: sessions made, golden outputs compared, everything run once before anybody
//! asks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::golden::{Golden, verify};
use falaj_inference::{
    Data, DataType, Engine, Limits, Metadata, ModelFile, Session, Tensor, ValueInfo, run,
};

use super::super::cost::Costs;
use super::super::run::{stacked, told};
use super::super::settings::Settings;

/// How often a session runs before it is asked.
const RUNS: usize = 3;
/// How often a full batch does.
const BATCH_RUNS: usize = 2;
/// No batch is tried beforehand that would take longer.
const LONGEST_TRIAL: Duration = Duration::from_millis(500);

/// How a model is to be prepared.
pub(super) struct Recipe {
    pub limits: Limits,
    pub golden: Option<Golden>,
    pub batch_invariant: bool,
    pub instances: usize,
    pub settings: Settings,
}

/// A model that is ready.
pub(super) struct Prepared {
    pub sessions: Vec<Box<dyn Session>>,
    pub metadata: Metadata,
    pub engine: &'static str,
    pub costs: Costs,
    /// What all sessions take, as far as their engine says.
    pub bytes: usize,
    /// Whether its inputs and outputs are rows, as far as it says.
    pub by_row: bool,
}

pub(super) fn prepare(engine: &dyn Engine, file: Bytes, recipe: &Recipe) -> Result<Prepared> {
    contained(|| attempt(engine, file, recipe))
}

/// A session of a model that was prepared before.
pub(super) fn again(engine: &dyn Engine, file: Bytes, limits: &Limits) -> Result<Box<dyn Session>> {
    contained(|| engine.load(&ModelFile::read(file, limits)?))
}

fn contained<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::internal(format!("loading a model panicked: {}", told(&*panic))))
    })
}

fn attempt(engine: &dyn Engine, file: Bytes, recipe: &Recipe) -> Result<Prepared> {
    let model = ModelFile::read(file, &recipe.limits)?;
    let mut sessions = vec![engine.load(&model)?];
    if let Some(golden) = &recipe.golden {
        verify(&mut *sessions[0], golden, None)?;
    }
    for _ in 1..recipe.instances {
        let another = sessions[0].another();
        sessions.push(another.or_else(|_| engine.load(&model))?);
    }
    let metadata = model.metadata().clone();
    drop(model);
    let costs = Costs::default();
    let by_row = by_row(&metadata);
    let inputs = match &recipe.golden {
        Some(golden) => Some(golden.inputs.clone()),
        None => zeros(&metadata),
    };
    if let Some(inputs) = inputs.filter(|_| recipe.settings.warm_up) {
        // Zeros may be nothing that the model takes; then it is not warmed up, and not refused.
        // What a run takes is learned from one of them.
        let runs = std::iter::once(RUNS).chain(std::iter::repeat(1));
        let warmed = sessions
            .iter_mut()
            .zip(runs)
            .all(|(session, runs)| warm(&mut **session, &inputs, &costs, runs));
        let max_rows = recipe.settings.batching.max_rows;
        if warmed && by_row && recipe.batch_invariant && max_rows > 1 {
            try_batch(&mut *sessions[0], &inputs, max_rows, &costs);
        }
    }
    let bytes = sessions.iter().map(|session| session.bytes()).sum();
    Ok(Prepared { engine: sessions[0].engine(), sessions, metadata, costs, bytes, by_row })
}

/// Whether every input and output has a first dimension that varies, as far as the model says.
fn by_row(metadata: &Metadata) -> bool {
    let rows = |value: &ValueInfo| value.shape.as_ref().map(|shape| shape.first() == Some(&-1));
    !metadata.inputs.is_empty()
        && metadata.inputs.iter().all(|input| rows(input) == Some(true))
        && metadata.outputs.iter().all(|output| rows(output) != Some(false))
}

/// Runs a session a few times and learns what a run takes. The first is left out: it makes what
/// the others find.
fn warm(
    session: &mut dyn Session,
    inputs: &[(String, Tensor)],
    costs: &Costs,
    runs: usize,
) -> bool {
    for round in 0..runs {
        let started = Instant::now();
        if run(session, inputs, &[]).is_err() {
            return false;
        }
        if round > 0 {
            costs.learn(bytes(inputs), started.elapsed());
        }
    }
    true
}

/// Runs a full batch, so that it is known what one takes before there is need of it.
fn try_batch(
    session: &mut dyn Session,
    inputs: &[(String, Tensor)],
    max_rows: usize,
    costs: &Costs,
) {
    let Some(&rows) = inputs.first().and_then(|(_, tensor)| tensor.shape().first()) else { return };
    let times = max_rows / rows.max(1);
    let expected = costs.expect(bytes(inputs).saturating_mul(times)).unwrap_or_default();
    if times < 2 || expected > LONGEST_TRIAL {
        return;
    }
    let batch = inputs
        .iter()
        .map(|(name, tensor)| stacked(&vec![tensor; times]).map(|tensor| (name.clone(), tensor)));
    if let Ok(batch) = batch.collect::<Result<Vec<_>>>() {
        warm(session, &batch, costs, BATCH_RUNS);
    }
}

fn bytes(inputs: &[(String, Tensor)]) -> usize {
    inputs.iter().map(|(_, tensor)| tensor.bytes()).sum()
}

/// One row of zeros; none if the model does not say what it takes, or takes too much.
fn zeros(metadata: &Metadata) -> Option<Vec<(String, Tensor)>> {
    const MOST: usize = 1 << 24;
    let zero = |input: &ValueInfo| {
        let dims = input.shape.as_ref()?.iter();
        let shape: Vec<usize> = dims.map(|&dim| usize::try_from(dim).unwrap_or(1)).collect();
        let count = falaj_inference::tensor::count(&shape).ok().filter(|&count| count <= MOST)?;
        let data = match input.data_type {
            DataType::Bool => Data::Bool(vec![false; count]),
            DataType::U8 => Data::U8(vec![0; count]),
            DataType::U16 => Data::U16(vec![0; count]),
            DataType::U32 => Data::U32(vec![0; count]),
            DataType::U64 => Data::U64(vec![0; count]),
            DataType::I8 => Data::I8(vec![0; count]),
            DataType::I16 => Data::I16(vec![0; count]),
            DataType::I32 => Data::I32(vec![0; count]),
            DataType::I64 => Data::I64(vec![0; count]),
            DataType::F16 => Data::F16(vec![0; count]),
            DataType::Bf16 => Data::Bf16(vec![0; count]),
            DataType::F32 => Data::F32(vec![0.0; count]),
            DataType::F64 => Data::F64(vec![0.0; count]),
            DataType::Bytes => Data::Bytes(vec![Bytes::new(); count]),
        };
        Some((input.name.clone(), Tensor::new(shape, data).ok()?))
    };
    metadata.inputs.iter().map(zero).collect()
}
