//! Which rows match.

use std::borrow::Cow;
use std::collections::HashMap;

use super::*;

/// Fields by their printed form.
#[derive(Default)]
struct Thing {
    texts: HashMap<&'static str, Vec<&'static str>>,
    numbers: HashMap<&'static str, f64>,
    spans: Vec<Thing>,
}

impl Thing {
    fn text(mut self, field: &'static str, value: &'static str) -> Self {
        self.texts.entry(field).or_default().push(value);
        self
    }

    fn number(mut self, field: &'static str, value: f64) -> Self {
        self.numbers.insert(field, value);
        self
    }

    fn span(mut self, span: Self) -> Self {
        self.spans.push(span);
        self
    }
}

impl Row for Thing {
    fn number(&self, field: &Field) -> Option<f64> {
        self.numbers.get(print::field(field).as_str()).copied()
    }

    fn text(&self, field: &Field) -> Option<Cow<'_, str>> {
        let values = self.texts.get(print::field(field).as_str())?;
        values.first().map(|value| (*value).into())
    }

    fn any_text(&self, field: &Field, accept: &mut dyn FnMut(&str) -> bool) -> bool {
        let values = self.texts.get(print::field(field).as_str());
        values.is_some_and(|values| values.iter().any(|value| accept(value)))
    }

    fn any_span(&self, accept: &mut dyn FnMut(&dyn Row) -> bool) -> bool {
        self.spans.iter().any(|span| accept(span))
    }
}

fn check_matches(row: &Thing, schema: &Schema, cases: &[(&str, bool)]) {
    for (text, expected) in cases {
        let expr = parse(text, schema).expect("a filter").expect("not empty");
        assert_eq!(expr.matches(row), *expected, "{text}");
    }
}

#[test]
fn a_comparison_is_true_only_of_what_is_there() {
    let run = Thing::default()
        .number("metrics.`key1`", 123.0)
        .number("metrics.`nan`", f64::NAN)
        .text("params.`p`", "Abc")
        .text("status", "FAILED")
        .text("dataset.name", "d1")
        .text("dataset.name", "d2");
    check_matches(
        &run,
        &RUNS,
        &[
            ("metrics.key1 = 123", true),
            ("metrics.key1 != 123", false),
            ("metrics.key1 >= 123 AND metrics.key1 < 124", true),
            ("metrics.none != 123", false),
            ("NOT metrics.none = 123", true),
            ("metrics.nan != 0", true),
            ("metrics.nan = 0", false),
            ("metrics.nan <= 0 OR metrics.nan > 0", false),
            ("params.p = 'Abc'", true),
            ("params.p = 'abc'", false),
            ("params.p LIKE 'abc'", false),
            ("params.p ILIKE 'aB_'", true),
            ("params.p NOT LIKE 'x%'", true),
            ("params.q NOT LIKE 'x%'", false),
            ("params.q != 'x'", false),
            ("params.q IS NULL AND params.p IS NOT NULL", true),
            ("params.q IS NOT NULL OR params.p IS NULL", false),
            ("status = 'FAILED' AND (params.p = 'x' OR params.p = 'Abc')", true),
            ("datasets.name = 'd2'", true),
            ("datasets.name = 'd1' AND datasets.name = 'd2'", true),
            ("datasets.name IN ('x', 'd2')", true),
            ("datasets.name != 'd1'", true),
            ("NOT datasets.name = 'd1'", false),
            ("datasets.digest != 'x'", false),
        ],
    );
}

#[test]
fn spans_side_by_side_are_the_same_span() {
    let trace = Thing::default()
        .text("tags.`mlflow.traceName`", "t-v12")
        .number("feedback.`score`", 4.0)
        .span(Thing::default().text("span.name", "search").text("span.status", "OK"))
        .span(Thing::default().text("span.name", "tool").text("span.status", "ERROR"));
    check_matches(
        &trace,
        &TRACES,
        &[
            ("span.name = 'search' AND span.status = 'OK'", true),
            ("span.name = 'search' AND span.status = 'ERROR'", false),
            ("span.name = 'search' AND (span.status = 'ERROR')", true),
            ("(span.name = 'tool' AND span.status = 'ERROR') AND span.name = 'search'", true),
            ("span.name != 'search'", true),
            ("NOT span.name = 'search'", false),
            ("span.name = 'x' OR span.name = 'tool'", true),
            ("name RLIKE 'v[0-9]+$'", true),
            ("name NOT RLIKE 'v[0-9]+$'", false),
            ("feedback.score > 3 and feedback.score IS NOT NULL", true),
            ("feedback.other IS NULL", true),
        ],
    );
}
