//! The language itself, on runs.

use super::*;

#[test]
fn conjunctions_mean_what_they_mean_in_mlflow() {
    check(
        &RUNS,
        &[
            ("", ""),
            ("metric.acc >= 0.94", "metrics.`acc` >= 0.94"),
            ("metric.acc>=100", "metrics.`acc` >= 100.0"),
            ("metrics.a > -1", "metrics.`a` > -1.0"),
            ("metrics.a=-1.5e-3", "metrics.`a` = -0.0015"),
            ("metrics.a < .5 ", "metrics.`a` < 0.5"),
            ("metrics.a <= 5.", "metrics.`a` <= 5.0"),
            ("metrics.a != 1E5", "metrics.`a` != 100000.0"),
            ("params.m!='tf'", "params.`m` != 'tf'"),
            ("params.\"m\"!=\"tf\"", "params.`m` != 'tf'"),
            ("params.'acc' = 'x'", "params.`acc` = 'x'"),
            ("parameter.x = 'y' and param.x = 'y'", "params.`x` = 'y' AND params.`x` = 'y'"),
            ("metrics.\"X//Y#$$@&Z\" = 3", "metrics.`X//Y#$$@&Z` = 3.0"),
            ("metrics.`spacey name` > 5", "metrics.`spacey name` > 5.0"),
            ("metrics.\"accuracy.2.0\" > 5", "metrics.`accuracy.2.0` > 5.0"),
            ("tags.a.b.c = 'x'", "tags.`a.b.c` = 'x'"),
            ("tags.mlflow.source.type = 'x'", "tags.`mlflow.source.type` = 'x'"),
            ("`tags`.source_name = 'a notebook'", "tags.`source_name` = 'a notebook'"),
            ("metrics.5fold > 1 AND metrics.α > 1", "metrics.`5fold` > 1.0 AND metrics.`α` > 1.0"),
            ("params.and = 'x' AND tags.like = 'y'", "params.`and` = 'x' AND tags.`like` = 'y'"),
            ("params.m = \"L'Hosp\"", "params.`m` = \"L'Hosp\""),
            ("params.a = 'it\"s'", "params.`a` = 'it\"s'"),
            ("params.a = ''", "params.`a` = ''"),
            ("params.a LIKE 'x%'", "params.`a` LIKE 'x%'"),
            ("tags.a ilike \"%x_\"", "tags.`a` ILIKE '%x_'"),
            (
                "tags.v IS NULL and params.v is not null",
                "tags.`v` IS NULL AND params.`v` IS NOT NULL",
            ),
            ("params.lr = 'x' AND\ntags.x\t=\r\n'y'", "params.`lr` = 'x' AND tags.`x` = 'y'"),
            ("params.x='a'AND params.y='b'", "params.`x` = 'a' AND params.`y` = 'b'"),
            ("run.status = 'RUNNING'", "status = 'RUNNING'"),
            ("\"status\" = 'b' and `status` = 'b'", "status = 'b' AND status = 'b'"),
            ("attr.created > 1 and Created < 2", "start_time > 1.0 AND start_time < 2.0"),
            ("attributes.`Run Name` = 'x'", "run_name = 'x'"),
            ("attributes.\"run name\" like 'x'", "run_name LIKE 'x'"),
            ("start_time > 1.5", "start_time > 1.5"),
            ("run_id IN ('b','a', 'b')", "run_id IN ('a', 'b')"),
            ("attributes.run_id not  in (\"a\")", "run_id NOT IN ('a')"),
            ("run_id IN('a',)", "run_id IN ('a')"),
            (r"run_id IN ('it\'s')", "run_id IN (\"it's\")"),
            (
                "dataset.name = 'x' and datasets.digest IN ('1')",
                "dataset.name = 'x' AND dataset.digest IN ('1')",
            ),
            ("datasets.context ilike 'tr%'", "dataset.context ILIKE 'tr%'"),
        ],
    );
}

#[test]
fn sloppy_conjunctions_are_taken_as_mlflow_takes_them() {
    let expected = "metrics.`a` = 1.0 AND metrics.`b` = 2.0";
    for text in [
        "metrics.a = 1 metrics.b = 2",
        "AND metrics.a = 1 AND AND metrics.b = 2",
        "metrics.a = 1 AND metrics.b = 2 AND",
        "  metrics.a\u{a0}= 1 and metrics.b = 2 ",
    ] {
        assert_eq!(shown(text, &RUNS), expected, "{text}");
    }
}

