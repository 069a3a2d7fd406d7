//! Random expressions over random rows: SQLite says the same, where both mean the same.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::DataType;
use falaj_transform::Type;
use falaj_transform::sql::Projection;
use proptest::prelude::*;
use rusqlite::Connection;
use rusqlite::types::Value;

/// An expression as we write it, and as SQLite does.
#[derive(Clone, Debug)]
struct Both(String, String);

fn same(text: impl Into<String>) -> Both {
    let text = text.into();
    Both(text.clone(), text)
}

fn put(shape: &str, parts: &[&Both]) -> Both {
    let fill = |of: fn(&Both) -> &String| {
        let (mut text, mut parts) = (String::new(), parts.iter());
        for char in shape.chars() {
            match char {
                '?' => text.push_str(of(parts.next().unwrap())),
                char => text.push(char),
            }
        }
        text
    };
    Both(fill(|both| &both.0), fill(|both| &both.1))
}

type Of = BoxedStrategy<Both>;

fn two(of: &Of, other: &Of, shape: &'static str) -> Of {
    (of.clone(), other.clone()).prop_map(move |(a, b)| put(shape, &[&a, &b])).boxed()
}

fn one(of: &Of, shape: &'static str) -> Of {
    of.clone().prop_map(move |a| put(shape, &[&a])).boxed()
}

struct Kinds {
    ints: Of,
    floats: Of,
    texts: Of,
    truths: Of,
}

fn leaves() -> Kinds {
    let int = prop_oneof![
        Just(same("a")),
        Just(same("b")),
        (-9_i64..10).prop_map(|it| same(format!("({it})"))),
    ];
    let float = prop_oneof![
        Just(same("x")),
        Just(same("y")),
        (-40_i32..40).prop_map(|it| same(format!("({:?})", f64::from(it) / 8.0))),
    ];
    let text = prop_oneof![
        Just(same("s")),
        Just(same("t")),
        "[ab %_]{0,3}".prop_map(|it| same(format!("'{it}'"))),
    ];
    let truth = prop_oneof![
        Just(same("(a > 0)")),
        Just(same("(x <= 1.5)")),
        Just(same("(s IS NULL)")),
        Just(Both("CAST(NULL AS BOOLEAN)".into(), "NULL".into())),
    ];
    Kinds { ints: int.boxed(), floats: float.boxed(), texts: text.boxed(), truths: truth.boxed() }
}

fn grown(from: &Kinds) -> Kinds {
    let Kinds { ints, floats, texts, truths } = from;
    let case = |of: &Of| -> Of {
        (truths.clone(), of.clone(), truths.clone(), of.clone(), of.clone())
            .prop_map(|(p, a, q, b, c)| {
                put("CASE WHEN ? THEN ? WHEN ? THEN ? ELSE ? END", &[&p, &a, &q, &b, &c])
            })
            .boxed()
    };
    let of = |of: &Of| -> Of {
        (of.clone(), of.clone(), of.clone())
            .prop_map(|(a, b, c)| {
                put("CASE ? WHEN ? THEN 1 ELSE 0 END = 1 OR ? IS NULL", &[&a, &b, &c])
            })
            .boxed()
    };
    let compare = |of: &Of| -> Of {
        let sign = prop::sample::select(vec!["=", "<>", "<", "<=", ">", ">="]);
        (of.clone(), sign, of.clone())
            .prop_map(|(a, sign, b)| put(&format!("(? {sign} ?)"), &[&a, &b]))
            .boxed()
    };
    let whole = (ints.clone(), ints.clone())
        .prop_map(|(Both(a, c), Both(b, d))| Both(format!("({a} // {b})"), format!("({c} / {d})")));
    let share = (ints.clone(), ints.clone()).prop_map(|(Both(a, c), Both(b, d))| {
        Both(format!("({a} / {b})"), format!("(CAST({c} AS REAL) / {d})"))
    });
    let cut = floats.clone().prop_map(|Both(a, b)| {
        Both(format!("CAST({a} AS BIGINT)"), format!("CAST({b} AS INTEGER)"))
    });
    let wide = ints
        .clone()
        .prop_map(|Both(a, b)| Both(format!("CAST({a} AS DOUBLE)"), format!("CAST({b} AS REAL)")));
    let written = ints
        .clone()
        .prop_map(|Both(a, b)| Both(format!("CAST({a} AS VARCHAR)"), format!("CAST({b} AS TEXT)")));
    let part = (texts.clone(), -3_i64..5, 0_i64..4)
        .prop_map(|(text, from, length)| put(&format!("substr(?, {from}, {length})"), &[&text]));
    let like = (texts.clone(), "[ab_%]{0,4}")
        .prop_map(|(text, pattern)| put(&format!("(? LIKE '{pattern}')"), &[&text]));
    let among = (ints.clone(), ints.clone(), ints.clone())
        .prop_map(|(a, b, c)| put("(? NOT IN (?, ?, 3))", &[&a, &b, &c]));
    let between = (floats.clone(), floats.clone(), floats.clone())
        .prop_map(|(a, b, c)| put("(? BETWEEN ? AND ?)", &[&a, &b, &c]));
    Kinds {
        ints: prop_oneof![
            two(ints, ints, "(? + ?)"),
            two(ints, ints, "(? - ?)"),
            two(ints, ints, "(? * ?)"),
            two(ints, ints, "(? % ?)"),
            one(ints, "(-?)"),
            one(ints, "abs(?)"),
            two(ints, ints, "coalesce(?, ?)"),
            two(ints, ints, "nullif(?, ?)"),
            one(texts, "length(?)"),
            whole,
            cut,
            case(ints),
        ]
        .boxed(),
        floats: prop_oneof![
            two(floats, floats, "(? + ?)"),
            two(floats, floats, "(? - ?)"),
            two(floats, floats, "(? * ?)"),
            two(floats, floats, "(? / ?)"),
            two(floats, ints, "(? * ?)"),
            one(floats, "abs(?)"),
            two(floats, floats, "coalesce(?, ?)"),
            two(floats, floats, "nullif(?, ?)"),
            share,
            wide,
            case(floats),
        ]
        .boxed(),
        texts: prop_oneof![
            two(texts, texts, "(? || ?)"),
            one(texts, "lower(?)"),
            one(texts, "upper(?)"),
            one(texts, "trim(?)"),
            one(texts, "replace(?, 'a', 'bb')"),
            two(texts, texts, "coalesce(?, ?)"),
            part,
            written,
            case(texts),
        ]
        .boxed(),
        truths: prop_oneof![
            compare(ints),
            compare(floats),
            compare(texts),
            two(truths, truths, "(? AND ?)"),
            two(truths, truths, "(? OR ?)"),
            one(truths, "(NOT ?)"),
            one(ints, "(? IS NOT NULL)"),
            two(ints, ints, "(? IS DISTINCT FROM ?)"),
            of(texts),
            like,
            among,
            between,
        ]
        .boxed(),
    }
}

