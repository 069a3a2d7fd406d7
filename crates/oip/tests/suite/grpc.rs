//! Requests as protobuf messages that should not be.

use std::collections::BTreeMap;

use bytes::Bytes;
use falaj_inference::Tensor;
use falaj_oip::proto::{
    InferInputTensor, InferParameter, InferRequestedOutputTensor, InferTensorContents,
    ModelInferRequest, ParameterChoice, Raw,
};
use falaj_oip::{Limits, Response, Value, read_grpc, write_grpc};
use prost::Message;

fn input(name: &str, datatype: &str, shape: &[i64]) -> InferInputTensor {
    InferInputTensor {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape: shape.to_vec(),
        ..InferInputTensor::default()
    }
}

fn parameter(name: &str, choice: ParameterChoice) -> BTreeMap<String, InferParameter> {
    [(name.to_owned(), InferParameter { parameter_choice: Some(choice) })].into()
}

fn typed(datatype: &str, shape: &[i64], contents: InferTensorContents) -> ModelInferRequest {
    let input = InferInputTensor { contents: Some(contents), ..input("x", datatype, shape) };
    ModelInferRequest { inputs: vec![input], ..ModelInferRequest::default() }
}

fn raw(datatype: &str, shape: &[i64], raw: &[u8]) -> ModelInferRequest {
    ModelInferRequest {
        inputs: vec![input("x", datatype, shape)],
        raw_input_contents: vec![Bytes::copy_from_slice(raw)],
        ..ModelInferRequest::default()
    }
}

#[test]
fn messages_that_lie_are_refused() {
    let ints = |all: &[i32]| InferTensorContents {
        int_contents: all.to_vec(),
        ..InferTensorContents::default()
    };
    let uints = |all: &[u32]| InferTensorContents {
        uint_contents: all.to_vec(),
        ..InferTensorContents::default()
    };
    let floats = |all: &[f32]| InferTensorContents {
        fp32_contents: all.to_vec(),
        ..InferTensorContents::default()
    };
    let mut both = typed("FP32", &[1], floats(&[1.0]));
    both.raw_input_contents = vec![Bytes::from_static(&[0; 4])];
    let mut twice = raw("FP32", &[1], &[0; 4]);
    twice.inputs.push(input("x", "FP32", &[1]));
    twice.raw_input_contents.push(Bytes::from_static(&[0; 4]));
    let mut few = raw("FP32", &[1], &[0; 4]);
    few.inputs.push(input("y", "FP32", &[1]));
    let mut shared = raw("FP32", &[1], &[0; 4]);
    shared.inputs[0].parameters =
        parameter("shared_memory_region", ParameterChoice::String("r".to_owned()));
    // As the stock client sends it.
    shared.raw_input_contents.clear();
    shared.inputs.push(input("y", "FP32", &[1]));
    shared.raw_input_contents.push(Bytes::from_static(&[0; 4]));
    let mut sequence = raw("FP32", &[1], &[0; 4]);
    sequence.parameters = parameter("sequence_id", ParameterChoice::Int64(4));
    let mut huge = raw("FP32", &[1], &[0; 4]);
    huge.parameters = parameter("a", ParameterChoice::Uint64(u64::MAX));
    let cases: Vec<(ModelInferRequest, &str)> = vec![
        (raw("FP32", &[1], &[0; 3]), "inputs.x: `data` is \"3 bytes\"; allowed: 4 bytes"),
        (raw("FP32", &[2], &[0; 4]), "allowed: 8 bytes"),
        (raw("FP32", &[-1], &[0; 4]), "`inputs.x.shape` is \"-1\""),
        (raw("FP32", &[i64::MAX, 4], &[0; 4]), "than memory can hold"),
        (raw("FP32", &[1; 17], &[0; 4]), "at most 16 dimensions"),
        (raw("FP32", &[1 << 40], &[0; 4]), "more than 134217728 elements"),
        (raw("BYTES", &[1 << 23], &[0; 4]), "more than 4194304 strings"),
        (raw("BYTES", &[1], &[9, 0, 0, 0]), "too short"),
        (raw("float", &[1], &[0; 4]), "`datatype` is \"float\""),
        (raw("", &[1], &[0; 4]), "`datatype` is \"\""),
        (typed("FP32", &[2], floats(&[1.0])), "inputs.x: `shape` is \"[2]\""),
        (typed("FP32", &[1], ints(&[1])), "in another field"),
        (typed("INT8", &[1], ints(&[128])), "`inputs.x.contents.int_contents[0]` is \"128\""),
        (typed("INT16", &[2], ints(&[1, 40_000])), "int_contents[1]` is \"40000\""),
        (typed("UINT8", &[1], uints(&[256])), "what UINT8 can hold"),
        (typed("FP16", &[1], floats(&[1.0])), "`raw_input_contents` only"),
        (both, "either `raw_input_contents` or `contents`"),
        (twice, "each input once"),
        (few, "`raw_input_contents` is \"1\"; allowed: as many as there are inputs (2)"),
        (shared, "shares no memory"),
        (sequence, "keep no state"),
        (huge, "`parameters.a` is \"18446744073709551615\""),
    ];
    for (message, said) in cases {
        let error = read_grpc(message.clone(), &Limits::default()).unwrap_err();
        assert!(error.message().contains(said), "{message:?}: {error}");
    }
}

