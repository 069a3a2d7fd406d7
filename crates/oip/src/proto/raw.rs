//! Messages as they came, looked at before they are decoded.
//!
//! Decoding makes a struct of some hundred bytes out of two bytes that say "an empty input", so a
//! message of some megabytes could ask for gigabytes. Here its parts are counted first, in place.

use bytes::{Buf, BufMut, Bytes};
use falaj_base::{Error, Result, code};
use falaj_inference::protobuf::{self, Content};
use falaj_inference::tensor::MAX_RANK;
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};

use super::ModelInferRequest;
use crate::error::too_large;
use crate::message::Limits;

/// The largest message that is no inference request: names, and flags beside them.
const MAX_SMALL: usize = 64 << 10;

/// The bytes of a message. They stand where a codec wants a message, so that reading them is ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub Bytes);

impl Message for Raw {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> std::result::Result<(), DecodeError> {
        skip_field(wire, tag, buf, ctx)
    }

    fn merge(&mut self, mut buf: impl Buf) -> std::result::Result<(), DecodeError> {
        self.0 = buf.copy_to_bytes(buf.remaining());
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

impl Raw {
    /// Reads a message that is small in any honest use.
    pub fn small<M: Message + Default>(self) -> Result<M> {
        if self.0.len() > MAX_SMALL {
            return Err(too_large("bytes in the message", MAX_SMALL, "message"));
        }
        decoded(self.0)
    }

    /// Reads an inference request with no more parts than the limits say.
    pub fn infer(self, limits: &Limits) -> Result<ModelInferRequest> {
        Count::default().walk(&self.0, Kind::Request, limits)?;
        decoded(self.0)
    }
}

fn decoded<M: Message + Default>(bytes: Bytes) -> Result<M> {
    M::decode(bytes).map_err(|error| malformed("it cannot be decoded").caused_by(error))
}

fn malformed(why: &str) -> Error {
    Error::new(&code::MALFORMED_BODY, format!("the message is not as it should be: {why}"))
}

/// The messages that have parts to be counted.
#[derive(Clone, Copy)]
enum Kind {
    Request,
    Input,
    Output,
    Contents,
}

/// What has been counted so far.
#[derive(Default)]
struct Count {
    inputs: usize,
    raw: usize,
    outputs: usize,
    elements: usize,
    strings: usize,
}

impl Count {
    fn walk(&mut self, mut rest: &[u8], kind: Kind, limits: &Limits) -> Result<()> {
        let (mut parameters, mut dimensions) = (0, 0);
        while !rest.is_empty() {
            let (field, wire) = protobuf::key(&mut rest).map_err(malformed)?;
            let held = protobuf::content(&mut rest, wire, "a field of an unknown kind");
            match (kind, field, held.map_err(malformed)?) {
                (Kind::Request, 5, Content::Bytes(input)) => {
                    bump(&mut self.inputs, 1, limits.max_inputs, "inputs")?;
                    self.walk(input, Kind::Input, limits)?;
                }
                (Kind::Request, 6, Content::Bytes(output)) => {
                    bump(&mut self.outputs, 1, limits.max_outputs, "outputs")?;
                    self.walk(output, Kind::Output, limits)?;
                }
                (Kind::Request, 7, _) => {
                    bump(&mut self.raw, 1, limits.max_inputs, "raw inputs")?;
                }
                (Kind::Request | Kind::Input, 4, _) | (Kind::Output, 2, _) => {
                    bump(&mut parameters, 1, limits.max_parameters, "parameters")?;
                }
                (Kind::Input, 3, held) => {
                    bump(&mut dimensions, numbers(&held), MAX_RANK, "dimensions")?;
                }
                (Kind::Input, 5, Content::Bytes(contents)) => {
                    self.walk(contents, Kind::Contents, limits)?;
                }
                (Kind::Contents, 8, _) => {
                    bump(&mut self.strings, 1, limits.max_strings, "strings")?;
                }
                (Kind::Contents, field, held) => {
                    let elements = match (field, &held) {
                        (6, Content::Bytes(packed)) => packed.len() / 4,
                        (7, Content::Bytes(packed)) => packed.len() / 8,
                        _ => numbers(&held),
                    };
                    bump(&mut self.elements, elements, limits.max_elements, "elements")?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// How many numbers of varying length stand there: each ends with a byte under 128.
fn numbers(held: &Content<'_>) -> usize {
    match held {
        Content::Number => 1,
        Content::Bytes(packed) => packed.iter().map(|&byte| usize::from(byte < 128)).sum(),
    }
}

fn bump(counter: &mut usize, by: usize, most: usize, what: &str) -> Result<()> {
    *counter += by;
    if *counter > most { Err(too_large(what, most, "message")) } else { Ok(()) }
}
