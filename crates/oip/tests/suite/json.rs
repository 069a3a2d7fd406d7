//! Requests and replies as JSON.

use std::time::Duration;

use falaj_inference::{Data, Tensor};
use falaj_oip::{Asked, Response, Value, Wanted, write_http};

use crate::made::{input, read, refusal};

#[test]
fn a_request_is_read_in_any_order_of_its_members() {
    let orders = [
        r#"{"id":"7","inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2.5,-3]}]}"#,
        r#"{"inputs":[{"data":[1,2.5,-3],"datatype":"FP32","shape":[1,3],"name":"x"}],"id":"7"}"#,
        r#" { "inputs" : [ { "shape" : [ 1 , 3 ] , "data" : [ [ 1 , 2.5 , -3 ] ] , "name" : "x" ,
            "unknown": {"a": [null, "]"]}, "datatype" : "FP32" } ] , "id" : "7" } "#,
        r#"{"inputs":[{"name":"\u0078","datatype":"FP32","data":[[1,2.5,-3e0]],"shape":[1,3]}],"id":"\u0037"}"#,
    ];
    for json in orders {
        let request = read(json).unwrap();
        assert_eq!(request.id.as_deref(), Some("7"), "{json}");
        let wanted = Tensor::of([1, 3], vec![1.0_f32, 2.5, -3.0]).unwrap();
        assert_eq!(request.inputs, [("x".to_owned(), wanted)], "{json}");
    }
}