fn expressions() -> Of {
    let mut kinds = leaves();
    for _ in 0..3 {
        let more = grown(&kinds);
        let mixed = |less: &Of, more: Of| prop_oneof![1 => less.clone(), 3 => more].boxed();
        kinds = Kinds {
            ints: mixed(&kinds.ints, more.ints),
            floats: mixed(&kinds.floats, more.floats),
            texts: mixed(&kinds.texts, more.texts),
            truths: mixed(&kinds.truths, more.truths),
        };
    }
    prop_oneof![kinds.ints, kinds.floats, kinds.texts, kinds.truths].boxed()
}

type Row = (Option<i64>, Option<i64>, Option<f64>, Option<f64>, Option<String>, Option<String>);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let int = || prop::option::weighted(0.8, -20_i64..20);
    let float = || prop::option::weighted(0.8, (-200_i32..200).prop_map(|it| f64::from(it) / 16.0));
    let text = || prop::option::weighted(0.8, "[abAB %_.]{0,5}");
    prop::collection::vec((int(), int(), float(), float(), text(), text()), 1..8)
}

fn ours(sql: &str, rows: &[Row]) -> Result<ArrayRef, falaj_base::Error> {
    let columns = [
        ("a", Type::Int64),
        ("b", Type::Int64),
        ("x", Type::Float64),
        ("y", Type::Float64),
        ("s", Type::Text),
        ("t", Type::Text),
    ];
    let projection =
        Projection::new(&format!("SELECT {sql} AS v FROM source"), &columns, &["source"]);
    let text = |of: fn(&Row) -> Option<&str>| -> ArrayRef {
        Arc::new(rows.iter().map(|row| of(row)).collect::<StringArray>())
    };
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("a", Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>()) as ArrayRef, true),
        ("b", Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>()), true),
        ("x", Arc::new(rows.iter().map(|row| row.2).collect::<Float64Array>()), true),
        ("y", Arc::new(rows.iter().map(|row| row.3).collect::<Float64Array>()), true),
        ("s", text(|row| row.4.as_deref()), true),
        ("t", text(|row| row.5.as_deref()), true),
    ]);
    Ok(projection?.run_batch(&batch.unwrap())?.columns.remove(0))
}

fn theirs(sql: &str, rows: &[Row]) -> Vec<Value> {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(
        "PRAGMA case_sensitive_like = ON; CREATE TABLE source (a INTEGER, b INTEGER, x REAL, y REAL, \
         s TEXT, t TEXT)",
    )
    .unwrap();
    for (a, b, x, y, s, t) in rows {
        let values = rusqlite::params![a, b, x, y, s, t];
        db.execute("INSERT INTO source VALUES (?, ?, ?, ?, ?, ?)", values).unwrap();
    }
    let mut asked = db.prepare(&format!("SELECT {sql} FROM source ORDER BY rowid")).unwrap();
    let found = asked.query_map([], |row| row.get(0)).unwrap();
    found.collect::<Result<_, _>>().unwrap()
}

/// Whether a value of ours is one of theirs, which has no booleans.
fn alike(column: &ArrayRef, row: usize, theirs: &Value) -> bool {
    if column.is_null(row) {
        return *theirs == Value::Null;
    }
    match (column.data_type(), theirs) {
        (DataType::Boolean, Value::Integer(truth)) => {
            i64::from(column.as_boolean().value(row)) == *truth
        }
        (DataType::Int64, Value::Integer(number)) => {
            column.as_primitive::<Int64Type>().value(row) == *number
        }
        (DataType::Float64, Value::Real(number)) => {
            column.as_primitive::<Float64Type>().value(row) == *number
        }
        (DataType::Utf8, Value::Text(text)) => column.as_string::<i32>().value(row) == text,
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_says_the_same(Both(our, their) in expressions(), rows in rows()) {
        let found = match ours(&our, &rows) {
            Ok(found) => found,
            // Where we refuse, SQLite goes on with floats.
            Err(error) if error.message().contains("does not fit") => return Ok(()),
            // A number that no int64 tells, which SQLite cuts to the last one.
            Err(error) if error.message().contains("is no int64") => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(format!("{our}: {}", error.message()))),
        };
        let expected = theirs(&their, &rows);
        for (row, expected) in expected.iter().enumerate() {
            prop_assert!(
                alike(&found, row, expected),
                "{} in row {}: {:?} and {:?}", our, row, found, expected
            );
        }
    }
}
