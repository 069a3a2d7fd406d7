//! A tensor as a model carries it. Its elements must be in the file, all of them: a size that is
//! only declared makes no room.

use bytes::Bytes;
use falaj_base::{Error, Result};

use super::proto::TensorProto;
use super::{refused, shown};
use crate::tensor::{Data, DataType, Tensor, count};

/// `TensorProto.DataLocation.EXTERNAL`
pub(super) const EXTERNAL: i32 = 1;

/// Refuses a tensor whose elements are not in the file.
pub(super) fn check_inline(tensor: &TensorProto) -> Result<()> {
    if tensor.data_location() == EXTERNAL || !tensor.external_data.is_empty() {
        return Err(refused(format!(
            "the tensor {} keeps its data in another file; only models in one file are read",
            shown(tensor.name())
        )));
    }
    if tensor.segment.is_some() {
        return Err(refused(format!("the tensor {} is in segments", shown(tensor.name()))));
    }
    Ok(())
}

/// The shape and type of a tensor, and that its elements are as many as that says.
pub(super) fn check(tensor: &TensorProto) -> Result<()> {
    check_inline(tensor)?;
    let Some(kind) = DataType::from_onnx(tensor.data_type()) else {
        // A type that we do not compute with (four bits, eight-bit floats): the engine decides.
        return Ok(());
    };
    let elements = count(&shape(tensor)?).map_err(|_| oversized(tensor))?;
    if stored(tensor, kind) == elements { Ok(()) } else { Err(oversized(tensor)) }
}

fn oversized(tensor: &TensorProto) -> Error {
    let dims = format!("{:?}", &tensor.dims[..tensor.dims.len().min(16)]);
    refused(format!(
        "the tensor {} says it has the shape {dims}, but its data has not that many elements",
        shown(tensor.name())
    ))
}

fn shape(tensor: &TensorProto) -> Result<Vec<usize>> {
    let dims: Option<Vec<_>> = tensor.dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    dims.ok_or_else(|| oversized(tensor))
}

/// How many elements are in the file.
fn stored(tensor: &TensorProto, kind: DataType) -> usize {
    if let Some(raw) = &tensor.raw_data
        && kind != DataType::Bytes
    {
        let size = kind.size();
        return if raw.len().is_multiple_of(size) { raw.len() / size } else { usize::MAX };
    }
    match kind {
        DataType::F32 => tensor.float_data.len(),
        DataType::F64 => tensor.double_data.len(),
        DataType::I64 => tensor.int64_data.len(),
        DataType::U32 | DataType::U64 => tensor.uint64_data.len(),
        DataType::Bytes => tensor.string_data.len(),
        _ => tensor.int32_data.len(),
    }
}

/// The tensor with its elements.
pub(crate) fn read(tensor: &TensorProto) -> Result<Tensor> {
    check(tensor)?;
    let kind = DataType::from_onnx(tensor.data_type()).ok_or_else(|| {
        let name = shown(tensor.name());
        refused(format!("the tensor {name} has elements of type {}", tensor.data_type()))
    })?;
    let shape = shape(tensor)?;
    if let Some(raw) = &tensor.raw_data
        && kind != DataType::Bytes
    {
        return Tensor::from_raw(kind, shape, raw);
    }
    Tensor::new(shape, listed(tensor, kind))
}

/// The elements of the typed lists. Small types share the list of 32-bit numbers.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as ONNX defines it")]
fn listed(tensor: &TensorProto, kind: DataType) -> Data {
    let small = &tensor.int32_data;
    match kind {
        DataType::F32 => Data::F32(tensor.float_data.clone()),
        DataType::F64 => Data::F64(tensor.double_data.clone()),
        DataType::I64 => Data::I64(tensor.int64_data.clone()),
        DataType::U64 => Data::U64(tensor.uint64_data.clone()),
        DataType::U32 => Data::U32(tensor.uint64_data.iter().map(|&n| n as u32).collect()),
        DataType::Bytes => Data::Bytes(tensor.string_data.iter().map(unshared).collect()),
        DataType::I32 => Data::I32(small.clone()),
        DataType::Bool => Data::Bool(small.iter().map(|&n| n != 0).collect()),
        DataType::U8 => Data::U8(small.iter().map(|&n| n as u8).collect()),
        DataType::U16 => Data::U16(small.iter().map(|&n| n as u16).collect()),
        DataType::I8 => Data::I8(small.iter().map(|&n| n as i8).collect()),
        DataType::I16 => Data::I16(small.iter().map(|&n| n as i16).collect()),
        DataType::F16 => Data::F16(small.iter().map(|&n| n as u16).collect()),
        DataType::Bf16 => Data::Bf16(small.iter().map(|&n| n as u16).collect()),
    }
}

/// A copy, so that a few labels do not keep a whole model file in memory.
pub(crate) fn unshared(text: &Bytes) -> Bytes {
    Bytes::copy_from_slice(text)
}
