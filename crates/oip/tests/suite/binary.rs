//! The binary tensor extension.

use bytes::Bytes;
use falaj_inference::{Data, Tensor};
use falaj_oip::{Asked, Limits, Request, Response, Wanted, header_length, read_http, write_http};

/// A request of a JSON part and what follows it.
fn read(json: &str, raw: &[u8]) -> falaj_base::Result<Request> {
    let body = Bytes::from([json.as_bytes(), raw].concat());
    read_http(body, Some(json.len()), &Limits::default())
}

fn input(name: &str, datatype: &str, shape: &str, size: &str) -> String {
    format!(
        r#"{{"name":"{name}","shape":{shape},"datatype":"{datatype}","parameters":{{"binary_data_size":{size}}}}}"#
    )
}

#[test]
fn raw_tensors_follow_the_json_in_order_beside_listed_ones() {
    let json = format!(
        r#"{{"inputs":[{},{{"name":"j","shape":[1],"datatype":"INT8","data":[-7]}},{},{},{}]}}"#,
        input("f", "FP32", "[1,2]", "8"),
        input("h", "FP16", "[1]", "2"),
        input("t", "BYTES", "[2]", "11"),
        input("e", "INT64", "[0,3]", "0"),
    );
    let mut raw = Vec::new();
    raw.extend_from_slice(&1.5_f32.to_le_bytes());
    raw.extend_from_slice(&f32::NAN.to_le_bytes());
    raw.extend_from_slice(&0x3E00_u16.to_le_bytes());
    raw.extend_from_slice(b"\x00\x00\x00\x00\x03\x00\x00\x00\xff\x00a");
    let request = read(&json, &raw).unwrap();
    let tensors: Vec<&Tensor> = request.inputs.iter().map(|(_, tensor)| tensor).collect();
    assert_eq!(tensors[0].get::<f32>().unwrap()[0], 1.5);
    assert!(tensors[0].get::<f32>().unwrap()[1].is_nan());
    assert_eq!(tensors[1].data(), &Data::I8(vec![-7]));
    assert_eq!(tensors[2].data(), &Data::F16(vec![0x3E00]));
    let texts = vec![Bytes::new(), Bytes::from_static(&[255, 0, b'a'])];
    assert_eq!(tensors[3].data(), &Data::Bytes(texts));
    assert_eq!(tensors[4].shape(), [0, 3]);
}

#[test]
fn sizes_that_lie_are_refused() {
    let one = |input: String| format!(r#"{{"inputs":[{input}]}}"#);
    let cases: Vec<(String, &[u8], &str)> = vec![
        (one(input("x", "FP32", "[1]", "4")), &[0; 3], "is \"4\"; allowed: at most the 3 bytes"),
        (one(input("x", "FP32", "[1]", "4")), &[0; 5], "1 bytes too long"),
        (one(input("x", "FP32", "[1]", "3")), &[0; 3], "`data` is \"3 bytes\"; allowed: 4 bytes"),
        (one(input("x", "FP32", "[1]", "8")), &[0; 8], "inputs.x: `data` is \"8 bytes\""),
        (one(input("x", "FP32", "[2]", "4")), &[0; 4], "allowed: 8 bytes for FP32"),
        (one(input("x", "FP32", "[1]", "-4")), &[0; 4], "a whole number of 0 or more"),
        (one(input("x", "FP32", "[1]", "4.0")), &[0; 4], "a whole number of 0 or more"),
        (one(input("x", "FP32", "[1]", "\"4\"")), &[0; 4], "a whole number of 0 or more"),
        (one(input("x", "FP32", "[1]", "9223372036854775807")), &[0; 4], "at most the 4 bytes"),
        (one(input("x", "FP32", "[1]", "99999999999999999999")), &[0; 4], "64 bits"),
        (one(input("x", "FP32", "[33554432]", "4")), &[0; 4], "allowed: 134217728 bytes"),
        (one(input("x", "BYTES", "[1]", "4")), &[255; 4], "too short"),
        (one(input("x", "BYTES", "[1]", "3")), &[0; 3], "too short"),
        (one(input("x", "BYTES", "[2]", "4")), &[0; 4], "too short"),
        (one(input("x", "BYTES", "[1]", "5")), &[0; 5], "1 bytes too many"),
        (one(input("x", "BYTES", "[4194304]", "4")), &[0; 4], "too short"),
        (r#"{"inputs":[]}"#.to_owned(), &[0], "1 bytes too long"),
    ];
    for (json, raw, said) in cases {
        let error = read(&json, raw).unwrap_err();
        assert!(error.message().contains(said), "{json}: {error}");
    }
}

#[test]
fn the_length_of_the_json_part_is_checked() {
    let json = format!(r#"{{"inputs":[{}]}}"#, input("x", "FP32", "[1]", "4"));
    let body = Bytes::from([json.as_bytes(), &[0; 4]].concat());
    let limits = Limits::default();
    assert!(read_http(body.clone(), Some(json.len()), &limits).is_ok());
    for wrong in [0, 1, json.len() - 1, json.len() + 1, body.len()] {
        assert!(read_http(body.clone(), Some(wrong), &limits).is_err(), "{wrong}");
    }
    let error = read_http(body.clone(), Some(body.len() + 1), &limits).unwrap_err();
    assert!(error.message().contains("at most the"), "{error}");
    // Without the header nothing follows.
    let error = read_http(Bytes::from(json), None, &limits).unwrap_err();
    assert!(error.message().contains("only with the header"), "{error}");
    assert_eq!(header_length("12").unwrap(), 12);
    for wrong in ["", "-1", "+1", "1.0", " 1", "x", "99999999999999999999999"] {
        assert!(header_length(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_reply_mixes_both_as_asked() {
    let response = Response {
        model: "m".to_owned(),
        outputs: vec![
            ("a".to_owned(), Tensor::of([2], vec![1.0_f32, 2.0]).unwrap()),
            ("b".to_owned(), Tensor::of([1], vec![7_i64]).unwrap()),
            ("c".to_owned(), Tensor::strings([2], ["", "xy"]).unwrap()),
        ],
        ..Response::default()
    };
    let json = Wanted { name: "b".to_owned(), binary: Some(false), classes: 0 };
    let asked = Asked { outputs: vec![json], binary: true };
    let written = write_http(&response, &asked).unwrap();
    let (header, raw) = written.body.split_at(written.header_length.unwrap());
    let header: serde_json::Value = serde_json::from_slice(header).unwrap();
    assert_eq!(header["outputs"][0]["parameters"]["binary_data_size"], 8);
    assert!(header["outputs"][0].get("data").is_none());
    assert_eq!(header["outputs"][1]["data"], serde_json::json!([7]));
    assert_eq!(header["outputs"][2]["parameters"]["binary_data_size"], 10);
    assert!(header.get("model_version").is_none() && header.get("id").is_none());
    let mut wanted = [1.0_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat();
    wanted.extend_from_slice(b"\x00\x00\x00\x00\x02\x00\x00\x00xy");
    assert_eq!(raw, wanted);
}
