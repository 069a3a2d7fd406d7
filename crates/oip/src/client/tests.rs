use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::{Limits, read_http, write_http};

fn inputs() -> Vec<(String, Tensor)> {
    vec![
        ("x".to_owned(), Tensor::of([1, 2], vec![1.0_f32, 2.0]).unwrap()),
        ("t".to_owned(), Tensor::strings([1], ["ab"]).unwrap()),
    ]
}

#[test]
fn a_request_is_json_and_then_the_tensors() {
    let Written { header_length, body } = write_request(&inputs(), []).unwrap();
    let length = header_length.unwrap();
    let header: Json = serde_json::from_slice(&body[..length]).unwrap();
    assert_eq!(header["inputs"][0]["parameters"]["binary_data_size"], 8);
    assert_eq!(header["inputs"][1]["datatype"], "BYTES");
    assert_eq!(header["parameters"]["binary_data_output"], true);
    assert_eq!(header.get("outputs"), None, "none named means all");
    assert_eq!(body.len(), length + 8 + 6);
    assert_eq!(&body[length + 8..], b"\x02\0\0\0ab");
}

#[test]
fn our_server_reads_what_our_client_writes_and_the_other_way_round() {
    for outputs in [vec![], vec!["t", "x"]] {
        let Written { header_length, body } = write_request(&inputs(), outputs.clone()).unwrap();
        let request = read_http(body, header_length, &Limits::default()).unwrap();
        assert_eq!(request.inputs, inputs());
        assert_eq!(request.output_names(), outputs);
        let answer = Response {
            model: "m".into(),
            version: "3".into(),
            id: Some("one".into()),
            parameters: Vec::new(),
            outputs: inputs(),
        };
        let written = write_http(&answer, &request.asked()).unwrap();
        assert_eq!(read_response(written.body, written.header_length).unwrap(), answer);
    }
}

#[test]
fn an_answer_that_does_not_add_up_is_refused() {
    let header = json!({"model_version": "3", "outputs": [
        {"name": "y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
    ]});
    let header = header.to_string();
    let raw = [1.0_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat();
    let body = |raw: &[u8]| Bytes::from([header.as_bytes(), raw].concat());
    let read = read_response(body(&raw), Some(header.len())).unwrap();
    assert_eq!((read.version.as_str(), read.model.as_str()), ("3", ""));
    assert_eq!(read.outputs[0].1, Tensor::of([2], vec![1.0_f32, 2.0]).unwrap());
    let longer = [&raw[..], &[0]].concat();
    for (wrong, length) in [
        (body(&raw[..5]), Some(header.len())),
        (body(&longer), Some(header.len())),
        (body(&raw), Some(header.len() + 50)),
        (body(&raw), Some(4)),
        (body(&raw), None),
        (Bytes::new(), None),
    ] {
        assert!(read_response(wrong, length).is_err());
    }
    for output in [
        json!({"name": "y", "datatype": "FP32", "shape": [1], "data": [1]}),
        json!({"name": "y", "datatype": "FP7", "shape": [2], "parameters": {"binary_data_size": 0}}),
        json!({"name": "y", "datatype": "FP32", "shape": [-1], "parameters": {"binary_data_size": 0}}),
        json!({"name": "y", "datatype": "FP32", "shape": [1_u64 << 62, 8],
               "parameters": {"binary_data_size": 0}}),
    ] {
        let told = json!({ "outputs": [output] }).to_string();
        let length = told.len();
        assert!(read_response(told.into(), Some(length)).is_err(), "{output}");
    }
}

#[test]
fn a_server_tells_what_a_model_takes_and_why_it_refuses() {
    let told = json!({
        "name": "m", "platform": "p",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1]}],
    });
    let described = read_metadata(told.to_string().as_bytes()).unwrap();
    assert_eq!(described.inputs[0].shape, Some(vec![-1, 4]));
    assert_eq!(described.outputs[0].data_type, DataType::Bytes);
    assert_eq!(described.outputs[0].shape, None, "any number of dimensions");
    for odd in
        ["{}", "", r#"{"inputs": [{"name": "x", "datatype": "FP7", "shape": []}], "outputs": []}"#]
    {
        assert!(read_metadata(odd.as_bytes()).is_err(), "{odd}");
    }
    assert_eq!(read_error(br#"{"error": "not\ntwo"}"#), "nottwo");
    assert_eq!(read_error(b"<html>"), "<html>");
    assert_eq!(read_error(&[b'x'; 1000]).len(), MAX_SAID);
}

proptest! {
    /// Whatever a server says, it is an answer or it is refused.
    #[test]
    fn nothing_that_a_server_says_breaks_its_client(
        body in prop::collection::vec(any::<u8>(), 0..200),
        shape in prop::collection::vec(any::<u64>(), 0..4),
        size in any::<u64>(),
        header in prop::option::of(0_usize..300),
    ) {
        let _ = read_response(Bytes::from(body.clone()), header);
        let _ = read_metadata(&body);
        prop_assert!(read_error(&body).chars().count() <= MAX_SAID);
        let told = json!({ "outputs": [
            {"name": "y", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": size}},
        ]});
        let told = told.to_string().into_bytes();
        let length = told.len();
        if let Ok(read) = read_response([told, body.clone()].concat().into(), Some(length)) {
            prop_assert_eq!(read.outputs[0].1.raw_len(), body.len());
        }
    }
}
