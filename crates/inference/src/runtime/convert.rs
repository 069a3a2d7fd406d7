//! Tensors to the library and back. Numbers go in without being copied.

use bytes::Bytes;
use falaj_base::{Error, Result};
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use ort::session::SessionInputValue;
use ort::value::{DynValue, Tensor as OrtTensor, TensorRef};

use crate::onnx::ValueInfo;
use crate::tensor::{Data, DataType, Tensor};

pub(super) fn input<'a>(name: &str, tensor: &'a Tensor) -> Result<SessionInputValue<'a>> {
    let shape = tensor.shape().to_vec();
    macro_rules! borrowed {
        ($elements:expr) => {
            TensorRef::from_array_view((shape, $elements))
                .map(SessionInputValue::from)
                .map_err(Error::internal)
        };
    }
    match tensor.data() {
        Data::Bool(all) => borrowed!(all.as_slice()),
        Data::U8(all) => borrowed!(all.as_slice()),
        Data::U16(all) => borrowed!(all.as_slice()),
        Data::U32(all) => borrowed!(all.as_slice()),
        Data::U64(all) => borrowed!(all.as_slice()),
        Data::I8(all) => borrowed!(all.as_slice()),
        Data::I16(all) => borrowed!(all.as_slice()),
        Data::I32(all) => borrowed!(all.as_slice()),
        Data::I64(all) => borrowed!(all.as_slice()),
        Data::F32(all) => borrowed!(all.as_slice()),
        Data::F64(all) => borrowed!(all.as_slice()),
        Data::Bytes(all) => {
            let field = format!("inputs.{name}");
            let texts = all.iter().map(|text| std::str::from_utf8(text).map(ToOwned::to_owned));
            let texts: Vec<String> = texts
                .collect::<Result<_, _>>()
                .map_err(|_| Error::invalid(field, "bytes that are no text", "UTF-8"))?;
            OrtTensor::from_string_array((shape, texts.as_slice()))
                .map(SessionInputValue::from)
                .map_err(Error::internal)
        }
        Data::F16(all) => borrowed!(all.reinterpret_cast::<f16>()),
        Data::Bf16(all) => borrowed!(all.reinterpret_cast::<bf16>()),
    }
}

pub(super) fn output(value: &DynValue, info: &ValueInfo) -> Result<Tensor> {
    macro_rules! copied {
        ($kind:ident, $type:ty) => {{
            let (shape, all) = value.try_extract_tensor::<$type>().map_err(Error::internal)?;
            (shape.to_vec(), Data::$kind(all.to_vec()))
        }};
        ($kind:ident, bits of $type:ty) => {{
            let (shape, all) = value.try_extract_tensor::<$type>().map_err(Error::internal)?;
            (shape.to_vec(), Data::$kind(all.reinterpret_cast().to_vec()))
        }};
    }
    let (shape, data) = match info.data_type {
        DataType::Bool => copied!(Bool, bool),
        DataType::U8 => copied!(U8, u8),
        DataType::U16 => copied!(U16, u16),
        DataType::U32 => copied!(U32, u32),
        DataType::U64 => copied!(U64, u64),
        DataType::I8 => copied!(I8, i8),
        DataType::I16 => copied!(I16, i16),
        DataType::I32 => copied!(I32, i32),
        DataType::I64 => copied!(I64, i64),
        DataType::F32 => copied!(F32, f32),
        DataType::F64 => copied!(F64, f64),
        DataType::Bytes => {
            let (shape, texts) = value.try_extract_strings().map_err(Error::internal)?;
            (shape.to_vec(), Data::Bytes(texts.into_iter().map(Bytes::from).collect()))
        }
        DataType::F16 => copied!(F16, bits of f16),
        DataType::Bf16 => copied!(Bf16, bits of bf16),
    };
    let shape = shape.into_iter().map(usize::try_from).collect::<Result<_, _>>();
    Tensor::new(shape.map_err(Error::internal)?, data)
}
