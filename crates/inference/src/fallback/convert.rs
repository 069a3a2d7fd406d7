//! Tensors to `rten` and back. It has singles, and whole numbers of 8 and 32 bits; the others that
//! models take and give are numbers of 32 bits there, and refused if they do not fit.

use falaj_base::{Error, Result};
use rten::{Value, ValueOrView, ValueView};
use rten_tensor::prelude::*;

use crate::onnx::ValueInfo;
use crate::tensor::{Data, DataType, Tensor};

/// What models may take and give.
pub(super) const TYPES: &[DataType] =
    &[DataType::F32, DataType::I32, DataType::I64, DataType::I8, DataType::U8, DataType::Bool];

pub(super) fn input<'a>(name: &str, tensor: &'a Tensor) -> Result<ValueOrView<'a>> {
    let shape = tensor.shape();
    macro_rules! borrowed {
        ($elements:expr) => {
            ValueView::from_shape(shape, $elements.as_slice())
                .map(ValueOrView::View)
                .map_err(Error::internal)
        };
    }
    let owned = |numbers: Vec<i32>| {
        Value::from_shape(shape, numbers).map(ValueOrView::Value).map_err(Error::internal)
    };
    match tensor.data() {
        Data::F32(all) => borrowed!(all),
        Data::I32(all) => borrowed!(all),
        Data::I8(all) => borrowed!(all),
        Data::U8(all) => borrowed!(all),
        Data::Bool(all) => owned(all.iter().map(|&yes| i32::from(yes)).collect()),
        Data::I64(all) => {
            let narrow = |&n: &i64| {
                i32::try_from(n).map_err(|_| {
                    let allowed = "numbers of 32 bits, since the fallback engine has no others";
                    Error::invalid(format!("inputs.{name}"), n, allowed)
                })
            };
            owned(all.iter().map(narrow).collect::<Result<_>>()?)
        }
        _ => Err(Error::invalid(format!("inputs.{name}"), tensor.data_type(), "its own type")),
    }
}

pub(super) fn output(value: Value, info: &ValueInfo) -> Result<Tensor> {
    let (shape, data) = match (value, info.data_type) {
        (Value::FloatTensor(all), DataType::F32) => (all.shape().to_vec(), Data::F32(all.to_vec())),
        (Value::Int32Tensor(all), DataType::I32) => (all.shape().to_vec(), Data::I32(all.to_vec())),
        (Value::Int32Tensor(all), DataType::I64) => {
            (all.shape().to_vec(), Data::I64(all.iter().map(|&n| i64::from(n)).collect()))
        }
        (Value::Int32Tensor(all), DataType::Bool) => {
            (all.shape().to_vec(), Data::Bool(all.iter().map(|&n| n != 0).collect()))
        }
        (Value::Int8Tensor(all), DataType::I8) => (all.shape().to_vec(), Data::I8(all.to_vec())),
        (Value::UInt8Tensor(all), DataType::U8) => (all.shape().to_vec(), Data::U8(all.to_vec())),
        (other, wanted) => {
            let text = format!("output {:?} is {:?}, not {wanted}", info.name, other.dtype());
            return Err(Error::internal(text));
        }
    };
    Tensor::new(shape, data)
}
