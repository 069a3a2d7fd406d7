//! MLflow's shapes: what goes into a model, and what comes back.

use bytes::Bytes;
use falaj_base::ErrorKind;
use falaj_inference::{DataType, Labels, Metadata, Tensor};
use falaj_oip::Limits;
use falaj_oip::scoring::{Form, Scheme, Scored, read, write};
use proptest::prelude::*;

use crate::made::{info, labelled, model};

fn matrix() -> Metadata {
    model(vec![info("x", DataType::F32, &[-1, 3])], Vec::new())
}

fn by_column() -> Metadata {
    let inputs = vec![
        info("age", DataType::I64, &[-1, 1]),
        info("name", DataType::Bytes, &[-1]),
        info("score", DataType::F64, &[-1, 1]),
    ];
    model(inputs, Vec::new())
}

fn score(metadata: &Metadata, kind: &str, body: &str) -> falaj_base::Result<Scored> {
    named(metadata, &[], kind, body)
}

fn named(
    metadata: &Metadata,
    columns: &[&str],
    kind: &str,
    body: &str,
) -> falaj_base::Result<Scored> {
    let columns: Vec<String> = columns.iter().map(|&name| name.to_owned()).collect();
    let scheme = Scheme { metadata, columns: &columns };
    read(&Bytes::copy_from_slice(body.as_bytes()), Some(kind), scheme, &Limits::default())
}

const JSON: &str = "application/json";
const CSV: &str = "text/csv; charset=UTF-8";

#[test]
fn a_frame_fills_the_only_input_by_rows() {
    let wanted = Tensor::of([2, 3], vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.5]).unwrap();
    let bodies = [
        (
            JSON,
            r#"{"dataframe_split":{"columns":["a","b","c"],"index":[0,1],"data":[[1,2,3],[4,5,6.5]]}}"#,
        ),
        (JSON, r#"{"dataframe_split":{"data":[[1,2,3],[4,5,6.5]]},"params":{"a":1}}"#),
        (JSON, r#"{"dataframe_split":{"data":[[1,2,3],[4,5,6.5]],"columns":[0,1,2]}}"#),
        (JSON, r#"{"dataframe_records":[{"a":1,"b":2,"c":3},{"c":6.5,"a":4,"b":5}]}"#),
        (CSV, "a,b,c\n1,2,3\n4,5,6.5\n"),
        (CSV, "\u{feff}\"a\",\"b,\"\"\",c\r\n1, 2 ,3\r\n\r\n\"4\",5,6.5"),
    ];
    for (kind, body) in bodies {
        let scored = score(&matrix(), kind, body).unwrap();
        assert_eq!(scored.inputs, [("x".to_owned(), wanted.clone())], "{body}");
        assert_eq!(scored.form, Form::Frame);
    }
    for body in [
        r#"{"instances":[[1,2,3],[4,5,6.5]]}"#,
        r#"{"inputs":[[1,2,3],[4,5,6.5]]}"#,
        r#"{"inputs":{"x":[[1,2,3],[4,5,6.5]]}}"#,
        r#"{"instances":[{"x":[1,2,3]},{"x":[4,5,6.5]}]}"#,
    ] {
        let scored = score(&matrix(), JSON, body).unwrap();
        assert_eq!(scored.inputs, [("x".to_owned(), wanted.clone())], "{body}");
        assert_eq!(scored.form, Form::Tensors);
    }
}

#[test]
fn several_inputs_take_their_columns_by_name() {
    let wanted = [
        ("age".to_owned(), Tensor::of([2, 1], vec![30_i64, 41]).unwrap()),
        ("name".to_owned(), Tensor::strings([2], ["Jo", "Ann, \"A\""]).unwrap()),
        ("score".to_owned(), Tensor::of([2, 1], vec![0.5_f64, -1.0]).unwrap()),
    ];
    let bodies = [
        (
            JSON,
            r#"{"dataframe_split":{"columns":["name","more","score","age"],
            "data":[["Jo",null,0.5,30],["Ann, \"A\"",{},-1,41.0]]}}"#,
        ),
        (
            JSON,
            r#"{"dataframe_records":[{"age":30,"name":"Jo","score":0.5},
            {"name":"Ann, \"A\"","score":-1,"age":41}]}"#,
        ),
        (
            JSON,
            r#"{"instances":[{"age":30,"name":"Jo","score":0.5},
            {"name":"Ann, \"A\"","score":-1,"age":41}]}"#,
        ),
        (JSON, r#"{"inputs":{"age":[[30],[41]],"name":["Jo","Ann, \"A\""],"score":[[0.5],[-1]]}}"#),
        (CSV, "score,name,age\n0.5,Jo,30\n-1,\"Ann, \"\"A\"\"\",41\n"),
    ];
    for (kind, body) in bodies {
        assert_eq!(score(&by_column(), kind, body).unwrap().inputs, wanted, "{body}");
    }
}

