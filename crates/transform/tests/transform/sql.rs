//! What expressions are, and what they come to, by name.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use falaj_base::Error;
use falaj_transform::Type;
use falaj_transform::sql::Projection;

/// 2026-05-01T13:14:15.5Z.
const AT: i64 = 1_777_641_255_500_000;

pub(crate) const COLUMNS: [(&str, Type); 8] = [
    ("a", Type::Int64),
    ("b", Type::Int64),
    ("n", Type::Int32),
    ("x", Type::Float64),
    ("s", Type::Text),
    ("p", Type::Bool),
    ("at", Type::Time),
    ("tags", Type::Other),
];

fn rows() -> RecordBatch {
    let times = TimestampMicrosecondArray::from(vec![Some(AT), None, Some(0)]);
    RecordBatch::try_from_iter_with_nullable([
        ("a", Arc::new(Int64Array::from(vec![Some(7), None, Some(-2)])) as ArrayRef, true),
        ("b", Arc::new(Int64Array::from(vec![Some(0), Some(5), Some(i64::MAX)])), true),
        ("n", Arc::new(Int32Array::from(vec![Some(1), Some(2), None])), true),
        ("x", Arc::new(Float64Array::from(vec![Some(2.5), None, Some(-1.0)])), true),
        ("s", Arc::new(StringArray::from(vec![Some(" Öl "), None, Some("abcabc")])), true),
        ("p", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])), true),
        ("at", Arc::new(times.with_timezone("UTC")), true),
        ("tags", Arc::new(StringArray::from(vec![Some("t"), None, None])), true),
    ])
    .unwrap()
}

pub(crate) fn read(sql: &str) -> Result<Projection, Error> {
    Projection::new(sql, &COLUMNS, &["source", "trips"])
}

/// The values of one expression, as text.
fn values(expression: &str) -> Vec<String> {
    let projection = read(&format!("SELECT {expression} AS v FROM source")).unwrap();
    let ran = projection.run_batch(&rows()).unwrap();
    shown(&ran.columns[0])
}

fn shown(column: &ArrayRef) -> Vec<String> {
    let one = |row: usize| {
        if column.is_null(row) {
            return "null".to_owned();
        }
        match column.data_type() {
            arrow_schema::DataType::Boolean => column.as_boolean().value(row).to_string(),
            arrow_schema::DataType::Int32 => {
                column.as_primitive::<Int32Type>().value(row).to_string()
            }
            arrow_schema::DataType::Int64 => {
                column.as_primitive::<Int64Type>().value(row).to_string()
            }
            arrow_schema::DataType::Float64 => {
                format!("{:?}", column.as_primitive::<Float64Type>().value(row))
            }
            arrow_schema::DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
            arrow_schema::DataType::Timestamp(..) => {
                column.as_primitive::<TimestampMicrosecondType>().value(row).to_string()
            }
            other => panic!("{other}"),
        }
    };
    (0..column.len()).map(one).collect()
}

