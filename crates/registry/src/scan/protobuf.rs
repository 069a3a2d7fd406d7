//! Recognising an ONNX model: the outer fields of a protobuf message, and nothing inside them.

use super::Probe;

/// The fields of an ONNX `ModelProto`, with their wire types (0 number, 2 bytes): version of the
/// format, producer, its version, domain, model version, text, graph, operator sets, metadata,
/// training, functions, devices.
const FIELDS: &[(u64, u64)] = &[
    (1, 0),
    (2, 2),
    (3, 2),
    (4, 2),
    (5, 0),
    (6, 2),
    (7, 2),
    (8, 2),
    (14, 2),
    (20, 2),
    (25, 2),
    (26, 2),
];
const VERSION: u64 = 1;
const GRAPH: u64 = 7;
/// Format versions run to about a dozen; a larger number is another kind of message.
const VERSIONS: std::ops::Range<u64> = 1..64;

/// Walks the outer fields as far as the head reaches. Exporters write the version first; the graph
/// must be there, and every field must be one of the model's and end inside the file.
pub(super) fn is_onnx(probe: &Probe<'_>) -> bool {
    let (mut at, mut seen_graph) = (0_u64, false);
    while at < probe.size {
        let Some(mut rest) = usize::try_from(at).ok().and_then(|at| probe.head.get(at..)) else {
            // A long field led past the head.
            return seen_graph;
        };
        let start = rest.len();
        if start == 0 {
            return seen_graph;
        }
        let Some(tag) = varint(&mut rest) else { return seen_graph && !probe.is_whole() };
        let (field, wire) = (tag >> 3, tag & 7);
        if !FIELDS.contains(&(field, wire)) || (at == 0 && field != VERSION) {
            return false;
        }
        let Some(value) = varint(&mut rest) else { return seen_graph && !probe.is_whole() };
        if field == VERSION && !VERSIONS.contains(&value) {
            return false;
        }
        at += (start - rest.len()) as u64;
        if wire == 2 {
            let Some(end) = at.checked_add(value).filter(|end| *end <= probe.size) else {
                return false;
            };
            at = end;
        }
        seen_graph |= field == GRAPH;
    }
    seen_graph
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
