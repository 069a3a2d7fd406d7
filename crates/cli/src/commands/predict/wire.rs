//! The Open Inference Protocol from the client's side: JSON, and tensors as raw bytes behind it.

use bytes::Bytes;
use falaj_inference::{DataType, Tensor, ValueInfo};
use serde_json::{Value, json};

use crate::exit::{Failure, Result};

/// The header that says how long the JSON part of a body is.
pub(super) const HEADER_LENGTH: &str = "inference-header-content-length";

/// What an endpoint takes and gives.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) inputs: Vec<ValueInfo>,
    pub(super) outputs: Vec<ValueInfo>,
}

pub(super) fn described(reply: &Value) -> Result<Described> {
    let values = |side: &str| -> Result<Vec<ValueInfo>> {
        reply[side].as_array().into_iter().flatten().map(value).collect()
    };
    Ok(Described { inputs: values("inputs")?, outputs: values("outputs")? })
}

fn value(told: &Value) -> Result<ValueInfo> {
    let sizes = told["shape"].as_array().into_iter().flatten();
    let shape: Vec<i64> = sizes.map(|size| size.as_i64().unwrap_or(-1)).collect();
    Ok(ValueInfo {
        name: text(told, "name")?,
        data_type: DataType::parse(&text(told, "datatype")?)?,
        // One dimension that varies also stands for any number of them: the protocol has no other
        // words for it.
        shape: Some(shape).filter(|shape| *shape != [-1]),
        labels: None,
    })
}

fn text(told: &Value, name: &str) -> Result<String> {
    told[name].as_str().map(str::to_owned).ok_or_else(|| strange(&format!("no {name}")))
}

fn strange(what: &str) -> Failure {
    Failure::failed(format!("the endpoint's answer cannot be read: {what}"))
        .hint("is the URL that of a Falaj server? `falaj doctor` checks it")
}

/// A request's body, and how long its JSON part is. All outputs are wanted as raw bytes.
pub(super) fn request(inputs: &[(String, Tensor)]) -> Result<(usize, Bytes)> {
    let input = |(name, tensor): &(String, Tensor)| {
        json!({
            "name": name, "shape": tensor.shape(), "datatype": tensor.data_type().name(),
            "parameters": { "binary_data_size": tensor.raw_len() },
        })
    };
    let header = json!({
        "inputs": inputs.iter().map(input).collect::<Vec<_>>(),
        "parameters": { "binary_data_output": true },
    });
    let mut body = header.to_string().into_bytes();
    let length = body.len();
    body.reserve(inputs.iter().map(|(_, tensor)| tensor.raw_len()).sum());
    for (_, tensor) in inputs {
        tensor.write_raw(&mut body)?;
    }
    Ok((length, body.into()))
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) version: String,
    pub(super) outputs: Vec<(String, Tensor)>,
}

/// Reads an answer whose tensors are raw bytes behind `length` bytes of JSON.
pub(super) fn answer(length: usize, body: Bytes) -> Result<Answer> {
    if length > body.len() {
        return Err(strange("it is shorter than it says"));
    }
    let header: Value =
        serde_json::from_slice(&body[..length]).map_err(|error| strange(&error.to_string()))?;
    let mut rest = body.slice(length..);
    let mut outputs = Vec::new();
    for told in header["outputs"].as_array().into_iter().flatten() {
        let kind = DataType::parse(&text(told, "datatype")?)?;
        let sizes = told["shape"].as_array().into_iter().flatten();
        let shape: Option<Vec<usize>> =
            sizes.map(|size| size.as_u64().and_then(|size| usize::try_from(size).ok())).collect();
        let shape = shape.ok_or_else(|| strange("a shape that is none"))?;
        let size = told["parameters"]["binary_data_size"].as_u64();
        let size = size.and_then(|size| usize::try_from(size).ok());
        let size = size.ok_or_else(|| strange("an output that is not raw bytes"))?;
        if size > rest.len() {
            return Err(strange("it is shorter than it says"));
        }
        let raw = rest.split_to(size);
        outputs.push((text(told, "name")?, Tensor::from_raw(kind, shape, &raw)?));
    }
    let version = header["model_version"].as_str().unwrap_or_default().to_owned();
    Ok(Answer { version, outputs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_json_and_then_the_tensors() {
        let inputs = [
            ("x".to_owned(), Tensor::of([1, 2], vec![1.0_f32, 2.0]).unwrap()),
            ("t".to_owned(), Tensor::strings([1], ["ab"]).unwrap()),
        ];
        let (length, body) = request(&inputs).unwrap();
        let header: Value = serde_json::from_slice(&body[..length]).unwrap();
        assert_eq!(header["inputs"][0]["parameters"]["binary_data_size"], 8);
        assert_eq!(header["inputs"][1]["datatype"], "BYTES");
        assert_eq!(body.len(), length + 8 + 6);
        assert_eq!(&body[length + 8..], b"\x02\0\0\0ab");
    }

    #[test]
    fn an_answer_is_read_and_a_broken_one_refused() {
        let header = json!({"model_version": "3", "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
        ]});
        let header = header.to_string();
        let raw = [1.0_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat();
        let body = |raw: &[u8]| Bytes::from([header.as_bytes(), raw].concat());
        let read = answer(header.len(), body(&raw)).unwrap();
        assert_eq!(read.version, "3");
        assert_eq!(read.outputs[0].1, Tensor::of([2], vec![1.0_f32, 2.0]).unwrap());
        assert!(answer(header.len(), body(&raw[..5])).is_err());
        assert!(answer(header.len() + 50, body(&raw)).is_err());
        assert!(answer(4, body(&raw)).is_err());
        let plain =
            json!({"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1]}]});
        let plain = plain.to_string();
        assert!(answer(plain.len(), plain.into()).is_err());
    }

    #[test]
    fn an_endpoint_tells_what_it_takes() {
        let told = json!({
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1]}],
        });
        let described = described(&told).unwrap();
        assert_eq!(described.inputs[0].shape, Some(vec![-1, 4]));
        assert_eq!(described.outputs[0].data_type, DataType::Bytes);
        let odd = json!({"inputs": [{"name": "x", "datatype": "FP7", "shape": []}]});
        assert!(super::described(&odd).is_err());
    }
}