#[test]
fn elements_are_read_as_their_type_allows() {
    let read: &[(&str, &str, Data)] = &[
        ("BOOL", "[true,false,1,0]", Data::Bool(vec![true, false, true, false])),
        ("UINT8", "[0,255,1e2,3.0]", Data::U8(vec![0, 255, 100, 3])),
        ("UINT16", "[65535,-0,1,2]", Data::U16(vec![65535, 0, 1, 2])),
        ("UINT32", "[4294967295,0,1,2]", Data::U32(vec![u32::MAX, 0, 1, 2])),
        ("UINT64", "[18446744073709551615,0,1,2]", Data::U64(vec![u64::MAX, 0, 1, 2])),
        ("INT8", "[-128,127,0,-1]", Data::I8(vec![-128, 127, 0, -1])),
        ("INT16", "[-32768,32767,0,-1]", Data::I16(vec![i16::MIN, i16::MAX, 0, -1])),
        ("INT32", "[-2147483648,2147483647,0,-1]", Data::I32(vec![i32::MIN, i32::MAX, 0, -1])),
        (
            "INT64",
            "[-9223372036854775808,9223372036854775807,9007199254740993,-1.0]",
            Data::I64(vec![i64::MIN, i64::MAX, 9_007_199_254_740_993, -1]),
        ),
        ("FP32", "[0.1,1e-46,-0.0,3.4028235e38]", Data::F32(vec![0.1, 0.0, -0.0, f32::MAX])),
        ("FP64", "[0.1,1e308,-1,5e-324]", Data::F64(vec![0.1, 1e308, -1.0, 5e-324])),
    ];
    for (datatype, data, wanted) in read {
        for shape in ["[4]", "[2,2]"] {
            assert_eq!(input(datatype, shape, data).unwrap().data(), wanted, "{datatype}");
        }
    }
    let texts =
        input("BYTES", "[4]", r#"["", "é", "a\"\\\n\u00e9\ud83d\ude00", "plain"]"#).unwrap();
    assert_eq!(texts, Tensor::strings([4], ["", "é", "a\"\\\né😀", "plain"]).unwrap());
}

#[test]
fn what_is_no_number_is_read_in_every_spelling() {
    let tensor = input("FP32", "[5]", "[NaN,null,Infinity,-Infinity,1]").unwrap();
    let read = tensor.get::<f32>().unwrap();
    assert!(read[0].is_nan() && read[1].is_nan());
    assert_eq!(read[2..], [f32::INFINITY, f32::NEG_INFINITY, 1.0]);
    // Also before it is known to be floats.
    let later = r#"{"inputs":[{"data":[NaN,-Infinity],"name":"x","shape":[2],"datatype":"FP64"}]}"#;
    assert!(read_one(later).get::<f64>().unwrap()[0].is_nan());
}

fn read_one(json: &str) -> Tensor {
    read(json).unwrap().inputs.remove(0).1
}

#[test]
fn lists_within_lists_are_the_shape_or_one_flat_list() {
    let fits: &[(&str, &str)] = &[
        ("[]", "[7]"),
        ("[]", "7"),
        ("[1]", "[7]"),
        ("[2,2]", "[[1,2],[3,4]]"),
        ("[2,2]", "[1,2,3,4]"),
        ("[2,1,2]", "[[[1,2]],[[3,4]]]"),
        ("[0]", "[]"),
        ("[0,3]", "[]"),
        ("[2,0]", "[[],[]]"),
        ("[2,0]", "[]"),
        ("[2,0,3]", "[[],[]]"),
        ("[1,0,3]", "[[]]"),
    ];
    for (shape, data) in fits {
        let read = input("INT64", shape, data);
        assert!(read.is_ok(), "{shape} {data}: {read:?}");
    }
    let differs: &[(&str, &str, &str)] = &[
        ("[2,2]", "[[1,2],[3]]", "lists of different lengths"),
        ("[2,2]", "[[1,2],3,4]", "lists of different lengths"),
        ("[2,2]", "[1,[2,3],4]", "lists of different lengths"),
        ("[4]", "[[1,2],[3,4]]", "lists of [2, 2]"),
        ("[2,3]", "[[1,2],[3,4],[5,6]]", "lists of [3, 2]"),
        ("[2]", "[1]", "1 elements"),
        ("[2]", "[1,2,3]", "more elements"),
        ("[1]", "7", "expected"),
        ("[2,0]", "[[],[],[]]", "lists of [3, 0]"),
    ];
    for (shape, data, said) in differs {
        let error = input("INT64", shape, data).unwrap_err();
        assert!(error.message().contains(said), "{shape} {data}: {error}");
    }
}

#[test]
fn a_wrong_element_is_named_with_its_place_and_what_is_allowed() {
    let wrong: &[(&str, &str, &str)] = &[
        ("FP32", "[1,\"a\"]", r#"`inputs.x.data[1]` is "\"a\""; allowed: a number"#),
        ("FP32", "[1,1e39]", r#"`inputs.x.data[1]` is "1e39"; allowed: a number"#),
        ("FP64", "[1e999,1]", r#"`inputs.x.data[0]` is "1e999"; allowed: a number"#),
        ("FP64", "[1,true]", r#"`inputs.x.data[1]` is "true""#),
        ("INT8", "[1,128]", r#"is "128"; allowed: a whole number from -128 to 127 (INT8)"#),
        ("INT8", "[1,1.5]", r#"is "1.5"; allowed: a whole number"#),
        ("UINT8", "[-1,1]", r#"`inputs.x.data[0]` is "-1""#),
        ("INT64", "[9223372036854775808,1]", r#"is "9223372036854775808""#),
        // A float of this size is not exact any more.
        ("INT64", "[9007199254740993.0,1]", r#"is "9007199254740993.0""#),
        ("INT64", "[1e400,1]", r#"is "1e400""#),
        ("INT64", "[NaN,1]", r#"is "NaN""#),
        ("INT64", "[null,1]", r#"is "null""#),
        ("BOOL", "[2,1]", r#"is "2"; allowed: true, false, 1 or 0"#),
        ("BOOL", "[\"true\",1]", "allowed: true, false, 1 or 0"),
        ("BYTES", "[\"a\",1]", r#"`inputs.x.data[1]` is "1"; allowed: a string"#),
        ("FP32", "[{},1]", r#"is "{}""#),
        ("FP16", "[1,2]", "`inputs.x.datatype` is \"FP16\"; allowed: this type as raw bytes only"),
        ("BF16", "[1,2]", "raw bytes only"),
        ("FLOAT", "[1,2]", "`datatype` is \"FLOAT\"; allowed: BOOL, UINT8"),
    ];
    for (datatype, data, said) in wrong {
        let error = input(datatype, "[2]", data).unwrap_err();
        assert!(error.message().contains(said), "{datatype} {data}: {error}");
    }
}

#[test]
fn parameters_with_a_meaning_are_taken_out() {
    let request = read(
        r#"{"parameters":{"timeout":2500,"priority":1,"binary_data_output":true,"sequence_id":0,
            "sequence_start":false,"a":1.5,"b":"text","c":-3,"d":null},
            "inputs":[],"outputs":[{"name":"y","parameters":{"classification":3,"binary_data":false}},
            {"name":"z"}]}"#,
    )
    .unwrap();
    assert_eq!(request.timeout, Some(Duration::from_micros(2500)));
    assert_eq!((request.priority, request.binary_output), (1, true));
    let left = [
        ("a".to_owned(), Value::Float(1.5)),
        ("b".to_owned(), Value::Text("text".to_owned())),
        ("c".to_owned(), Value::Int(-3)),
    ];
    assert_eq!(request.parameters, left);
    let wanted = [
        Wanted { name: "y".to_owned(), binary: Some(false), classes: 3 },
        Wanted { name: "z".to_owned(), binary: None, classes: 0 },
    ];
    assert_eq!(request.outputs, wanted);
    let asked = request.asked();
    assert!(!asked.binary("y") && asked.binary("z") && asked.binary("other"));
}

#[test]
fn parameters_that_cannot_be_met_are_refused() {
    let refused: &[(&str, &str)] = &[
        (r#"{"parameters":{"sequence_id":5},"inputs":[]}"#, "`parameters.sequence_id` is \"5\""),
        (r#"{"parameters":{"sequence_id":"a"},"inputs":[]}"#, "keep no state between requests"),
        (r#"{"parameters":{"timeout":-1},"inputs":[]}"#, "`parameters.timeout` is \"-1\""),
        (r#"{"parameters":{"timeout":"1"},"inputs":[]}"#, "a whole number of 0 or more"),
        (r#"{"parameters":{"timeout":1.5},"inputs":[]}"#, "a whole number of 0 or more"),
        (r#"{"parameters":{"binary_data_output":1},"inputs":[]}"#, "true or false"),
        (r#"{"parameters":{"a":18446744073709551616},"inputs":[]}"#, "`parameters.a` is"),
        (r#"{"parameters":{"a":[1]},"inputs":[]}"#, "`parameters.a` is \"[1]\""),
        (r#"{"parameters":{"a":1,"a":2},"inputs":[]}"#, "each name once"),
        (
            r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":
                {"shared_memory_region":"r","shared_memory_byte_size":4}}]}"#,
            "shares no memory",
        ),
        (
            r#"{"inputs":[],"outputs":[{"name":"y","parameters":{"shared_memory_region":"r"}}]}"#,
            "`outputs.y.parameters.shared_memory_region` is \"given\"",
        ),
        (
            r#"{"inputs":[],"outputs":[{"name":"y","parameters":{"classification":-1}}]}"#,
            "`outputs.y.parameters.classification`",
        ),
    ];
    for (json, said) in refused {
        assert!(refusal(json).contains(said), "{json}: {}", refusal(json));
    }
}

#[test]
fn a_reply_is_written_for_every_client() {
    let response = Response {
        model: "m\"".to_owned(),
        version: "3".to_owned(),
        id: Some("7".to_owned()),
        parameters: vec![
            ("variant".to_owned(), Value::Text("a".to_owned())),
            ("n".to_owned(), Value::Int(2)),
            ("f".to_owned(), Value::Float(0.5)),
            ("t".to_owned(), Value::Bool(true)),
        ],
        outputs: vec![
            ("y".to_owned(), Tensor::of([1, 2], vec![0.1_f32, 1e-7]).unwrap()),
            (
                "z".to_owned(),
                Tensor::of([3], vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]).unwrap(),
            ),
            ("t".to_owned(), Tensor::strings([1], ["a\n\"é"]).unwrap()),
            ("e".to_owned(), Tensor::of([0, 2], Vec::<i8>::new()).unwrap()),
        ],
    };
    let written = write_http(&response, &Asked::default()).unwrap();
    assert_eq!(written.header_length, None);
    assert_eq!(
        std::str::from_utf8(&written.body).unwrap(),
        concat!(
            r#"{"model_name":"m\"","model_version":"3","id":"7","#,
            r#""parameters":{"variant":"a","n":2,"f":0.5,"t":true},"outputs":["#,
            r#"{"name":"y","datatype":"FP32","shape":[1,2],"data":[0.1,1e-7]},"#,
            r#"{"name":"z","datatype":"FP64","shape":[3],"data":[null,Infinity,-Infinity]},"#,
            r#"{"name":"t","datatype":"BYTES","shape":[1],"data":["a\n\"é"]},"#,
            r#"{"name":"e","datatype":"INT8","shape":[0,2],"data":[]}]}"#,
        )
    );
}

#[test]
fn what_json_cannot_carry_is_said_and_not_written() {
    let outputs: Vec<(Tensor, &str)> = vec![
        (Tensor::new(vec![1], Data::F16(vec![0])).unwrap(), "`outputs.y.datatype` is \"FP16\""),
        (Tensor::new(vec![1], Data::Bf16(vec![0])).unwrap(), "raw bytes only"),
        (
            Tensor::of([1], vec![bytes::Bytes::from_static(&[255])]).unwrap(),
            "`outputs.y.data[0]` is \"not UTF-8\"",
        ),
    ];
    for (tensor, said) in outputs {
        let response = Response { outputs: vec![("y".to_owned(), tensor)], ..Response::default() };
        let error = write_http(&response, &Asked::default()).unwrap_err();
        assert!(error.message().contains(said), "{error}");
        let binary = Asked { outputs: Vec::new(), binary: true };
        assert!(write_http(&response, &binary).is_ok());
    }
}

#[test]
fn an_error_is_an_object_with_a_text() {
    let error = falaj_base::Error::invalid("a", "b\n", "c");
    let body: serde_json::Value = serde_json::from_slice(&falaj_oip::error::body(&error)).unwrap();
    assert_eq!(body["error"], error.message());
}