#[test]
fn the_signature_puts_columns_in_order() {
    let wanted = Tensor::of([1, 3], vec![1.0_f32, 2.0, 3.0]).unwrap();
    for (kind, body) in [
        (JSON, r#"{"dataframe_split":{"columns":["c","id","b","a"],"data":[[3,"7",2,1]]}}"#),
        (JSON, r#"{"dataframe_records":[{"c":3,"a":1,"b":2}]}"#),
        (CSV, ",c,a,b\n0,3,1,2"),
    ] {
        let scored = named(&matrix(), &["a", "b", "c"], kind, body).unwrap();
        assert_eq!(scored.inputs[0].1, wanted, "{body}");
    }
    let error = named(&matrix(), &["a", "d"], CSV, "a,b\n1,2").unwrap_err();
    assert!(error.message().contains("a column \"d\""), "{error}");
}

#[test]
fn missing_numbers_are_nan_and_nothing_else_may_miss() {
    let bodies = [
        (JSON, r#"{"dataframe_split":{"columns":["a","b","c"],"data":[[1,null,NaN]]}}"#),
        (JSON, r#"{"instances":[[1,null,NaN]]}"#),
        (CSV, "a,b,c\n1,,nan"),
    ];
    for (kind, body) in bodies {
        let scored = score(&matrix(), kind, body).unwrap();
        let read = scored.inputs[0].1.get::<f32>().unwrap();
        assert!(read[0] == 1.0 && read[1].is_nan() && read[2].is_nan(), "{body}");
    }
    let two = r#"{"dataframe_records":[{"a":1,"b":2,"c":3},{"a":1}]}"#;
    assert!(score(&matrix(), JSON, two).unwrap().inputs[0].1.get::<f32>().unwrap()[5].is_nan());
    for body in ["age,name,score\n,a,1\n", "age,name,score\n1.5,a,1\n"] {
        let error = score(&by_column(), CSV, body).unwrap_err();
        assert!(error.message().contains("`columns.age[0]`"), "{error}");
    }
}

#[test]
fn bodies_that_do_not_fit_are_refused_by_their_place() {
    let cases: &[(&str, &str, &str)] = &[
        (JSON, "{}", "exactly one of"),
        (JSON, "[]", "an object"),
        (JSON, r#"{"instances":[],"inputs":[]}"#, "instances and inputs"),
        (JSON, r#"{"dataframe_split":[]}"#, "dataframe_split, an object"),
        (JSON, r#"{"dataframe_split":{"columns":["a"]}}"#, "`dataframe_split.data` is \"missing\""),
        (JSON, r#"{"dataframe_split":{"columns":["a","a","b"],"data":[]}}"#, "each column once"),
        (
            JSON,
            r#"{"dataframe_split":{"columns":["a","b","c"],"data":[[1,2]]}}"#,
            "one for each column",
        ),
        (
            JSON,
            r#"{"dataframe_split":{"columns":["a","b","c"],"data":[[1,2,"3"]]}}"#,
            "`columns.c[0]` is",
        ),
        (
            JSON,
            r#"{"dataframe_split":{"columns":["a","b","c"],"data":[[1,2,[3]]]}}"#,
            "`columns.c[0]` is",
        ),
        (JSON, r#"{"dataframe_records":{}}"#, "a list of records"),
        (JSON, r#"{"dataframe_records":[]}"#, "one record at least"),
        (
            JSON,
            r#"{"dataframe_records":[{"a":1,"b":2,"c":3},{"d":1}]}"#,
            "those of the first record",
        ),
        (JSON, r#"{"dataframe_records":[1]}"#, "a record, an object"),
        (JSON, r#"{"instances":[[1,2],[3]]}"#, "lists of different lengths"),
        (JSON, r#"{"instances":[{"y":1}]}"#, "`columns` is \"y\"; allowed: a column \"x\""),
        (JSON, r#"{"instances":[{"x":1,"y":1}]}"#, "`inputs` is \"y\"; allowed: x"),
        (JSON, r#"{"inputs":{"y":[1]}}"#, "allowed: x"),
        (JSON, r#"{"inputs":{"x":[1],"x":[1]}}"#, "each input once"),
        (JSON, r#"{"inputs":"abc"}"#, "`inputs.x.data[0]`"),
        (JSON, r#"{"instances":[1"#, "a comma or the end of the list"),
        (CSV, "", "it is empty"),
        (CSV, "a,b\n1\n", "line 2 has 1 fields, not 2"),
        (CSV, "a,b,c\n1,2,x\n", "`columns.c[0]` is \"x\""),
        (CSV, "a,b,c\n1,2,3 4\n", "`columns.c[0]` is \"3 4\""),
        (CSV, "a,b,c\n1,2,\"3", "never closed"),
        (CSV, "a,b,c\n1,2,\"3\"4\n", "text follows a quote"),
        (CSV, "a,b,a\n1,2,3\n", "each column once"),
    ];
    for (kind, body, said) in cases {
        let error = score(&matrix(), kind, body).unwrap_err();
        assert!(error.message().contains(said), "{body}: {error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{body}");
    }
    let error = score(&by_column(), JSON, r#"{"inputs":[1]}"#).unwrap_err();
    assert!(error.message().contains("an object with a list for each of age, name, score"));
    let error = score(&by_column(), CSV, "age,name\n1,a\n").unwrap_err();
    assert!(error.message().contains("a column \"score\""), "{error}");
    let uneven = r#"{"instances":[{"x":[1,2,3]},{"x":[1,2]}]}"#;
    assert!(score(&matrix(), JSON, uneven).unwrap_err().message().contains("as in the first row"));
    for kind in
        ["application/xml", "text/csv; charset=latin-1", "application/vnd.apache.parquet", ""]
    {
        assert_eq!(score(&matrix(), kind, "{}").unwrap_err().kind(), ErrorKind::UnsupportedMedia);
    }
}

#[test]
fn limits_hold_for_frames_too() {
    let limits = Limits { max_elements: 4, max_strings: 1, ..Limits::default() };
    let metadata = model(vec![info("x", DataType::F32, &[-1, 2])], Vec::new());
    let scheme = Scheme { metadata: &metadata, columns: &[] };
    let kind = |body: &'static str, media| {
        read(&Bytes::from_static(body.as_bytes()), Some(media), scheme, &limits)
            .map_err(|error| error.kind())
    };
    assert!(kind("a,b\n1,2\n3,4", "text/csv").is_ok());
    assert_eq!(kind("a,b\n1,2\n3,4\n5,6", "text/csv").unwrap_err(), ErrorKind::TooLarge);
    assert_eq!(kind(r#"{"inputs":[1,2,3,4,5]}"#, JSON).unwrap_err(), ErrorKind::TooLarge);
    let texts = model(vec![info("x", DataType::Bytes, &[-1])], Vec::new());
    let scheme = Scheme { metadata: &texts, columns: &[] };
    for (body, media) in [(r#"{"inputs":["a","b"]}"#, JSON), ("a\nx\ny", "text/csv")] {
        let error = read(&Bytes::from_static(body.as_bytes()), Some(media), scheme, &limits);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::TooLarge, "{body}");
    }
}

fn predictions(outputs: Vec<(&str, Tensor)>, metadata: &Metadata, form: Form) -> String {
    let outputs: Vec<(String, Tensor)> =
        outputs.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect();
    String::from_utf8(write(&outputs, metadata, form).unwrap()).unwrap()
}

#[test]
fn predictions_have_the_shape_of_the_question() {
    let plain = model(Vec::new(), Vec::new());
    let y = || Tensor::of([2, 1], vec![0.5_f32, f32::NAN]).unwrap();
    let label = || Tensor::strings([2], ["a", "b\""]).unwrap();
    let wide = || Tensor::of([2, 2], vec![1_i64, 2, 3, 4]).unwrap();
    let cases = [
        (vec![("y", y())], Form::Tensors, r#"{"y":[[0.5],[NaN]]}"#),
        (vec![("y", y())], Form::Frame, r#"[{"y":0.5},{"y":NaN}]"#),
        (vec![("y", y())], Form::Rows, "[[0.5],[NaN]]"),
        (
            vec![("y", y()), ("z", y())],
            Form::Rows,
            r#"[{"y":[0.5],"z":[0.5]},{"y":[NaN],"z":[NaN]}]"#,
        ),
        (
            vec![("y", y()), ("l", label())],
            Form::Frame,
            r#"[{"y":0.5,"l":"a"},{"y":NaN,"l":"b\""}]"#,
        ),
        (vec![("w", wide())], Form::Frame, r#"[{"w":1},{"w":2},{"w":3},{"w":4}]"#),
        (
            vec![("w", wide()), ("l", label())],
            Form::Tensors,
            r#"{"w":[[1,2],[3,4]],"l":["a","b\""]}"#,
        ),
        (
            vec![("w", wide()), ("l", label())],
            Form::Frame,
            r#"[{"w":[1,2],"l":"a"},{"w":[3,4],"l":"b\""}]"#,
        ),
        (vec![("s", Tensor::of([], vec![true]).unwrap())], Form::Tensors, r#"{"s":true}"#),
        (vec![("e", Tensor::of([0, 2], Vec::<u8>::new()).unwrap())], Form::Tensors, r#"{"e":[]}"#),
    ];
    for (outputs, form, wanted) in cases {
        assert_eq!(predictions(outputs, &plain, form), format!(r#"{{"predictions":{wanted}}}"#));
    }
    let uneven =
        [("a".to_owned(), wide()), ("b".to_owned(), Tensor::of([3], vec![1_u8; 3]).unwrap())];
    assert!(write(&uneven, &plain, Form::Frame).is_err());
}

#[test]
fn dictionaries_come_back_as_dictionaries() {
    let output = labelled(info("p", DataType::F32, &[-1, 2]), Labels::Ints(vec![0, 7]));
    let metadata = model(Vec::new(), vec![output]);
    let p = || Tensor::of([2, 2], vec![0.25_f32, 0.75, 1.0, 0.0]).unwrap();
    let l = || Tensor::of([2], vec![7_i64, 0]).unwrap();
    assert_eq!(
        predictions(vec![("l", l()), ("p", p())], &metadata, Form::Frame),
        r#"{"predictions":[{"l":7,"p":{"0":0.25,"7":0.75}},{"l":0,"p":{"0":1.0,"7":0.0}}]}"#
    );
    assert_eq!(
        predictions(vec![("p", p())], &metadata, Form::Tensors),
        r#"{"predictions":{"p":[{"0":0.25,"7":0.75},{"0":1.0,"7":0.0}]}}"#
    );
}

#[test]
fn half_floats_are_written_as_the_numbers_they_are() {
    use falaj_inference::Data;
    let plain = model(Vec::new(), Vec::new());
    let bits = vec![0x3C00, 0xC000, 0x0001, 0x7BFF, 0x7C00, 0xFE00, 0x8000];
    let half = Tensor::new(vec![7], Data::F16(bits)).unwrap();
    assert_eq!(
        predictions(vec![("h", half)], &plain, Form::Tensors),
        r#"{"predictions":{"h":[1.0,-2.0,5.9604645e-8,65504.0,Infinity,NaN,-0.0]}}"#
    );
    let brain = Tensor::new(vec![2], Data::Bf16(vec![0x3FC0, 0xFF80])).unwrap();
    assert_eq!(
        predictions(vec![("b", brain)], &plain, Form::Tensors),
        r#"{"predictions":{"b":[1.5,-Infinity]}}"#
    );
}

proptest! {
    #[test]
    fn any_csv_is_read_or_refused(text in "[a-b,\"\r\n0-1]{0,40}") {
        let _ = score(&matrix(), CSV, &text);
        let _ = score(&by_column(), CSV, &text);
    }

    #[test]
    fn numbers_come_through_a_frame_as_they_were(rows in prop::collection::vec([any::<f32>(), any::<f32>(), any::<f32>()], 0..5)) {
        prop_assume!(rows.iter().flatten().all(|number| number.is_finite()));
        let lines: Vec<String> = rows.iter().map(|[a, b, c]| format!("{a:e},{b},{c}")).collect();
        let scored = score(&matrix(), CSV, &format!("a,b,c\n{}", lines.join("\n"))).unwrap();
        let flat: Vec<f32> = rows.iter().flatten().copied().collect();
        prop_assert_eq!(scored.inputs[0].1.get::<f32>().unwrap(), flat);
        let split = serde_json::json!({"dataframe_split": {"data": rows}}).to_string();
        let scored = score(&matrix(), JSON, &split);
        prop_assert!(rows.is_empty() || scored.unwrap().inputs[0].1.shape() == [rows.len(), 3]);
    }
}
