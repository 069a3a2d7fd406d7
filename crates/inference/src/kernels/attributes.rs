//! A node as a builder sees it: its attributes by name and type.

use std::cell::Cell;
use std::str::FromStr;

use bytes::Bytes;
use falaj_base::{Error, Result};
use prost::Message;

use crate::onnx::proto::{AttributeProto, NodeProto};
use crate::onnx::{read_tensor, shown, unshared};
use crate::tensor::{Element, Tensor};

/// A node, and the version of the operator set it is read by.
pub(super) struct Node<'a> {
    proto: &'a NodeProto,
    pub(super) version: i64,
    /// The most bytes that a value may take.
    pub(super) room: usize,
    /// The bytes that the kernel built from it holds, if its builder said so.
    holds: Cell<Option<usize>>,
}

impl<'a> Node<'a> {
    pub(super) fn new(proto: &'a NodeProto, version: i64, room: usize) -> Self {
        Self { proto, version, room, holds: Cell::new(None) }
    }

    /// Notes what the kernel holds, for builders that hold something else than the attributes.
    pub(super) fn holds(&self, bytes: usize) {
        self.holds.set(Some(bytes));
    }

    /// About how many bytes the kernel holds: as noted, or as its attributes have.
    pub(super) fn held(&self) -> usize {
        let of = |attribute: &AttributeProto| {
            let texts: usize = attribute.strings.iter().map(|text| text.len() + 32).sum();
            let tensor = attribute.t.as_deref().map_or(0, Message::encoded_len);
            attribute.floats.len() * 4 + attribute.ints.len() * 8 + texts + tensor
        };
        self.holds.get().unwrap_or_else(|| self.proto.attribute.iter().map(of).sum())
    }

    fn find(&self, name: &str) -> Option<&'a AttributeProto> {
        self.proto.attribute.iter().find(|attribute| attribute.name() == name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        self.find(name).and_then(|found| found.i).unwrap_or(default)
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, i64::from(default)) != 0
    }

    pub(super) fn float(&self, name: &str, default: f32) -> f32 {
        self.find(name).and_then(|found| found.f).unwrap_or(default)
    }

    pub(super) fn ints(&self, name: &str) -> &'a [i64] {
        self.find(name).map_or(&[], |found| &found.ints)
    }

    pub(super) fn floats(&self, name: &str) -> &'a [f32] {
        self.find(name).map_or(&[], |found| &found.floats)
    }

    pub(super) fn texts(&self, name: &str) -> Vec<Bytes> {
        self.find(name).map_or_else(Vec::new, |found| found.strings.iter().map(unshared).collect())
    }

    /// Strings as they lie in the file, for those who only look at them.
    pub(super) fn words(&self, name: &str) -> &'a [Bytes] {
        self.find(name).map_or(&[], |found| &found.strings)
    }

    pub(super) fn text(&self, name: &str, default: &'static str) -> Bytes {
        self.find(name)
            .and_then(|found| found.s.as_ref())
            .map_or(Bytes::from_static(default.as_bytes()), unshared)
    }

    /// A word out of a fixed set.
    pub(super) fn word<T: FromStr>(&self, name: &str, default: &'static str) -> Result<T> {
        let text = self.text(name, default);
        let text = String::from_utf8_lossy(&text);
        text.parse().map_err(|_| self.unsupported(format!("{name} = {}", shown(&text))))
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Option<Tensor>> {
        self.find(name).and_then(|found| found.t.as_deref()).map(read_tensor).transpose()
    }

    /// The elements of a tensor attribute; none if it is not there.
    pub(super) fn elements<T: Element>(&self, name: &str) -> Result<Option<Vec<T>>> {
        let tensor = self.tensor(name)?;
        tensor.map(|tensor| tensor.expect::<T>().map(<[T]>::to_vec)).transpose()
    }

    /// The refusal of what this node asks for and we do not do.
    pub(super) fn unsupported(&self, what: impl std::fmt::Display) -> Error {
        Error::invalid(self.proto.op_type(), what, "what our kernels support")
    }

    /// The refusal of attributes that contradict one another.
    pub(super) fn broken(&self, what: impl std::fmt::Display, allowed: &str) -> Error {
        Error::invalid(self.proto.op_type(), what, allowed)
    }
}

/// The input at a place that the operator cannot do without.
pub(super) fn input<'a>(inputs: &[Option<&'a Tensor>], place: usize) -> Result<&'a Tensor> {
    optional(inputs, place)
        .ok_or_else(|| Error::invalid("inputs", "too few", format!("at least {}", place + 1)))
}

pub(super) fn optional<'a>(inputs: &[Option<&'a Tensor>], place: usize) -> Option<&'a Tensor> {
    inputs.get(place).copied().flatten()
}
