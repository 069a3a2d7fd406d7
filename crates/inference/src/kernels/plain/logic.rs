//! Comparisons and truth values.

use bytes::Bytes;
use falaj_base::{Error, Result};

use super::arithmetic::pair;
use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::kernels::shape::{broadcast, fitting, stretched, zipped};
use crate::tensor::{Data, Tensor};

macro_rules! comparison {
    ($($name:ident: $compare:tt, [$($kind:ident)*];)*) => {$(
        pub(super) fn $name(node: &Node<'_>) -> Result<Kernel> {
            let room = node.room;
            pair(move |one, other| match (one.data(), other.data()) {
                $((Data::$kind(a), Data::$kind(b)) => {
                    #[allow(clippy::float_cmp, reason = "what the operator does")]
                    let compare = |a, b| a $compare b;
                    let (shape, all) = zipped((a, one.shape()), (b, other.shape()), room, compare)?;
                    Tensor::of(shape, all)
                })*
                (Data::Bytes(a), Data::Bytes(b)) if stringify!($name) == "equal" => {
                    texts_equal((a, one.shape()), (b, other.shape()), room)
                }
                _ => Err(mismatch(one, other)),
            })
        }
    )*};
}

comparison! {
    equal: ==, [F32 F64 I64 I32 I16 I8 U64 U32 U16 U8 Bool];
    less: <, [F32 F64 I64 I32 I16 I8 U64 U32 U16 U8];
    less_or_equal: <=, [F32 F64 I64 I32 I16 I8 U64 U32 U16 U8];
    greater: >, [F32 F64 I64 I32 I16 I8 U64 U32 U16 U8];
    greater_or_equal: >=, [F32 F64 I64 I32 I16 I8 U64 U32 U16 U8];
}

macro_rules! connective {
    ($($name:ident: $combine:expr;)*) => {$(
        pub(super) fn $name(node: &Node<'_>) -> Result<Kernel> {
            let room = node.room;
            pair(move |one, other| {
                let (a, b) = (one.expect::<bool>()?, other.expect::<bool>()?);
                let combine: fn(bool, bool) -> bool = $combine;
                let (shape, all) = zipped((a, one.shape()), (b, other.shape()), room, combine)?;
                Tensor::of(shape, all)
            })
        }
    )*};
}

connective! {
    and: |a, b| a && b;
    or: |a, b| a || b;
    xor: |a, b| a != b;
}

pub(super) fn not(_: &Node<'_>) -> Result<Kernel> {
    Ok(Box::new(|inputs| {
        let tensor = input(inputs, 0)?;
        let all = tensor.expect::<bool>()?.iter().map(|&truth| !truth).collect::<Vec<bool>>();
        Ok(vec![Tensor::of(tensor.shape(), all)?])
    }))
}

fn texts_equal(
    (one, from): (&[Bytes], &[usize]),
    (other, with): (&[Bytes], &[usize]),
    room: usize,
) -> Result<Tensor> {
    let shape = broadcast(from, with)?;
    fitting::<Bytes>(&shape, room)?;
    let (one, other) = (stretched(one, from, &shape), stretched(other, with, &shape));
    let all = one.iter().zip(other.iter()).map(|(a, b)| a == b).collect::<Vec<bool>>();
    Tensor::of(shape, all)
}

fn mismatch(one: &Tensor, other: &Tensor) -> Error {
    let types = format!("{} and {}", one.data_type(), other.data_type());
    Error::invalid("datatype", types, "two of one type that can be compared")
}
