//! What a model may be made of, counted on the encoded bytes before anything is decoded.
//!
//! Protobuf lets two bytes stand for an empty message that takes hundreds in memory, and lets
//! messages nest. So the file is walked once without building anything: every message and string
//! is counted, every nesting measured, and a length that reaches past its parent refused.

use falaj_base::{Error, Result, code};

use crate::protobuf::{self, Content};

/// The limits of one model. The defaults take every model we know of that fits one file.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of the file.
    pub file_bytes: usize,
    /// Operators, those in nested graphs and functions included.
    pub nodes: usize,
    /// Constants that come with the model.
    pub initializers: usize,
    /// Messages of any other kind: attributes, values, types, dimensions.
    pub messages: usize,
    /// Strings, those in lists of attributes included.
    pub strings: usize,
    /// Messages inside messages; a graph in a graph is four deeper.
    pub depth: usize,
    /// Bytes of one name.
    pub name_bytes: usize,
    /// Bytes that all values of one run may hold at a time, and the largest of them.
    pub run_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 2 << 30,
            nodes: 100_000,
            initializers: 50_000,
            messages: 1_000_000,
            strings: 20_000_000,
            depth: 32,
            name_bytes: 4096,
            run_bytes: 1 << 30,
        }
    }
}

/// The messages that hold other messages, as far as counting needs to tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Tensor,
    Sparse,
    Value,
    Type,
    Sequence,
    Map,
    TensorType,
    Shape,
    Annotation,
    /// Holds scalars and strings only.
    Flat,
}

/// What stands in a field: a message, a string or a blob to be held, packed numbers or unknown.
enum Held {
    Message(Kind),
    Name,
    Text,
    Numbers,
}

impl Kind {
    fn held(self, field: u64) -> Held {
        use Held::{Message, Name, Numbers, Text};
        match (self, field) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Message(Self::Graph),
            (Self::Model, 25) => Message(Self::Function),
            (Self::Graph, 1) | (Self::Function, 7) => Message(Self::Node),
            (Self::Node, 5) | (Self::Function, 11) => Message(Self::Attribute),
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => {
                Message(Self::Tensor)
            }
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Message(Self::Sparse),
            (Self::Graph, 11..=13) | (Self::Function, 12) => Message(Self::Value),
            (Self::Graph, 14) => Message(Self::Annotation),
            (Self::Attribute, 14 | 15) | (Self::Value | Self::Map, 2) | (Self::Sequence, 1) => {
                Message(Self::Type)
            }
            (Self::Type, 1 | 8) => Message(Self::TensorType),
            (Self::Type, 4 | 9) => Message(Self::Sequence),
            (Self::Type, 5) => Message(Self::Map),
            (Self::TensorType, 2) => Message(Self::Shape),
            (Self::Model, 8 | 14 | 20 | 26)
            | (Self::Graph | Self::Tensor, 16)
            | (Self::Function, 9 | 14)
            | (Self::Node, 9 | 10)
            | (Self::Tensor, 3 | 13)
            | (Self::Value, 4)
            | (Self::Annotation, 2)
            | (Self::Shape, 1) => Message(Self::Flat),
            (Self::Node, 1..=4 | 7 | 8)
            | (Self::Graph, 2)
            | (Self::Function, 1 | 4..=6 | 10 | 13)
            | (Self::Attribute, 1 | 21)
            | (Self::Tensor, 8)
            | (Self::Value | Self::Annotation, 1) => Name,
            (Self::Attribute, 7 | 8) | (Self::Tensor, 1 | 4 | 5 | 7 | 10 | 11) => Numbers,
            _ => Text,
        }
    }
}

/// What has been counted so far.
#[derive(Default)]
struct Count {
    nodes: usize,
    initializers: usize,
    messages: usize,
    strings: usize,
}

/// Refuses a file that is not protobuf or holds more than the limits say.
pub(super) fn check(file: &[u8], limits: &Limits) -> Result<()> {
    if file.len() > limits.file_bytes {
        return Err(too_large("bytes", limits.file_bytes));
    }
    walk(file, Kind::Model, limits, &mut Count::default(), 0)
}

fn walk(
    mut rest: &[u8],
    kind: Kind,
    limits: &Limits,
    count: &mut Count,
    depth: usize,
) -> Result<()> {
    if depth > limits.depth {
        return Err(too_large("levels of nesting", limits.depth));
    }
    while !rest.is_empty() {
        let (field, wire) = protobuf::key(&mut rest).map_err(malformed)?;
        let unknown = "a field of a kind that ONNX does not use";
        let content = match protobuf::content(&mut rest, wire, unknown).map_err(malformed)? {
            Content::Bytes(content) => content,
            Content::Number => continue,
        };
        match kind.held(field) {
            Held::Message(inner) => {
                count.message(inner, limits)?;
                walk(content, inner, limits, count, depth + 1)?;
            }
            Held::Name if content.len() > limits.name_bytes => {
                return Err(too_large("bytes in a name", limits.name_bytes));
            }
            Held::Name | Held::Text => bump(&mut count.strings, limits.strings, "strings")?,
            Held::Numbers => {}
        }
    }
    Ok(())
}

impl Count {
    fn message(&mut self, kind: Kind, limits: &Limits) -> Result<()> {
        match kind {
            Kind::Node => bump(&mut self.nodes, limits.nodes, "nodes"),
            Kind::Tensor => bump(&mut self.initializers, limits.initializers, "tensors"),
            _ => bump(&mut self.messages, limits.messages, "parts"),
        }
    }
}

fn bump(counter: &mut usize, limit: usize, what: &str) -> Result<()> {
    *counter += 1;
    if *counter > limit { Err(too_large(what, limit)) } else { Ok(()) }
}

fn malformed(why: &str) -> Error {
    Error::new(&code::INVALID_INPUT, format!("the file is not an ONNX model: {why}")).at("model")
}

fn too_large(what: &str, limit: usize) -> Error {
    Error::new(&code::TOO_LARGE, format!("the model has more than {limit} {what}")).at("model")
}
