//! Inputs to try a model on: the version's own example, or made-up ones.

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::{Data, DataType, Metadata, Tensor, ValueInfo};
use falaj_oip::scoring::Scheme;
use falaj_oip::{Limits, scoring};

/// Where MLflow keeps the example, in the shape that its scoring takes.
pub(crate) const FILE: &str = "serving_input_example.json";
/// The largest that is read.
pub(crate) const MAX_BYTES: u64 = 4 << 20;

/// How many rows are tried: enough for batches of 2, 3 and half of them to differ.
pub(super) const ROWS: usize = 8;

/// A dimension that varies, other than the first, is tried at this size.
const SOME: usize = 4;

/// The tensors of the version's own example; none if it does not fit the model.
pub(super) fn of_file(
    content: &Bytes,
    metadata: &Metadata,
    columns: &[String],
    limits: &Limits,
) -> Option<Vec<(String, Tensor)>> {
    let scheme = Scheme { metadata, columns };
    let inputs = scoring::read(content, None, scheme, limits).ok()?.inputs;
    metadata.check(&inputs).is_ok().then_some(inputs)
}

/// Inputs that look like data: small numbers, every row another. The same at every call.
pub(super) fn made_up(metadata: &Metadata, rows: usize) -> Result<Vec<(String, Tensor)>> {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let tensor = |info: &ValueInfo| Ok((info.name.clone(), fill(info, rows, &mut seed)?));
    metadata.inputs.iter().map(tensor).collect()
}

fn fill(info: &ValueInfo, rows: usize, seed: &mut u64) -> Result<Tensor> {
    let shape = info.shape.clone().unwrap_or_else(|| vec![-1]);
    let size = |(place, &n): (usize, &i64)| match usize::try_from(n) {
        Ok(fixed) => fixed,
        Err(_) if place == 0 => rows,
        Err(_) => SOME,
    };
    let shape: Vec<usize> = shape.iter().enumerate().map(size).collect();
    let count = falaj_inference::tensor::count(&shape)?;
    if count > 1 << 24 {
        return Err(Error::invalid(
            "shape",
            format!("{shape:?}"),
            "no more than 16 million elements",
        ));
    }
    // Ids and flags are small numbers in most models; a one is in range of nearly everything.
    let mut next = || {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    };
    macro_rules! whole {
        ($kind:ident) => {
            Data::$kind((0..count).map(|_| (next() % 2) as _).collect())
        };
    }
    #[allow(clippy::cast_precision_loss, reason = "31 bits fit well enough")]
    let mut real = || (next() as f64 / f64::from(1_u32 << 31)) * 2.0 - 1.0;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "numbers of this size fit any type"
    )]
    let data = match info.data_type {
        DataType::F32 => Data::F32((0..count).map(|_| real() as f32).collect()),
        DataType::F64 => Data::F64((0..count).map(|_| real()).collect()),
        DataType::Bool => Data::Bool((0..count).map(|_| next() % 2 == 1).collect()),
        DataType::U8 => whole!(U8),
        DataType::U16 => whole!(U16),
        DataType::U32 => whole!(U32),
        DataType::U64 => whole!(U64),
        DataType::I8 => whole!(I8),
        DataType::I16 => whole!(I16),
        DataType::I32 => whole!(I32),
        DataType::I64 => whole!(I64),
        // One and a half, and zero, in either format.
        DataType::F16 => {
            Data::F16((0..count).map(|_| [0, 0x3E00][(next() % 2) as usize]).collect())
        }
        DataType::Bf16 => {
            Data::Bf16((0..count).map(|_| [0, 0x3FC0][(next() % 2) as usize]).collect())
        }
        DataType::Bytes => Data::Bytes((0..count).map(|_| Bytes::from_static(b"a")).collect()),
    };
    Tensor::new(shape, data)
}

/// At least [`ROWS`] rows out of an example, by repeating it; none if its inputs are not by row.
pub(super) fn repeated(inputs: &[(String, Tensor)]) -> Option<Vec<(String, Tensor)>> {
    let rows = *inputs.first()?.1.shape().first()?;
    if rows == 0 || inputs.iter().any(|(_, tensor)| tensor.shape().first() != Some(&rows)) {
        return None;
    }
    let times = ROWS.div_ceil(rows);
    let stack = |(name, tensor): &(String, Tensor)| {
        let parts: Vec<Tensor> = std::iter::repeat_n(tensor.clone(), times).collect();
        Some((name.clone(), Tensor::stacked(&parts).ok()?))
    };
    inputs.iter().map(stack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(inputs: &[(&str, DataType, &[i64])]) -> Metadata {
        let info = |&(name, data_type, shape): &(&str, DataType, &[i64])| ValueInfo {
            name: name.to_owned(),
            data_type,
            shape: Some(shape.to_vec()),
            labels: None,
        };
        Metadata { inputs: inputs.iter().map(info).collect(), outputs: Vec::new() }
    }

    #[test]
    fn made_up_inputs_fit_the_model_and_are_always_the_same() {
        for kind in DataType::ALL {
            let metadata =
                metadata(&[("a", *kind, &[-1, 3]), ("b", *kind, &[-1, -1]), ("c", *kind, &[2])]);
            let inputs = made_up(&metadata, ROWS).unwrap();
            metadata.check(&inputs).unwrap();
            assert_eq!(inputs[0].1.shape(), [ROWS, 3]);
            assert_eq!(inputs[1].1.shape(), [ROWS, SOME]);
            assert_eq!(inputs, made_up(&metadata, ROWS).unwrap());
        }
        assert!(made_up(&metadata(&[("a", DataType::F32, &[1 << 40])]), 2).is_err());
    }

    #[test]
    fn an_example_is_repeated_by_row() {
        let row = |n: usize| ("x".to_owned(), Tensor::of([n, 2], vec![0_i64; n * 2]).unwrap());
        assert_eq!(repeated(&[row(1)]).unwrap()[0].1.shape(), [8, 2]);
        assert_eq!(repeated(&[row(3)]).unwrap()[0].1.shape(), [9, 2]);
        assert!(repeated(&[row(1), row(2)]).is_none() && repeated(&[row(0)]).is_none());
    }
}
