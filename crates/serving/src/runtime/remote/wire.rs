//! The client's half of the protocol: requests written, answers read. Tensors go as raw bytes
//! behind the JSON part, both ways.

use bytes::Bytes;
use falaj_base::{Error, Result};
use falaj_inference::{DataType, Metadata, Tensor, ValueInfo};
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct Request<'a> {
    inputs: Vec<Input<'a>>,
    outputs: Vec<Output<'a>>,
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

#[derive(Default, Deserialize, Serialize)]
struct Size {
    binary_data_size: Option<usize>,
}

/// Writes a request: the length of its JSON part, and the body.
pub(super) fn request(
    inputs: &[(String, Tensor)],
    outputs: &[&ValueInfo],
) -> Result<(usize, Bytes)> {
    let mut raw = Vec::with_capacity(inputs.iter().map(|(_, tensor)| tensor.bytes()).sum());
    let mut described = Vec::with_capacity(inputs.len());
    for (name, tensor) in inputs {
        let before = raw.len();
        tensor.write_raw(&mut raw)?;
        described.push(Input {
            name,
            datatype: tensor.data_type().name(),
            shape: tensor.shape(),
            parameters: Size { binary_data_size: Some(raw.len() - before) },
        });
    }
    let outputs = outputs
        .iter()
        .map(|output| Output { name: &output.name, parameters: Binary { binary_data: true } });
    let request = Request { inputs: described, outputs: outputs.collect() };
    let mut body = serde_json::to_vec(&request).map_err(Error::internal)?;
    let header = body.len();
    body.append(&mut raw);
    Ok((header, body.into()))
}

#[derive(Deserialize)]
struct Response {
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

/// Reads an answer: the outputs wanted, in their order.
pub(super) fn response(
    mut body: Bytes,
    header: Option<usize>,
    wanted: &[&ValueInfo],
) -> Result<Vec<(String, Tensor)>> {
    let length = header.unwrap_or(body.len());
    if length > body.len() {
        return Err(Error::invalid("header length", length, format!("up to {}", body.len())));
    }
    let described = body.split_to(length);
    let described: Response = serde_json::from_slice(&described)
        .map_err(|error| Error::invalid("body", error, "the protocol's answer"))?;
    let mut given = Vec::with_capacity(described.outputs.len());
    for output in described.outputs {
        let size = output.parameters.binary_data_size.ok_or_else(|| {
            Error::invalid("outputs.parameters", "no binary_data_size", "raw tensors")
        })?;
        if size > body.len() {
            return Err(Error::invalid("binary_data_size", size, format!("up to {}", body.len())));
        }
        let kind = DataType::parse(&output.datatype)?;
        let tensor = Tensor::from_raw(kind, output.shape, &body.split_to(size))?;
        given.push((output.name, tensor));
    }
    let take = |info: &&ValueInfo| {
        let missing = || Error::invalid("outputs", "incomplete", &info.name);
        let place = given.iter().position(|(name, _)| *name == info.name).ok_or_else(missing)?;
        let output = given.swap_remove(place);
        if output.1.data_type() != info.data_type {
            return Err(Error::invalid("datatype", output.1.data_type(), info.data_type));
        }
        Ok(output)
    };
    wanted.iter().map(take).collect()
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
pub(super) fn metadata(body: &[u8]) -> Result<Metadata> {
    let described: Described = serde_json::from_slice(body)
        .map_err(|error| Error::invalid("body", error, "the protocol's description of a model"))?;
    let value = |value: Value| {
        // One dimension that varies may also stand for any number of dimensions, since the
        // protocol has no words for that: then the server checks what we cannot.
        let shape = if value.shape == [-1] { None } else { Some(value.shape) };
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

/// Why the server refused, in its own words as far as they fit one line.
pub(super) fn error(body: &[u8]) -> String {
    let said = serde_json::from_slice::<Refusal>(body).map(|refusal| refusal.error);
    let said = said.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned());
    said.chars().filter(|letter| !letter.is_control()).take(300).collect()
}
