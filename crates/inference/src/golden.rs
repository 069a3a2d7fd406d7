//! Does a model answer as it should, and the same whoever shares its batch?
//!
//! A golden pair is recorded when a model is registered: inputs, and the outputs that its author
//! got. An engine that does not reproduce it must not serve the model: silent errors of engines are
//! real. Batch invariance is measured, not assumed: a model that quantises its activations on the
//! fly answers a row differently beside other rows.

use falaj_base::{Error, Result, code};

use half::{bf16, f16};

use crate::engine::{Session, run};
use crate::tensor::{Data, DataType, Tensor};

/// Inputs, and the outputs that belong to them.
#[derive(Clone, Debug)]
pub struct Golden {
    pub inputs: Vec<(String, Tensor)>,
    pub outputs: Vec<(String, Tensor)>,
}

/// How far an answer may be from the recorded one: `absolute + relative · |recorded|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    pub relative: f64,
    pub absolute: f64,
}

impl Tolerance {
    /// What engines differ by when both are right: they add in other orders, and round what is
    /// kept in half floats to a thousandth or a hundredth after each step or after some.
    #[must_use]
    pub fn of(kind: DataType) -> Self {
        match kind {
            DataType::F32 => Self { relative: 1e-4, absolute: 1e-5 },
            DataType::F64 => Self { relative: 1e-6, absolute: 1e-8 },
            DataType::F16 => Self { relative: 5e-3, absolute: 1e-3 },
            DataType::Bf16 => Self { relative: 4e-2, absolute: 8e-3 },
            _ => Self { relative: 0.0, absolute: 0.0 },
        }
    }

    /// What an engine differs by from itself: the last digits, where it computes the end of a batch
    /// one by one and what comes before it several at a time.
    fn rounding(kind: DataType) -> Self {
        match kind {
            DataType::F32 => Self { relative: 2e-6, absolute: 1e-6 },
            DataType::F64 => Self { relative: 1e-14, absolute: 1e-14 },
            DataType::F16 => Self { relative: 2e-3, absolute: 1e-4 },
            DataType::Bf16 => Self { relative: 2e-2, absolute: 1e-3 },
            _ => Self { relative: 0.0, absolute: 0.0 },
        }
    }

    fn allows(self, recorded: f64, got: f64) -> bool {
        #[allow(clippy::float_cmp, reason = "infinities have no distance")]
        let same = recorded == got || (recorded.is_nan() && got.is_nan());
        same || (recorded - got).abs() <= self.absolute + self.relative * recorded.abs()
    }
}

/// Runs the golden inputs and compares, in the tolerance given or that of each type.
pub fn verify(
    session: &mut dyn Session,
    golden: &Golden,
    tolerance: Option<Tolerance>,
) -> Result<()> {
    let names: Vec<String> = golden.outputs.iter().map(|(name, _)| name.clone()).collect();
    let got = run(session, &golden.inputs, &names)?;
    for ((name, recorded), (_, got)) in golden.outputs.iter().zip(&got) {
        let tolerance = tolerance.unwrap_or(Tolerance::of(recorded.data_type()));
        if let Some(difference) = differs(recorded, got, tolerance) {
            let engine = session.engine();
            let text = format!("output {name:?} is not the recorded one on {engine}: {difference}");
            return Err(Error::new(&code::INVALID_INPUT, text).at("model"));
        }
    }
    Ok(())
}

/// The first difference between a recorded tensor and one that was got, in words.
#[must_use]
pub fn differs(recorded: &Tensor, got: &Tensor, tolerance: Tolerance) -> Option<String> {
    let described = |tensor: &Tensor| format!("{} {:?}", tensor.data_type(), tensor.shape());
    if recorded.data_type() != got.data_type() || recorded.shape() != got.shape() {
        return Some(format!("{} instead of {}", described(got), described(recorded)));
    }
    let place = match (floats(recorded), floats(got)) {
        (Some(recorded), Some(got)) => {
            recorded.iter().zip(&got).position(|(&one, &other)| !tolerance.allows(one, other))
        }
        _ => unequal(recorded, got),
    }?;
    Some(format!("element {place} is {} instead of {}", shown(got, place), shown(recorded, place)))
}

fn floats(tensor: &Tensor) -> Option<Vec<f64>> {
    match tensor.data() {
        Data::F32(all) => Some(all.iter().copied().map(f64::from).collect()),
        Data::F64(all) => Some(all.clone()),
        Data::F16(all) => Some(all.iter().map(|&bits| f16::from_bits(bits).to_f64()).collect()),
        Data::Bf16(all) => Some(all.iter().map(|&bits| bf16::from_bits(bits).to_f64()).collect()),
        _ => None,
    }
}

/// The first place at which two tensors of one shape and type are not the same.
fn unequal(one: &Tensor, other: &Tensor) -> Option<usize> {
    let pick = |tensor: &Tensor, place| tensor.data().pick(std::iter::once(place));
    (0..one.len()).find(|&place| pick(one, place) != pick(other, place))
}

fn shown(tensor: &Tensor, place: usize) -> String {
    let text = match tensor.data() {
        Data::F16(all) => f16::from_bits(all[place]).to_string(),
        Data::Bf16(all) => bf16::from_bits(all[place]).to_string(),
        data => format!("{:?}", data.pick(std::iter::once(place))),
    };
    text.chars().take(80).collect()
}

