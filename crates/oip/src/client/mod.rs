//! The client's half of the protocol over HTTP: requests written, answers read. Tensors travel as
//! raw bytes behind the JSON part, both ways.
//!
//! What must hold: what a server says is checked like what a stranger says. Whoever reads from the
//! network bounds the bytes.
//!
//! Not here: connections. An answer that has tensors as JSON is refused, since raw bytes were asked
//! for.

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::{DataType, Metadata, Tensor, ValueInfo};
use serde::{Deserialize, Serialize};

use crate::http::{HEADER_LENGTH, Written};
use crate::message::Response;

#[derive(Serialize)]
struct Asked<'a> {
    inputs: Vec<Input<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<Output<'a>>,
    parameters: All,
}

#[derive(Serialize)]
struct Input<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    parameters: Size,
}

#[derive(Serialize)]
struct Output<'a> {
    name: &'a str,
    parameters: Binary,
}

#[derive(Serialize)]
struct Binary {
    binary_data: bool,
}

#[derive(Serialize)]
struct All {
    binary_data_output: bool,
}

#[derive(Default, Deserialize, Serialize)]
struct Size {
    binary_data_size: Option<usize>,
}

/// Writes a request for these outputs, or for all if none is named.
pub fn write_request<'a>(
    inputs: &'a [(String, Tensor)],
    outputs: impl IntoIterator<Item = &'a str>,
) -> Result<Written> {
    let input = |(name, tensor): &'a (String, Tensor)| Input {
        name,
        datatype: tensor.data_type().name(),
        shape: tensor.shape(),
        parameters: Size { binary_data_size: Some(tensor.raw_len()) },
    };
    let output = |name: &'a str| Output { name, parameters: Binary { binary_data: true } };
    let asked = Asked {
        inputs: inputs.iter().map(input).collect(),
        outputs: outputs.into_iter().map(output).collect(),
        parameters: All { binary_data_output: true },
    };
    let mut body = serde_json::to_vec(&asked).map_err(Error::internal)?;
    let length = body.len();
    body.reserve(inputs.iter().map(|(_, tensor)| tensor.raw_len()).sum());
    for (_, tensor) in inputs {
        tensor.write_raw(&mut body)?;
    }
    Ok(Written { header_length: Some(length), body: body.into() })
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    model_name: String,
    #[serde(default)]
    model_version: Option<String>,
    #[serde(default)]
    id: Option<String>,
    outputs: Vec<Given>,
}

#[derive(Deserialize)]
struct Given {
    name: String,
    datatype: String,
    shape: Vec<usize>,
    #[serde(default)]
    parameters: Size,
}

/// Reads an answer. `header_length` is the value of [`HEADER_LENGTH`], if the header was sent. Of
/// the parameters none is kept.
pub fn read_response(body: Bytes, header_length: Option<usize>) -> Result<Response> {
    let length = header_length.unwrap_or(body.len());
    if length > body.len() {
        let allowed = format!("at most the {} bytes of the body", body.len());
        return Err(Error::invalid(HEADER_LENGTH, length, allowed));
    }
    let answer: Answer = serde_json::from_slice(&body[..length])
        .map_err(|error| Error::invalid("body", error, "the protocol's answer"))?;
    let mut raw = body.slice(length..);
    let mut outputs = Vec::with_capacity(answer.outputs.len());
    for given in answer.outputs {
        let size = given.parameters.binary_data_size.ok_or_else(|| {
            Error::invalid("outputs.parameters", "no binary_data_size", "raw tensors")
        })?;
        if size > raw.len() {
            let allowed = format!("at most the {} bytes that are left", raw.len());
            return Err(Error::invalid("binary_data_size", size, allowed));
        }
        let kind = DataType::parse(&given.datatype)?;
        let tensor = Tensor::from_raw(kind, given.shape, &raw.split_to(size))?;
        outputs.push((given.name, tensor));
    }
    if !raw.is_empty() {
        let found = format!("{} bytes too long", raw.len());
        return Err(Error::invalid("body", found, "the JSON part and the bytes it announces"));
    }
    Ok(Response {
        model: answer.model_name,
        version: answer.model_version.unwrap_or_default(),
        id: answer.id,
        parameters: Vec::new(),
        outputs,
    })
}

#[derive(Deserialize)]
struct Described {
    inputs: Vec<Value>,
    outputs: Vec<Value>,
}

#[derive(Deserialize)]
struct Value {
    name: String,
    datatype: String,
    shape: Vec<i64>,
}

/// Reads what a model takes and gives.
pub fn read_metadata(body: &[u8]) -> Result<Metadata> {
    let described: Described = serde_json::from_slice(body)
        .map_err(|error| Error::invalid("body", error, "the protocol's description of a model"))?;
    let value = |value: Value| {
        // One dimension that varies may also stand for any number of dimensions, since the
        // protocol has no words for that: then the server checks what we cannot.
        let shape = Some(value.shape).filter(|shape| *shape != [-1]);
        let data_type = DataType::parse(&value.datatype)?;
        Ok(ValueInfo { name: value.name, data_type, shape, labels: None })
    };
    Ok(Metadata {
        inputs: described.inputs.into_iter().map(value).collect::<Result<_>>()?,
        outputs: described.outputs.into_iter().map(value).collect::<Result<_>>()?,
    })
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// The longest that is told of a refusal.
const MAX_SAID: usize = 300;

/// Why a server refused, in its own words as far as they fit one line.
#[must_use]
pub fn read_error(body: &[u8]) -> String {
    let said = serde_json::from_slice::<Refusal>(body).map(|refusal| refusal.error);
    let said = said.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned());
    said.chars().filter(|letter| !letter.is_control()).take(MAX_SAID).collect()
}

#[cfg(test)]
mod tests;
