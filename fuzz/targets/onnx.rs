//! Models from strangers: read within limits, planned by our own kernels, and run.
#![no_main]

use bytes::Bytes;
use falaj_inference::kernels::Kernels;
use falaj_inference::{Data, DataType, Engine, Limits, ModelFile, Tensor, ValueInfo, run};
use libfuzzer_sys::fuzz_target;

/// What stands in for a dimension that the model leaves open.
const OPEN: usize = 2;
/// The largest input that is worth making.
const MOST_ELEMENTS: usize = 4096;
/// Numbers that kernels trip over, in every type that can hold them.
const NUMBERS: [f64; 8] = [1.0, 0.0, -1.0, 2.5, 1e300, f64::NAN, f64::INFINITY, -3.0];

fuzz_target!(|data: &[u8]| {
    let limits = Limits { run_bytes: 1 << 20, ..Limits::default() };
    let model = match ModelFile::read(data.to_vec(), &limits) {
        Ok(model) => model,
        Err(error) => return assert!(error.message().len() < 4096, "{}", error.message().len()),
    };
    let Ok(mut session) = Kernels.load(&model) else { return };
    let inputs: Option<Vec<_>> = session.metadata().inputs.iter().map(input).collect();
    let Some(inputs) = inputs else { return };
    match run(session.as_mut(), &inputs, &[]) {
        Ok(outputs) => assert_eq!(outputs.len(), session.metadata().outputs.len()),
        Err(error) => assert!(error.message().len() < 4096, "{}", error.message().len()),
    }
});

/// An input as the model wants it, unless it wants a large one.
fn input(info: &ValueInfo) -> Option<(String, Tensor)> {
    let open = vec![-1; 2];
    let shape = info.shape.as_ref().unwrap_or(&open);
    let shape: Vec<usize> = shape.iter().map(|&size| size.try_into().unwrap_or(OPEN)).collect();
    let count = shape.iter().try_fold(1_usize, |all, &size| all.checked_mul(size))?;
    if count > MOST_ELEMENTS {
        return None;
    }
    let tensor = Tensor::new(shape, elements(info.data_type, count)).ok()?;
    Some((info.name.clone(), tensor))
}

fn elements(kind: DataType, count: usize) -> Data {
    let numbers = NUMBERS.iter().cycle().take(count);
    macro_rules! cast {
        ($kind:ident, $type:ty) => {
            Data::$kind(numbers.map(|&number| number as $type).collect())
        };
    }
    match kind {
        DataType::Bool => Data::Bool(numbers.map(|&number| number > 0.0).collect()),
        DataType::U8 => cast!(U8, u8),
        DataType::U16 => cast!(U16, u16),
        DataType::U32 => cast!(U32, u32),
        DataType::U64 => cast!(U64, u64),
        DataType::I8 => cast!(I8, i8),
        DataType::I16 => cast!(I16, i16),
        DataType::I32 => cast!(I32, i32),
        DataType::I64 => cast!(I64, i64),
        DataType::F16 => cast!(F16, u16),
        DataType::Bf16 => cast!(Bf16, u16),
        DataType::F32 => cast!(F32, f32),
        DataType::F64 => Data::F64(numbers.copied().collect()),
        DataType::Bytes => Data::Bytes(numbers.map(|n| Bytes::from(n.to_string())).collect()),
    }
}