#[test]
fn outputs_and_parameters_are_read() {
    let output = InferRequestedOutputTensor {
        name: "y".to_owned(),
        parameters: parameter("classification", ParameterChoice::Int64(2)),
    };
    let mut message = raw("FP32", &[1], &[0; 4]);
    message.outputs = vec![output.clone()];
    message.parameters = parameter("timeout", ParameterChoice::Uint64(1000));
    let request = read_grpc(message.clone(), &Limits::default()).unwrap();
    assert_eq!((request.outputs[0].classes, request.id), (2, None));
    assert_eq!(request.timeout, Some(std::time::Duration::from_millis(1)));
    message.outputs.push(output);
    assert!(read_grpc(message, &Limits::default()).is_err());
}

#[test]
fn a_reply_carries_raw_bytes() {
    let reply = write_grpc(Response {
        model: "m".to_owned(),
        version: "2".to_owned(),
        id: Some("7".to_owned()),
        parameters: vec![("variant".to_owned(), Value::Text("a".to_owned()))],
        outputs: vec![("y".to_owned(), Tensor::strings([1, 1], ["ab"]).unwrap())],
    })
    .unwrap();
    assert_eq!(reply.raw_output_contents[0], &b"\x02\x00\x00\x00ab"[..]);
    assert_eq!(
        (reply.outputs[0].shape.clone(), reply.outputs[0].contents.clone()),
        (vec![1, 1], None)
    );
    assert_eq!((&*reply.model_name, &*reply.model_version, &*reply.id), ("m", "2", "7"));
    let variant = ParameterChoice::String("a".to_owned());
    assert_eq!(reply.parameters["variant"].parameter_choice, Some(variant));
}

/// Many parts in few bytes: refused before they are decoded.
#[test]
fn parts_are_counted_before_they_are_decoded() {
    let repeated = |part: &[u8], times: usize| Raw(Bytes::from(part.repeat(times)));
    let within = |inner: &[u8]| {
        // An input that holds this, written as field 5 with its length.
        let mut length = inner.len();
        let mut out = vec![0x2a];
        while length >= 128 {
            out.push(u8::try_from(length % 128).unwrap() | 128);
            length /= 128;
        }
        out.push(u8::try_from(length).unwrap());
        out.extend_from_slice(inner);
        Raw(Bytes::from(out))
    };
    let limits = Limits { max_strings: 100, max_elements: 100, ..Limits::default() };
    let too_many = [
        ("inputs", repeated(&[0x2a, 0], 1001)),
        ("outputs", repeated(&[0x32, 0], 1001)),
        ("raw inputs", repeated(&[0x3a, 0], 1001)),
        ("parameters", repeated(&[0x22, 0], 129)),
        ("parameters", within(&[0x22, 0].repeat(129))),
        ("dimensions", within(&[0x18, 1].repeat(17))),
        ("dimensions", within(&[&[0x1a, 17][..], &[1; 17]].concat())),
        ("strings", within(&[0x2a, 2, 0x42, 0].repeat(101))),
        ("elements", within(&[&[0x2a, 103, 0x12, 101][..], &[1; 101]].concat())),
        ("elements", within(&[&[0x2a, 2, 0x10, 1][..]].concat().repeat(101))),
    ];
    for (what, raw) in too_many {
        let error = raw.infer(&limits).unwrap_err();
        assert!(error.message().contains(what), "{what}: {error}");
        assert_eq!(error.kind(), falaj_base::ErrorKind::TooLarge);
    }
    for broken in
        [&[0x2a][..], &[0x2a, 5, 0], &[0x2b], &[255; 11], &[0x0a, 1, 255], &[0x2a, 2, 0x1a, 9]]
    {
        let error = Raw(Bytes::copy_from_slice(broken)).infer(&limits).unwrap_err();
        assert_eq!(error.kind(), falaj_base::ErrorKind::InvalidInput, "{broken:?}: {error}");
    }
    let large = Raw(Bytes::from(vec![0; 1 << 17]));
    assert!(large.small::<falaj_oip::proto::ModelReadyRequest>().is_err());
}

#[test]
fn what_is_within_limits_is_decoded_as_it_is() {
    for message in [
        raw("FP32", &[1], &[0; 4]),
        typed(
            "BYTES",
            &[2],
            InferTensorContents {
                bytes_contents: vec![Bytes::new(), Bytes::from_static(b"a")],
                ..InferTensorContents::default()
            },
        ),
        typed(
            "INT64",
            &[2],
            InferTensorContents {
                int64_contents: vec![-1, i64::MAX],
                ..InferTensorContents::default()
            },
        ),
    ] {
        let bytes = Bytes::from(message.encode_to_vec());
        // As a codec reads it.
        let raw = Raw::decode(bytes.clone()).unwrap();
        assert_eq!((raw.encode_to_vec(), raw.encoded_len()), (bytes.to_vec(), bytes.len()));
        assert_eq!(raw.infer(&Limits::default()).unwrap(), message);
    }
    let named =
        falaj_oip::proto::ModelReadyRequest { name: "m".to_owned(), version: String::new() };
    let raw = Raw(Bytes::from(named.encode_to_vec()));
    assert_eq!(raw.small::<falaj_oip::proto::ModelReadyRequest>().unwrap(), named);
}
