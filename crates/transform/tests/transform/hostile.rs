//! Texts that are meant to hurt: refused, and quickly.

use falaj_transform::sql::{MAX_BYTES, MAX_TOKENS};

use super::sql::read;

#[test]
fn what_is_too_long_or_too_deep_is_refused() {
    let chain = |times: usize| format!("SELECT a{} AS v FROM source", " + a".repeat(times));
    let nested = |times: usize| {
        format!("SELECT {}a{} AS v FROM source", "(".repeat(times), ")".repeat(times))
    };
    let not = |times: usize| format!("SELECT {} p AS v FROM source", "NOT ".repeat(times));
    let minus = |times: usize| format!("SELECT {} a AS v FROM source", "- ".repeat(times));
    let case = |times: usize| {
        let open = "CASE WHEN p THEN ".repeat(times);
        format!("SELECT {open} a {} AS v FROM source", "END ".repeat(times))
    };
    for good in [chain(100), nested(5), not(5), case(5), minus(5)] {
        read(&good).unwrap();
    }
    for bad in [
        chain(900),
        chain(100_000),
        nested(1000),
        nested(7000),
        not(1000),
        not(4000),
        minus(1500),
        case(300),
        format!("SELECT '{}' AS v FROM source", "x".repeat(MAX_BYTES)),
        format!("SELECT a IN ({}1) AS v FROM source", "1,".repeat(MAX_TOKENS)),
        format!("SELECT {}a{} AS v FROM source", "abs(".repeat(200), ")".repeat(200)),
    ] {
        let error = read(&bad).unwrap_err();
        assert!(error.message().len() < 1000, "{}", error.message());
    }
}

#[test]
fn nothing_but_the_shape_is_taken() {
    for bad in [
        "",
        ";",
        "SELECT",
        "DELETE FROM source",
        "SELECT a AS v FROM source; DROP TABLE x",
        "SELECT a AS v FROM source -- x\n; SELECT 1 AS v",
        "SELECT a AS v FROM source, source",
        "SELECT a AS v FROM source JOIN source ON TRUE",
        "SELECT a AS v FROM (SELECT a FROM source)",
        "SELECT a AS v FROM source ORDER BY a",
        "SELECT a AS v FROM source LIMIT 1",
        "SELECT DISTINCT a AS v FROM source",
        "SELECT a AS v FROM source GROUP BY a",
        "SELECT a AS v FROM source UNION SELECT a FROM source",
        "WITH t AS (SELECT 1) SELECT a AS v FROM source",
        "SELECT (SELECT a FROM source) AS v FROM source",
        "SELECT a IN (SELECT a FROM source) AS v FROM source",
        "SELECT EXISTS (SELECT 1) AS v FROM source",
        "SELECT sum(a) AS v FROM source",
        "SELECT count(*) AS v FROM source",
        "SELECT abs(a) OVER () AS v FROM source",
        "SELECT now() AS v FROM source",
        "SELECT current_timestamp AS v FROM source",
        "SELECT random() AS v FROM source",
        "SELECT read_csv('/etc/passwd') AS v FROM source",
        "SELECT $1 AS v FROM source",
        "SELECT a[1] AS v FROM source",
        "SELECT a AS v INTO x FROM source",
        "SELECT a AS v FROM '/etc/passwd'",
        "SELECT a AS v FROM source QUALIFY a > 1",
        "SELECT a AS v FROM source FOR UPDATE",
        "SELECT a AS v FROM source AS other",
        "\0",
        "SELECT 'a",
        "SELECT \u{202e}a FROM source",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn texts_do_not_grow_without_end() {
    let grow = "replace(".repeat(8) + "s" + &", 'a', 'aaaaaaaaaaaaaaaaaaaa')".repeat(8);
    let projection = read(&format!("SELECT {grow} AS v FROM source")).unwrap();
    let column: arrow_array::ArrayRef =
        std::sync::Arc::new(arrow_array::StringArray::from(vec!["aaaa"]));
    let error = projection.run(|_| Ok(column.clone()), 1).unwrap_err();
    assert!(error.message().contains("are allowed"), "{}", error.message());
}

#[test]
fn texts_are_bounded_over_all_columns_of_a_batch() {
    let column: arrow_array::ArrayRef =
        std::sync::Arc::new(arrow_array::StringArray::from(vec!["x".repeat(1 << 20); 4]));
    let run = |item: &str, count: usize| {
        let items: Vec<_> = (0..count).map(|place| format!("{item} AS v{place}")).collect();
        let projection = read(&format!("SELECT {} FROM source", items.join(", "))).unwrap();
        projection.run(|_| Ok(column.clone()), 4)
    };
    // Each column is small, and all of them together are not.
    run("upper(s)", 50).unwrap();
    let error = run("upper(s)", 100).unwrap_err();
    assert!(error.message().contains("batch of rows"), "{}", error.message());
    assert!(run("CASE WHEN s = '' THEN s ELSE lower(s) END", 100).is_err());
    // What is only computed with is let go.
    run("length(upper(lower(s)))", 100).unwrap();
    // A literal is as long as there are rows.
    let literal = format!("SELECT '{}' AS v FROM source", "y".repeat(8000));
    assert!(read(&literal).unwrap().run(|_| Ok(column.clone()), 100_000).is_err());
}
