//! What the tests are made of.

use bytes::Bytes;
use falaj_inference::{Data, DataType, Labels, Metadata, Tensor, ValueInfo, tensor};
use falaj_oip::{Limits, Request, read_http};
use proptest::prelude::*;

pub(crate) fn read(json: &str) -> falaj_base::Result<Request> {
    read_http(Bytes::copy_from_slice(json.as_bytes()), None, &Limits::default())
}

/// The refusal of a request.
pub(crate) fn refusal(json: &str) -> String {
    match read(json) {
        Ok(request) => panic!("{json} was taken: {request:?}"),
        Err(error) => error.message().to_owned(),
    }
}

/// A request with one input, read.
pub(crate) fn input(datatype: &str, shape: &str, data: &str) -> falaj_base::Result<Tensor> {
    let json = format!(
        r#"{{"inputs":[{{"name":"x","shape":{shape},"datatype":"{datatype}","data":{data}}}]}}"#
    );
    read(&json).map(|request| request.inputs.into_iter().next().unwrap().1)
}

pub(crate) fn info(name: &str, data_type: DataType, shape: &[i64]) -> ValueInfo {
    ValueInfo { name: name.to_owned(), data_type, shape: Some(shape.to_vec()), labels: None }
}

pub(crate) fn labelled(mut info: ValueInfo, labels: Labels) -> ValueInfo {
    info.labels = Some(labels);
    info
}

pub(crate) fn model(inputs: Vec<ValueInfo>, outputs: Vec<ValueInfo>) -> Metadata {
    Metadata { inputs, outputs }
}

pub(crate) fn raw(tensor: &Tensor) -> Vec<u8> {
    let mut raw = Vec::new();
    tensor.write_raw(&mut raw).unwrap();
    raw
}

/// Whether two are the same to the last bit, but for which NaN it is.
pub(crate) fn same(one: &Tensor, other: &Tensor) -> bool {
    let plain = |tensor: &Tensor| match tensor.data() {
        Data::F32(all) => {
            all.iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits().into() }).collect()
        }
        Data::F64(all) => {
            all.iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits() }).collect()
        }
        _ => raw(tensor).into_iter().map(u64::from).collect::<Vec<u64>>(),
    };
    one.data_type() == other.data_type()
        && one.shape() == other.shape()
        && plain(one) == plain(other)
}

/// A tensor of any type and small shape, of any bits; strings are text.
pub(crate) fn any_tensor() -> impl Strategy<Value = Tensor> {
    let shape = prop::collection::vec(0_usize..4, 0..4);
    let kind = prop::sample::select(DataType::ALL.to_vec());
    (shape, kind).prop_flat_map(|(shape, kind)| {
        let count = tensor::count(&shape).unwrap();
        let bits = prop::collection::vec(any::<u64>(), count);
        let texts = prop::collection::vec(".{0,8}", count);
        (Just(shape), Just(kind), bits, texts).prop_map(|(shape, kind, bits, texts)| {
            if kind == DataType::Bytes {
                return Tensor::strings(shape, texts).unwrap();
            }
            let raw: Vec<u8> = match kind {
                DataType::Bool => bits.iter().map(|bits| u8::from(bits & 1 == 1)).collect(),
                _ => bits
                    .iter()
                    .flat_map(|bits| bits.to_le_bytes()[..kind.size()].to_vec())
                    .collect(),
            };
            Tensor::from_raw(kind, shape, &Bytes::from(raw)).unwrap()
        })
    })
}
