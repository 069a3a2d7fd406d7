//! Requests that nobody should send: each is refused, in little memory, and told why.

use bytes::Bytes;
use falaj_base::ErrorKind;
use falaj_oip::{Limits, read_http};

use crate::made::{read, refusal};

#[test]
fn bodies_that_are_no_request() {
    let bodies: &[(&str, &str)] = &[
        ("", "it ends at byte 0, where an object with `inputs` is expected"),
        ("null", "at byte 0"),
        ("[]", "at byte 0"),
        ("{", "it ends at byte 1"),
        ("{}", "`inputs` is \"missing\""),
        (r#"{"inputs":{}}"#, "inputs, a list, is expected"),
        (r#"{"inputs":[1]}"#, "an input, an object, is expected"),
        (r#"{"inputs":[]} x"#, "the end of the body"),
        (r#"{"inputs":[],}"#, "a name in quotes"),
        (r#"{"inputs":[],"inputs":[]}"#, "`inputs` is \"there twice\""),
        (r#"{"inputs":[{}]}"#, "`inputs.name` is \"missing\""),
        (r#"{"inputs":[{"name":""}]}"#, "`inputs.name` is \"\""),
        (r#"{"inputs":[{"name":7}]}"#, "inputs.name, a string,"),
        (r#"{"inputs":[{"name":"x"}]}"#, "`inputs.x.shape` is \"missing\""),
        (r#"{"inputs":[{"name":"x","shape":[1]}]}"#, "`inputs.x.datatype` is \"missing\""),
        (
            r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32"}]}"#,
            "`inputs.x.data` is \"missing\"",
        ),
        (r#"{"inputs":[{"name":"x","shape":["1"]}]}"#, "`inputs.shape` is \"\\\"1\\\"\""),
        (r#"{"inputs":[{"name":"x","shape":[1.5]}]}"#, "`inputs.shape` is \"1.5\""),
        (r#"{"inputs":[{"name":"x","shape":[99999999999999999999]}]}"#, "`inputs.shape` is"),
        (
            r#"{"inputs":[{"name":"x","shape":[-1],"datatype":"FP32","data":[1]}]}"#,
            "`inputs.x.shape` is \"-1\"; allowed: dimensions of 0 or more",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]},
                {"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}"#,
            "each input once",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1],"data":[2]}]}"#,
            "`inputs.data` is \"there twice\"",
        ),
        (r#"{"inputs":[],"outputs":[{"name":"y"},{"name":"y"}]}"#, "each output once"),
        (r#"{"inputs":[],"outputs":[{}]}"#, "`outputs.name` is \"missing\""),
        (r#"{"id":7,"inputs":[]}"#, "id, a string,"),
        ("{\"id\":\"a\u{1}\",\"inputs\":[]}", "control characters"),
        (r#"{"id":"\ud800","inputs":[]}"#, "unknown escapes"),
        (r#"{"id":"\"#, "the end of a string"),
        (r#"{"id":"\x","inputs":[]}"#, "unknown escapes"),
        (
            r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[01]}]}"#,
            "where a value is expected",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1.]}]}"#,
            "where a value is expected",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[+1]}]}"#,
            "where a value is expected",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1"#,
            "a comma or the end of the list",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1 1]}]}"#,
            "a comma or the end of the list",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":"1"}]}"#,
            "inputs.x.data, a list,",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1],
                "parameters":{"binary_data_size":4}}]}"#,
            "either `data` or `binary_data_size`",
        ),
    ];
    for (body, said) in bodies {
        assert!(refusal(body).contains(said), "{body}: {}", refusal(body));
        assert_eq!(read(body).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

/// A shape makes no room: nothing is there to fill it.
#[test]
fn shapes_beyond_all_measure() {
    for shape in [
        "[9223372036854775807]",
        "[4294967296,4294967296]",
        "[4611686018427387904,2,0]",
        "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
        "[1000000000]",
        "[134217728]",
    ] {
        for (datatype, data) in [("FP32", "[1]"), ("BYTES", r#"["a"]"#), ("BOOL", "[]")] {
            let body = format!(
                r#"{{"inputs":[{{"name":"x","shape":{shape},"datatype":"{datatype}","data":{data}}}]}}"#
            );
            assert!(read(&body).is_err(), "{body}");
        }
    }
    let many = format!(r#"{{"inputs":[{{"name":"x","shape":[{}1]}}]}}"#, "1,".repeat(1 << 16));
    assert!(read(&many).is_err());
}

#[test]
fn depths_beyond_all_measure() {
    let deep =
        |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    for body in [
        deep("[", "]"),
        format!(r#"{{"x":{}}}"#, deep("[", "]")),
        format!(r#"{{"x":{}1{}}}"#, "{\"a\":".repeat(100_000), "}".repeat(100_000)),
        format!(r#"{{"inputs":[{{"data":{}}}]}}"#, deep("[", "]")),
        format!(
            r#"{{"inputs":[{{"name":"x","shape":[1],"datatype":"FP32","data":{}}}]}}"#,
            deep("[", "]")
        ),
        format!(r#"{{"parameters":{{"a":{}}}}}"#, deep("[", "]")),
    ] {
        assert!(read(&body).is_err());
    }
}

#[test]
fn limits_hold_at_their_edge() {
    let limits = Limits {
        max_inputs: 2,
        max_outputs: 2,
        max_elements: 4,
        max_strings: 2,
        max_name: 3,
        max_parameters: 2,
        max_text: 4,
    };
    let input = |name: &str, datatype: &str, shape: &str, data: &str| {
        format!(r#"{{"name":"{name}","shape":{shape},"datatype":"{datatype}","data":{data}}}"#)
    };
    let inputs = |inputs: &[String]| format!(r#"{{"inputs":[{}]}}"#, inputs.join(","));
    let one = |name: &str| input(name, "FP32", "[1]", "[1]");
    let cases: Vec<(String, Option<ErrorKind>)> = vec![
        (inputs(&[one("a"), one("b")]), None),
        (inputs(&[one("a"), one("b"), one("c")]), Some(ErrorKind::TooLarge)),
        (inputs(&[one("abc")]), None),
        (inputs(&[one("abcd")]), Some(ErrorKind::InvalidInput)),
        (inputs(&[input("a", "FP32", "[4]", "[1,2,3,4]")]), None),
        (inputs(&[input("a", "FP32", "[3]", "[1,2,3]"), one("b")]), None),
        (inputs(&[input("a", "FP32", "[4]", "[1,2,3,4]"), one("b")]), Some(ErrorKind::TooLarge)),
        (inputs(&[input("a", "FP32", "[5]", "[1,2,3,4,5]")]), Some(ErrorKind::TooLarge)),
        (inputs(&[input("a", "BYTES", "[2]", r#"["a","b"]"#)]), None),
        (inputs(&[input("a", "BYTES", "[3]", r#"["a","b","c"]"#)]), Some(ErrorKind::TooLarge)),
        (r#"{"inputs":[],"outputs":[{"name":"a"},{"name":"b"}]}"#.to_owned(), None),
        (
            r#"{"inputs":[],"outputs":[{"name":"a"},{"name":"b"},{"name":"c"}]}"#.to_owned(),
            Some(ErrorKind::TooLarge),
        ),
        (r#"{"inputs":[],"parameters":{"a":1,"b":2}}"#.to_owned(), None),
        (r#"{"inputs":[],"parameters":{"a":1,"b":2,"c":3}}"#.to_owned(), Some(ErrorKind::TooLarge)),
        (r#"{"inputs":[],"parameters":{"a":"1234"}}"#.to_owned(), None),
        (r#"{"inputs":[],"parameters":{"a":"12345"}}"#.to_owned(), Some(ErrorKind::InvalidInput)),
        (r#"{"inputs":[],"id":"123"}"#.to_owned(), None),
        (r#"{"inputs":[],"id":"1234"}"#.to_owned(), Some(ErrorKind::InvalidInput)),
    ];
    for (body, refused) in cases {
        let read = read_http(Bytes::from(body.clone()), None, &limits);
        assert_eq!(read.as_ref().err().map(falaj_base::Error::kind), refused, "{body}: {read:?}");
    }
}

#[test]
fn a_long_name_does_not_make_a_long_refusal() {
    let name = "\u{7}é".repeat(400);
    let escaped = name.replace('\u{7}', "\\u0007");
    let body = format!(
        r#"{{"inputs":[{{"name":"{escaped}","shape":[1],"datatype":"FP32","data":["a"]}}]}}"#
    );
    let said = refusal(&body);
    assert!(said.len() < 1000 && !said.contains('\u{7}'), "{said}");
}

#[test]
fn bytes_that_are_no_text() {
    let body = Bytes::from_static(b"{\"id\":\"\xff\",\"inputs\":[]}");
    let error = read_http(body, None, &Limits::default()).unwrap_err();
    assert!(error.message().contains("not UTF-8 at byte 7"), "{error}");
}

/// A shape that grows with the square of the body would take hours here.
#[test]
fn frames_of_many_columns_take_time_in_proportion() {
    use falaj_inference::DataType;
    use falaj_oip::scoring::{Scheme, read};

    use crate::made::{info, model};

    let metadata = model(vec![info("x", DataType::F32, &[-1, 1])], Vec::new());
    let wanted = ["c99999".to_owned()];
    let scheme = Scheme { metadata: &metadata, columns: &wanted };
    let columns = 100_000;
    let members = |order: &mut dyn Iterator<Item = usize>| {
        let members: Vec<String> = order.map(|n| format!("\"c{n}\":{}", n % 10)).collect();
        format!("{{{}}}", members.join(","))
    };
    let first = members(&mut (0..columns));
    let last = members(&mut (0..columns).rev());
    let empty = "{},".repeat(100_000);
    let body = format!(r#"{{"dataframe_records":[{first},{empty}{last}]}}"#);
    let started = std::time::Instant::now();
    let scored = read(&Bytes::from(body), None, scheme, &Limits::default()).unwrap();
    assert_eq!(scored.inputs[0].1.shape(), [100_002, 1]);
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}