/// Whether a row's answer depends on the rows beside it.
#[derive(Clone, Debug, PartialEq)]
pub enum BatchInvariance {
    /// Every row is answered alike alone and in every batch tried, to the last bit.
    Exact,
    /// Answers change with the batch in their last digits only, by so much at most. Eight bits with
    /// scales of the moment are never that close.
    Rounding { output: String, by: f64 },
    /// Answers change with the batch: the output that changes most, in how many rows of how many,
    /// and by how much at most. A changed label or string counts as infinitely far.
    Differs { output: String, rows: usize, of: usize, by: f64 },
    /// An output has no row for each row of the inputs: requests cannot share a run.
    NotByRow { output: String },
}

/// Runs rows alone and in batches of 2, 3, half of them and all, and compares.
///
/// The inputs have the rows along their first dimension, the same number in each.
pub fn batch_invariance(
    session: &mut dyn Session,
    inputs: &[(String, Tensor)],
) -> Result<BatchInvariance> {
    let rows = inputs.first().and_then(|(_, tensor)| tensor.shape().first().copied()).unwrap_or(0);
    if rows < 2 || inputs.iter().any(|(_, tensor)| tensor.shape().first() != Some(&rows)) {
        return Err(Error::invalid("inputs", rows, "two rows or more, the same number in each"));
    }
    let alone = match batched(session, inputs, rows, 1)? {
        Ok(alone) => alone,
        Err(output) => return Ok(BatchInvariance::NotByRow { output }),
    };
    let mut sizes = vec![2, 3, rows / 2, rows];
    sizes.retain(|&size| (2..=rows).contains(&size));
    sizes.dedup();
    let mut worst: Option<(String, Change)> = None;
    for size in sizes {
        let together = match batched(session, inputs, rows, size)? {
            Ok(together) => together,
            Err(output) => return Ok(BatchInvariance::NotByRow { output }),
        };
        for ((name, one), (_, other)) in alone.iter().zip(&together) {
            let change = Change::between(one, other, rows)?;
            if change.rows > 0 && worst.as_ref().is_none_or(|(_, most)| change.exceeds(most)) {
                worst = Some((name.clone(), change));
            }
        }
    }
    Ok(match worst {
        Some((output, Change { by, is_rounding: true, .. })) => {
            BatchInvariance::Rounding { output, by }
        }
        Some((output, change)) => {
            BatchInvariance::Differs { output, rows: change.rows, of: rows, by: change.by }
        }
        None => BatchInvariance::Exact,
    })
}

type Outputs = Vec<(String, Tensor)>;

/// All rows in batches of one size, put together again; or the output that is not by row.
fn batched(
    session: &mut dyn Session,
    inputs: &[(String, Tensor)],
    rows: usize,
    size: usize,
) -> Result<Result<Outputs, String>> {
    let mut parts: Vec<(String, Vec<Tensor>)> = Vec::new();
    for start in (0..rows).step_by(size) {
        let range = start..rows.min(start + size);
        let batch = inputs.iter().map(|(name, all)| Ok((name.clone(), all.rows(range.clone())?)));
        let outputs = run(session, &batch.collect::<Result<Vec<_>>>()?, &[])?;
        for (place, (name, tensor)) in outputs.into_iter().enumerate() {
            if tensor.shape().first() != Some(&range.len()) {
                return Ok(Err(name));
            }
            if parts.len() <= place {
                parts.push((name, Vec::new()));
            }
            parts[place].1.push(tensor);
        }
    }
    let whole = parts.into_iter().map(|(name, parts)| Ok((name, Tensor::stacked(&parts)?)));
    Ok(Ok(whole.collect::<Result<_>>()?))
}

/// How two tensors differ: in how many rows, by how much at most, and whether in the last digits.
struct Change {
    rows: usize,
    by: f64,
    is_rounding: bool,
}

impl Change {
    fn between(one: &Tensor, other: &Tensor, rows: usize) -> Result<Self> {
        let rounding = Tolerance::rounding(one.data_type());
        let mut change = Self { rows: 0, by: 0.0, is_rounding: true };
        for row in 0..rows {
            let (one, other) = (one.rows(row..row + 1)?, other.rows(row..row + 1)?);
            let by = match (floats(&one), floats(&other)) {
                (Some(a), Some(b)) => {
                    let mut pairs = a.iter().zip(&b);
                    change.is_rounding &= pairs.all(|(&a, &b)| rounding.allows(a, b));
                    a.iter().zip(&b).map(|(&a, &b)| distance(a, b)).fold(0.0, f64::max)
                }
                _ if one == other => 0.0,
                _ => {
                    change.is_rounding = false;
                    f64::INFINITY
                }
            };
            change.rows += usize::from(by > 0.0);
            change.by = change.by.max(by);
        }
        Ok(change)
    }

    fn exceeds(&self, other: &Self) -> bool {
        (other.is_rounding, self.by) > (self.is_rounding, other.by)
    }
}

fn distance(a: f64, b: f64) -> f64 {
    if a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) {
        0.0
    } else if (a - b).is_nan() {
        f64::INFINITY
    } else {
        (a - b).abs()
    }
}
