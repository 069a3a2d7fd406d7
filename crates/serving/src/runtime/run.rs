//! One run of a session, for one request or for several: rows put together, computed, taken apart.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use falaj_base::{Error, Result};
use falaj_inference::{Cancel, Data, Session, Tensor};

use super::job::Job;
use super::meter::RunTimes;

type Named = Vec<(String, Tensor)>;

/// What came of a run.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The outputs of each job, in order.
    Done(Vec<Named>, RunTimes),
    Failed(Error),
    /// It gave outputs that do not have a row for each row of the inputs.
    NotByRow,
    /// A fault of ours. The session may be in any state.
    Panicked(String),
}

/// Runs jobs of one kind together, or one of any kind.
pub(super) fn run(session: &mut dyn Session, jobs: &[&Job], cancel: Option<&Cancel>) -> Outcome {
    let ran = catch_unwind(AssertUnwindSafe(|| attempt(session, jobs, cancel)));
    match ran {
        Ok(Ok(Some((outputs, times)))) => Outcome::Done(outputs, times),
        Ok(Ok(None)) => Outcome::NotByRow,
        Ok(Err(error)) => Outcome::Failed(error),
        Err(payload) => Outcome::Panicked(told(&*payload)),
    }
}

fn attempt(
    session: &mut dyn Session,
    jobs: &[&Job],
    cancel: Option<&Cancel>,
) -> Result<Option<(Vec<Named>, RunTimes)>> {
    let started = Instant::now();
    let inputs = together(jobs)?;
    let put_together = Instant::now();
    let wanted = jobs.first().map_or(&[][..], |job| &job.outputs[..]);
    let outputs = match cancel {
        Some(cancel) => session.compute_until(&inputs, wanted, cancel)?,
        None => session.compute(&inputs, wanted)?,
    };
    let computed = Instant::now();
    let Some(outputs) = apart(outputs, jobs)? else { return Ok(None) };
    let times = RunTimes {
        input: put_together - started,
        infer: computed - put_together,
        output: computed.elapsed(),
    };
    Ok(Some((outputs, times)))
}

fn together<'a>(jobs: &[&'a Job]) -> Result<Cow<'a, [(String, Tensor)]>> {
    let first = jobs.first().ok_or_else(|| Error::internal("a run of nothing"))?;
    if jobs.len() == 1 {
        return Ok(Cow::Borrowed(&first.inputs));
    }
    let stacked = first.inputs.iter().enumerate().map(|(place, (name, _))| {
        // Requests may name their inputs in any order.
        let parts = jobs.iter().map(|job| match job.inputs.get(place) {
            Some((other, tensor)) if other == name => Some(tensor),
            _ => job.inputs.iter().find(|(other, _)| other == name).map(|(_, tensor)| tensor),
        });
        let parts: Vec<&Tensor> = parts
            .collect::<Option<_>>()
            .ok_or_else(|| Error::internal(format!("a job without the input {name:?}")))?;
        Ok((name.clone(), stacked(&parts)?))
    });
    stacked.collect::<Result<_>>().map(Cow::Owned)
}

/// Tensors of one kind put one after another along the first dimension.
pub(super) fn stacked(parts: &[&Tensor]) -> Result<Tensor> {
    let first = parts.first().ok_or_else(|| Error::internal("a batch of nothing"))?;
    let all = parts.iter().map(|tensor| tensor.len()).sum();
    let mut data = Data::empty(first.data_type(), all);
    let mut shape = first.shape().to_vec();
    let rows = parts.iter().map(|tensor| tensor.shape().first()).sum::<Option<usize>>();
    shape[0] = rows.ok_or_else(|| Error::internal("a tensor without rows in a batch"))?;
    for part in parts {
        data.append(part.data())?;
    }
    Tensor::new(shape, data)
}

/// The rows of each job; none if there are not as many as went in.
fn apart(outputs: Named, jobs: &[&Job]) -> Result<Option<Vec<Named>>> {
    if jobs.len() == 1 {
        return Ok(Some(vec![outputs]));
    }
    let rows = jobs.iter().map(|job| job.rows).sum();
    if outputs.iter().any(|(_, tensor)| tensor.shape().first() != Some(&rows)) {
        return Ok(None);
    }
    let mut parts: Vec<Named> = jobs.iter().map(|_| Vec::with_capacity(outputs.len())).collect();
    for (name, tensor) in &outputs {
        let mut start = 0;
        for (job, part) in jobs.iter().zip(&mut parts) {
            part.push((name.clone(), tensor.rows(start..start + job.rows)?));
            start += job.rows;
        }
    }
    Ok(Some(parts))
}

/// What a panic said.
pub(super) fn told(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}
