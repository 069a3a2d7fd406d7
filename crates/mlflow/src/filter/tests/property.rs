//! Trees printed and read back; and anything at all, read without harm.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn key() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_./ \\-é'\"]{1,12}".prop_filter("quotes at both ends are taken off", |key| {
        !(key.len() > 1 && key.starts_with(['\'', '"']) && key.ends_with(['\'', '"']))
    })
}

fn text() -> impl Strategy<Value = String> {
    "[a-z0-9 %_(),;.=é`\u{0}-]{0,12}|[a-z']{0,5}"
        .prop_filter("a doubled or last quote ends a text early", |text| {
            !text.contains("''") && !text.ends_with('\\')
        })
}

fn number() -> impl Strategy<Value = Test> {
    let op = select(vec![Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge]);
    let value = any::<f64>().prop_filter("written as a number", |value| value.is_finite());
    (op, value).prop_map(|(op, value)| Test::Number(op, value))
}

fn textual() -> impl Strategy<Value = Test> {
    prop_oneof![
        (text(), any::<bool>()).prop_map(|(value, negated)| Test::Text { value, negated }),
        (text(), any::<bool>(), any::<bool>()).prop_map(|(pattern, case_insensitive, negated)| {
            let like = Like::new(&pattern, case_insensitive).expect("a short pattern");
            Test::Like { like, negated }
        }),
    ]
}

fn listed() -> impl Strategy<Value = Test> {
    (vec("[a-z0-9]{0,5}", 1..5), any::<bool>()).prop_map(|(mut values, negated)| {
        values.sort_unstable();
        values.dedup();
        Test::In { values, negated }
    })
}

fn comparison() -> impl Strategy<Value = Expr> {
    let aggregate = select(vec![Aggregate::Latest, Aggregate::Min, Aggregate::Max]);
    let metric = (key(), aggregate).prop_map(|(key, aggregate)| Field::Metric { key, aggregate });
    let unsure = "[a-z_]{1,5}\\.(min|max)"
        .prop_map(|key| Field::Metric { key, aggregate: Aggregate::Undecided });
    let null = any::<bool>().prop_map(|negated| Test::Null { negated });
    let keyed = prop_oneof![key().prop_map(Field::Param), key().prop_map(Field::Tag)];
    let dataset = select(vec![DatasetPart::Name, DatasetPart::Digest, DatasetPart::Context]);
    prop_oneof![
        (prop_oneof![metric, unsure], number()),
        (keyed, prop_oneof![textual(), textual(), null]),
        (Just(Field::Attribute("run_id")), prop_oneof![textual(), listed()]),
        (Just(Field::Attribute("end_time")), number()),
        (dataset.prop_map(Field::Dataset), prop_oneof![textual(), listed()]),
    ]
    .prop_map(|(field, test)| Expr::Is(Comparison { field, test }))
}

fn tree() -> impl Strategy<Value = Expr> {
    comparison().prop_recursive(6, 40, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 2..4).prop_map(Expr::And),
            vec(inner.clone(), 2..4).prop_map(Expr::Or),
            inner.prop_map(|inner| Expr::Not(Box::new(inner))),
        ]
    })
}

const SCHEMAS: [&Schema; 6] =
    [&RUNS, &EXPERIMENTS, &REGISTERED_MODELS, &MODEL_VERSIONS, &LOGGED_MODELS, &TRACES];

/// Reads it as everything. An error must be the caller's and bounded.
fn read_everywhere(text: &str) {
    for schema in SCHEMAS {
        let order = parse_order(&[text.to_owned()], schema).err();
        for error in parse(text, schema).err().into_iter().chain(order) {
            assert_eq!(error.kind(), falaj_base::ErrorKind::InvalidInput);
            assert!(error.message().len() < 4096);
        }
    }
    drop(logged_model_order(text, true));
}

proptest! {
    #[test]
    fn a_tree_reads_back_as_itself(expr in tree()) {
        let text = print::expr(&expr);
        let again = parse(&text, &RUNS).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert_eq!(again, Some(expr), "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}|[\\x00-\\x7f]{0,60}") {
        read_everywhere(&text);
    }

    #[test]
    fn anything_like_a_filter_is_read_or_refused(words in vec(select(vec![
        "metrics.a", "params.`b c`", "tags.\"d\"", "attribute.status", "run_id", "span.name", "name",
        "feedback.x", "issue.id", "prompt", "timestamp", "=", "!=", "<", ">=", "~", "LIKE", "ILIKE",
        "RLIKE", "IN", "NOT", "IS", "NULL", "AND", "OR", "(", ")", ",", ";", "'x'", "\"y\"", "1",
        "-2.5e3", "'", "`", "\"", ".", "\\", "a-b", "DESC", "é", "\0",
    ]), 0..20), gap in select(vec!["", " "])) {
        read_everywhere(&words.join(gap));
    }
}