#[test]
fn expressions_come_to_what_they_say() {
    let table: &[(&str, [&str; 3])] = &[
        // Numbers: a share of two counts is a float, and there is none by zero.
        ("a + 1", ["8", "null", "-1"]),
        ("a * x", ["17.5", "null", "2.0"]),
        ("a / 2", ["3.5", "null", "-1.0"]),
        ("a // 2", ["3", "null", "-1"]),
        ("7 / b", ["null", "1.4", "7.589415207398531e-19"]),
        ("7 // b", ["null", "1", "0"]),
        ("a % 3", ["1", "null", "-2"]),
        ("x % 0.0", ["null", "null", "null"]),
        ("-a", ["-7", "null", "2"]),
        ("abs(a) + n", ["8", "null", "null"]),
        ("round(x)", ["3.0", "null", "-1.0"]),
        ("round(x / 3, 2)", ["0.83", "null", "-0.33"]),
        ("round(1234.5, -2)", ["1200.0", "1200.0", "1200.0"]),
        ("floor(x)", ["2.0", "null", "-1.0"]),
        ("ceil(x)", ["3.0", "null", "-1.0"]),
        ("sqrt(x)", ["1.5811388300841898", "null", "null"]),
        ("ln(x)", ["0.9162907318741551", "null", "null"]),
        ("log10(a + 3)", ["1.0", "null", "0.0"]),
        ("power(a, 2)", ["49.0", "null", "4.0"]),
        ("power(x, 0.5)", ["1.5811388300841898", "null", "null"]),
        ("exp(0)", ["1.0", "1.0", "1.0"]),
        ("sign(x)", ["1", "null", "-1"]),
        ("greatest(a, n)", ["7", "2", "-2"]),
        ("least(a, x)", ["2.5", "null", "-2.0"]),
        // Logic with nulls.
        ("p AND a > 100", ["false", "null", "false"]),
        ("p OR a > 100", ["true", "null", "false"]),
        ("NOT p", ["false", "null", "true"]),
        ("p IS NULL", ["false", "true", "false"]),
        ("p IS NOT TRUE", ["false", "true", "true"]),
        ("a = NULL", ["null", "null", "null"]),
        ("a IS DISTINCT FROM n", ["true", "true", "true"]),
        ("a IN (7, NULL)", ["true", "null", "null"]),
        ("a NOT IN (1, 2)", ["true", "null", "true"]),
        ("a BETWEEN -5 AND 0", ["false", "null", "true"]),
        ("coalesce(a, n, 0)", ["7", "2", "-2"]),
        ("nullif(a, 7)", ["null", "null", "-2"]),
        ("CASE WHEN a > 0 THEN 'up' WHEN a < 0 THEN 'down' END", ["up", "null", "down"]),
        ("CASE a WHEN 7 THEN 1 ELSE 0 END", ["1", "0", "0"]),
        // An arm that would not fit is not computed where it is not chosen.
        ("CASE WHEN b < 100 THEN b + 1 ELSE 0 END", ["1", "6", "0"]),
        ("b < 100 AND b + 1 > 3", ["false", "true", "false"]),
        ("coalesce(CAST(0 AS BIGINT), b + 1)", ["0", "0", "0"]),
        // Texts.
        ("lower(s)", [" öl ", "null", "abcabc"]),
        ("upper(trim(s))", ["ÖL", "null", "ABCABC"]),
        ("length(s)", ["4", "null", "6"]),
        ("substr(s, 2, 2)", ["Öl", "null", "bc"]),
        ("substr(s, -2)", ["l ", "null", "bc"]),
        ("s || '!'", [" Öl !", "null", "abcabc!"]),
        ("concat(s, '!')", [" Öl !", "!", "abcabc!"]),
        ("replace(s, 'bc', '')", [" Öl ", "null", "aa"]),
        ("starts_with(s, 'ab')", ["false", "null", "true"]),
        ("s LIKE '%bc'", ["false", "null", "true"]),
        ("s NOT LIKE '_bc%'", ["true", "null", "false"]),
        ("s ILIKE 'ABC%'", ["false", "null", "true"]),
        // From one type to another.
        ("CAST(x AS BIGINT)", ["2", "null", "-1"]),
        ("CAST(a AS VARCHAR)", ["7", "null", "-2"]),
        ("CAST(x AS VARCHAR)", ["2.5", "null", "-1.0"]),
        ("TRY_CAST(s AS DOUBLE)", ["null", "null", "null"]),
        ("CAST('1e3' AS DOUBLE)", ["1000.0", "1000.0", "1000.0"]),
        ("CAST(p AS BIGINT)", ["1", "null", "0"]),
        // Times.
        ("date_part('hour', at)", ["13", "null", "0"]),
        ("EXTRACT(dow FROM at)", ["5", "null", "4"]),
        (
            "CAST(date_trunc('month', at) AS VARCHAR)",
            ["2026-05-01T00:00:00Z", "null", "1970-01-01T00:00:00Z"],
        ),
        ("date_diff('day', TIMESTAMP '2026-04-30 23:00:00', at)", ["1", "null", "-20573"]),
        ("seconds_between(to_timestamp(0), at)", ["1777641255.5", "null", "0.0"]),
        ("at > to_timestamp('2026-01-01')", ["true", "null", "false"]),
        ("hash_bucket(s, 10)", ["4", "null", "6"]),
    ];
    for (expression, expected) in table {
        assert_eq!(values(expression), expected, "{expression}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_types() {
    let table = [
        ("SELECT a + s AS v FROM source", "int64 and string"),
        ("SELECT a = s AS v FROM source", "int64 and string"),
        ("SELECT nothing AS v FROM source", "a, b, n"),
        ("SELECT upper(a) AS v FROM source", "one string"),
        ("SELECT a AND p AS v FROM source", "a condition"),
        ("SELECT CASE WHEN p THEN a ELSE s END AS v FROM source", "int64, string"),
        ("SELECT CAST(at AS DOUBLE) AS v FROM source", "from timestamp to float64"),
        ("SELECT at - at AS v FROM source", "seconds_between"),
        ("SELECT tags || 's' AS v FROM source", "strings"),
        ("SELECT NULL AS v FROM source", "CAST(NULL AS"),
        ("SELECT a + 1 FROM source", "AS name"),
        ("SELECT a AS v, b AS v FROM source", "each name once"),
        ("SELECT * FROM source", "by its name"),
        ("SELECT a FROM elsewhere", "FROM source or FROM trips"),
        ("SELECT 9223372036854775808 AS v FROM source", "int64"),
        ("SELECT a FROM source WHERE a", "a condition"),
        ("SELECT s LIKE s AS v FROM source", "written out"),
        ("SELECT date_trunc('dow', at) AS v FROM source", "a unit in quotes"),
    ];
    for (sql, says) in table {
        let error = read(sql).unwrap_err();
        assert!(error.message().contains(says), "{sql}: {}", error.message());
        assert_eq!(error.field(), Some("sql"), "{sql}");
    }
}

#[test]
fn what_does_not_fit_is_named_by_its_row() {
    let table = [
        ("b + 1", "row 2: 9223372036854775807 + 1"),
        ("b * 2", "row 2"),
        ("-(b) - 2", "row 2"),
        ("CAST(s AS BIGINT)", "row 0"),
        ("CAST(x * 1e300 AS BIGINT)", "row 0"),
        ("to_timestamp(x * 1e300)", "row 0"),
    ];
    for (expression, says) in table {
        let projection = read(&format!("SELECT {expression} AS v FROM source")).unwrap();
        let error = projection.run_batch(&rows()).unwrap_err();
        assert!(error.message().contains(says), "{expression}: {}", error.message());
        assert!(error.message().contains('`'), "{}", error.message());
    }
    // Rows that are left out cannot fail, and those that stay keep their number.
    let projection = read("SELECT b + 1 AS v FROM source WHERE a > 0").unwrap();
    let ran = projection.run_batch(&rows()).unwrap();
    assert_eq!(shown(&ran.columns[0]), ["1"]);
    assert_eq!(ran.kept.unwrap().values().to_vec(), [0]);
    let projection = read("SELECT b + 1 AS v FROM source WHERE a < 0").unwrap();
    assert!(projection.run_batch(&rows()).unwrap_err().message().contains("row 2"));
}

#[test]
fn types_are_told_and_can_be_narrowed() {
    let mut projection =
        read("SELECT n, x AS y, tags, a + 1 AS c, trips.s FROM trips WHERE p IS NOT NULL").unwrap();
    let told: Vec<_> = projection.outputs().map(|it| (it.name, it.kind, it.column)).collect();
    let expected = [
        ("n", Type::Int32, Some(2)),
        ("y", Type::Float64, Some(3)),
        ("tags", Type::Other, Some(7)),
        ("c", Type::Int64, None),
        ("s", Type::Text, Some(4)),
    ];
    let expected: Vec<_> = expected.map(|(name, of, at)| (name.to_owned(), of, at)).into();
    assert_eq!(told, expected);
    assert!(projection.filters());
    projection.declare("c", Type::Int32).unwrap();
    projection.declare("y", Type::Float32).unwrap();
    for (name, kind) in [("c", Type::Text), ("none", Type::Int64), ("tags", Type::Bytes)] {
        assert!(projection.declare(name, kind).is_err(), "{name}");
    }
    let ran = projection.run_batch(&rows()).unwrap();
    assert_eq!(shown(&ran.columns[3]), ["8", "-1"]);
    let mut large = read("SELECT b AS c FROM source").unwrap();
    large.declare("c", Type::Int32).unwrap();
    let error = large.run_batch(&rows()).unwrap_err();
    assert!(error.message().contains("row 2"), "{}", error.message());
}