#[test]
fn nothing_in_quotes_is_unescaped_outside_lists() {
    for (text, expected) in [
        ("params.a = 'it''s'", "it''s"),
        (r"params.a = 'a\'b'", r"a\'b"),
        (r"params.a = 'a\'", r"a\"),
        ("params.a = \"b\".\"c\"", "b\".\"c"),
        ("params.a = 'nul\0\u{1}'", "nul\0\u{1}"),
    ] {
        let Ok(Some(Expr::Is(comparison))) = parse(text, &RUNS) else { panic!("{text}") };
        assert_eq!(comparison.test, Test::Text { value: expected.into(), negated: false });
    }
    for (text, expected) in [
        ("params.\"a\"\"b\" = 'x'", "a\"\"b"),
        ("params.`a``b` = 'x'", "a``b"),
        ("params.`` = 'x'", ""),
        ("params.\"`a`\" = 'x'", "a"),
    ] {
        let Ok(Some(Expr::Is(comparison))) = parse(text, &RUNS) else { panic!("{text}") };
        assert_eq!(comparison.field, Field::Param(expected.into()), "{text}");
    }
}

#[test]
fn refusals_begin_as_the_original_s_do() {
    check_refused(
        &RUNS,
        &[
            ("  ", "Invalid filter '  '. Could not be parsed."),
            ("metric.acc >= 0.94; metrics.rmse < 1", "Search filter contained multiple expression"),
            ("metrics.a = 1;", "Invalid clause(s) in filter string: ';'"),
            ("m.acc >= 0.94", "Invalid entity type 'm'. Valid values are ['metric', 'parameter', "),
            ("Metrics.acc >= 0.94", "Invalid entity type"),
            ("`metrics.A` > 1", "Invalid entity type"),
            ("metrics .a > 1", "Invalid clause(s) in filter string"),
            ("acc >= 0.94", "Invalid attribute key 'acc' specified. Valid keys are '{'run_id', "),
            ("foo is null", "Invalid attribute key"),
            ("attribute.experiment_id != 1", "Invalid attribute key"),
            ("attribute.lifecycle_stage = 'ACTIVE'", "Invalid attribute key"),
            ("attribute._status != 'RUNNING'", "Invalid attribute key"),
            ("dataset.profile = 'num_rows: 10'", "Invalid dataset key"),
            ("metrics.A > 0.1 NAND params.B = 'LR'", "Invalid clause(s) in filter string"),
            ("`metrics.A > 0.1", "Invalid clause(s) in filter string"),
            ("param`.A > 0.1", "Invalid clause(s) in filter string"),
            ("attribute.status = true", "Invalid clause(s) in filter string"),
            ("metrics.a > NULL", "Invalid clause(s) in filter string"),
            ("metrics.acc IS NULL", "IS NULL / IS NOT NULL is only supported for tags and params"),
            (
                "attribute.status IS NULL",
                "IS NULL / IS NOT NULL is only supported for tags and params",
            ),
            ("metric.model = 'LR'", "Expected numeric value type for metric. Found 'LR'"),
            ("metrics.acc != metrics.acc", "Expected numeric value type for metric"),
            ("metrics.acc != NaN", "Expected numeric value type for metric"),
            ("metrics.a > 0x10", "Expected numeric value type for metric"),
            ("metrics.a=1AND metrics.b=2", "Expected numeric value type for metric. Found 1AND"),
            ("params.acc = 5", "Expected a quoted string value for param"),
            ("tags.acc = 5", "Expected a quoted string value for tag"),
            (
                "params.a IN ('x')",
                "Expected a quoted string value for parameter (e.g. 'my-value'). Got value ('x')",
            ),
            ("params.a = foo-bar", "Expected a quoted string value for parameter"),
            ("1.0 > metrics.acc", "Expected 'Identifier' found '1.0'"),
            ("1==2", "Expected 'Identifier' found"),
            ("'a' = 'b'", "Expected 'Identifier' found"),
            ("metrics.val-loss > 1", "Expected 'Identifier' found 'metrics.val-loss'"),
            ("metrics.ndcg@5 > 1", "Expected 'Identifier' found"),
            ("attribute.status = 1", "Expected a quoted string value for attributes"),
            (
                "start_time > '15'",
                "Expected numeric value type for numeric attribute: start_time. Found '15'",
            ),
            (
                "status IN ('x')",
                "Only ['run_id'] attributes support comparison with a list of quoted string values",
            ),
            (
                "params.acc = LR",
                "Parameter value is either not quoted or unidentified quote types used for string value LR.",
            ),
            ("params.acc = `LR`", "value is either not quoted or unidentified quote types"),
            ("params.'acc = LR", "Invalid clause(s) in filter string"),
            ("params.acc = 'LR", "Invalid clause(s) in filter string"),
            ("params.acc = LR'", "Invalid clause(s) in filter string"),
            ("tags.acc = \"LR'", "Invalid clause(s) in filter string"),
            ("tags.acc = = 'LR'", "Invalid clause(s) in filter string"),
            ("attribute.status IS 'RUNNING'", "Invalid clause(s) in filter string"),
            ("params.acc LR !=", "Invalid clause(s) in filter string"),
            ("params.acc LR", "Invalid clause(s) in filter string"),
            ("metric.acc !=", "Invalid clause(s) in filter string"),
            ("tags.a NOT NULL", "Invalid clause(s) in filter string"),
            ("tags.a between 'x' and 'y'", "Invalid clause(s) in filter string"),
            (
                "metrics.a = 1, metrics.b = 2",
                "Invalid clause(s) in filter string: ', metrics.b = 2'",
            ),
            ("params.a = 'x' -- c", "Invalid clause(s) in filter string: '-- c'"),
            ("metrics.a > - 1", "Invalid clause(s) in filter string"),
            ("run_id IN (", "Invalid clause(s) in filter string"),
            ("run_id IN ('a'", "Invalid clause(s) in filter string"),
            ("run_id IN 'a'", "Invalid clause(s) in filter string"),
            ("run_id IN", "Invalid clause(s) in filter string"),
            (
                "run_id IN ()",
                "While parsing a list in the query, expected a non-empty list of string values, but got empty list",
            ),
            (
                "run_id IN (1,2)",
                "expected string value, punctuation, or whitespace, but got different type in list: (1,2)",
            ),
            ("run_id IN (a)", "but got ill-formed list"),
            ("run_id IN ('a' 'b')", "but got ill-formed list"),
            ("run_id IN (,)", "but got ill-formed list"),
        ],
    );
}

#[test]
fn comparators_suit_their_fields() {
    for (name, comparators, value) in [
        ("metrics.abc", vec!["~", "~=", "==", "<>", "LIKE"], "1.0"),
        ("params.abc", vec![">", "<", ">=", "<=", "~", "RLIKE"], "'v'"),
        ("tags.abc", vec![">", "<", ">=", "<=", "~", "=>"], "'v'"),
        ("attributes.status", vec![">", "<", ">=", "<=", "~"], "'v'"),
        ("attributes.start_time", vec!["LIKE", "ILIKE", "NOT LIKE"], "1234"),
        ("datasets.name", vec![">", "<", ">=", "<=", "~"], "'v'"),
        ("run_id", vec!["=", "!="], "('a', 'b')"),
    ] {
        for comparator in comparators {
            let text = format!("{name} {comparator} {value}");
            let expected = format!("Invalid comparator '{comparator}' not one of '{{'");
            check_refused(&RUNS, &[(&text, &expected)]);
        }
    }
}

#[test]
fn or_not_and_parentheses_are_ours() {
    check(
        &RUNS,
        &[
            ("metrics.A > 0.1 OR params.B = 'x'", "metrics.`A` > 0.1 OR params.`B` = 'x'"),
            (
                "metrics.a = 1 or metrics.b = 1 and metrics.c = 1",
                "metrics.`a` = 1.0 OR (metrics.`b` = 1.0 AND metrics.`c` = 1.0)",
            ),
            (
                "(metrics.a = 1 or metrics.b = 1) and not metrics.c = 1",
                "(metrics.`a` = 1.0 OR metrics.`b` = 1.0) AND NOT metrics.`c` = 1.0",
            ),
            ("NOT (NOT ((status = 'x')))", "NOT NOT status = 'x'"),
            ("not params.a not like 'x'", "NOT params.`a` NOT LIKE 'x'"),
            ("tags.x not ilike 'x'", "tags.`x` NOT ILIKE 'x'"),
            ("(status = 'x')", "status = 'x'"),
        ],
    );
    check_refused(
        &RUNS,
        &[
            ("OR", "Invalid clause(s) in filter string: 'OR'"),
            ("AND", "Invalid clause(s) in filter string: 'AND'"),
            ("()", "Invalid clause(s) in filter string"),
            ("(", "Invalid clause(s) in filter string"),
            ("(status = 'x'", "Invalid clause(s) in filter string"),
            ("status = 'x')", "Invalid clause(s) in filter string: ')'"),
            ("status = 'x' OR", "Invalid clause(s) in filter string"),
            ("status = 'x' AND NOT", "Invalid clause(s) in filter string"),
            ("status = 'x' OR AND status = 'y' OR", "Invalid clause(s) in filter string"),
            ("NOT", "Invalid clause(s) in filter string"),
        ],
    );
}

#[test]
fn the_least_and_the_greatest_value_of_a_metric() {
    check(
        &RUNS,
        &[
            ("metrics.`acc`.min > 1", "metrics.`acc`.min > 1.0"),
            ("metrics.\"val acc\".max > 1", "metrics.`val acc`.max > 1.0"),
            ("metrics.`acc.min` > 1", "metrics.`acc.min` > 1.0"),
            ("metrics.acc.min > 1", "metrics.acc.min > 1.0"),
            ("metrics.val.acc.max > 1", "metrics.val.acc.max > 1.0"),
            ("metrics.min > 1", "metrics.`min` > 1.0"),
            ("metrics.acc.MIN > 1", "metrics.`acc.MIN` > 1.0"),
            ("params.a.min = 'x'", "params.`a.min` = 'x'"),
        ],
    );
    let text = "metrics.acc.min > 1 or not (metrics.loss.max < 2 and metrics.`x`.max = 3)";
    let mut expr = parse(text, &RUNS).expect("a filter").expect("not empty");
    expr.decide(&mut |key| key == "loss.max");
    assert_eq!(
        print::expr(&expr),
        "metrics.`acc`.min > 1.0 OR NOT (metrics.`loss.max` < 2.0 AND metrics.`x`.max = 3.0)"
    );
}

#[test]
fn what_is_too_much_is_refused() {
    let deep = |levels: usize| format!("{}status = 'x'{}", "(".repeat(levels), ")".repeat(levels));
    assert!(parse(&deep(MAX_DEPTH), &RUNS).is_ok());
    check_refused(&RUNS, &[(&deep(MAX_DEPTH + 1), "nested more than 64 levels deep")]);
    check_refused(&RUNS, &[(&deep(30_000), "nested more than 64 levels deep")]);
    let nots = format!("{}status = 'x'", "NOT ".repeat(65));
    check_refused(&RUNS, &[(&nots, "nested more than 64 levels deep")]);

    let many = |count: usize| vec!["metrics.a > 1"; count].join(" AND ");
    assert!(parse(&many(MAX_COMPARISONS), &RUNS).is_ok());
    check_refused(&RUNS, &[(&many(MAX_COMPARISONS + 1), "more than 1000 comparisons")]);

    let long = format!("params.a = '{}'", "x".repeat(MAX_TEXT));
    check_refused(&RUNS, &[(&long, "at most 65536 are allowed")]);
}

#[test]
fn an_error_repeats_little_of_the_text_and_on_one_line() {
    let noise = "x\n\0é".repeat(10_000);
    for text in [
        format!("params.a = {noise}"),
        format!("`{noise}`.a = 'x'"),
        format!("`{noise}` = 'x'"),
        format!("params.a = 'x' `{noise}`"),
        format!("metrics.a = '{noise}'"),
        format!("dataset.`{noise}` = 'x'"),
        format!("run_id in (1, '{noise}')"),
        format!("status = 'x'; {noise}"),
    ] {
        let error = parse(&text, &RUNS).expect_err("a refusal");
        assert!(error.message().len() < 1500, "{}", error.message().len());
        assert!(!error.message().contains(char::is_control), "{}", error.message());
    }
}

#[test]
fn reading_takes_time_in_proportion_to_the_text() {
    for text in [
        "'".repeat(MAX_TEXT),
        "`".repeat(MAX_TEXT - 1),
        "\"\\".repeat(MAX_TEXT / 2),
        "(".repeat(MAX_TEXT),
        "AND ".repeat(MAX_TEXT / 4),
        "a.".repeat(MAX_TEXT / 2),
        "a ".repeat(MAX_TEXT / 2),
        "-".repeat(MAX_TEXT),
        "1".repeat(MAX_TEXT),
        "run_id IN (".repeat(MAX_TEXT / 11),
        format!("run_id IN ({}", "'a',".repeat(16_000)),
        "<".repeat(MAX_TEXT),
    ] {
        assert!(parse(&text, &RUNS).is_err());
    }
}
