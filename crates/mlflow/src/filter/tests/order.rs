//! Orderings.

use super::*;

fn shown(clauses: &[&str], schema: &Schema) -> String {
    let clauses: Vec<String> = clauses.iter().map(|&clause| clause.to_owned()).collect();
    match parse_order(&clauses, schema) {
        Ok(order) => order
            .iter()
            .map(|by| {
                format!("{} {}", print::field(&by.field), if by.ascending { "ASC" } else { "DESC" })
            })
            .collect::<Vec<_>>()
            .join(", "),
        Err(error) => error.message().to_owned(),
    }
}

#[test]
fn clauses_and_what_they_order_by() {
    for (schema, clause, expected) in [
        (&RUNS, "tags.noSuchTag", "tags.`noSuchTag` ASC"),
        (&RUNS, "attributes.status  ASC", "status ASC"),
        (&RUNS, "metrics.\"key1\"  desc", "metrics.`key1` DESC"),
        (&RUNS, "params.my_param aSc", "params.`my_param` ASC"),
        (&RUNS, "metrics.`Mean Square Error` DESC", "metrics.`Mean Square Error` DESC"),
        (&RUNS, "metrics.acc.max DESC", "metrics.acc.max DESC"),
        (&RUNS, "metrics.`acc`.max", "metrics.`acc`.max ASC"),
        (&RUNS, "metrics.`acc`.max\tDESC", "metrics.acc.max DESC"),
        (&RUNS, "metrics.`acc.max` DESC", "metrics.`acc.max` DESC"),
        (&RUNS, "metrics.`a`.b DESC", "metrics.`a.b` DESC"),
        (&RUNS, "`metrics.a` DESC", "metrics.`a` DESC"),
        (&RUNS, "`metrics`.`a` DESC", "metrics.`a` DESC"),
        (&RUNS, "\"status\" DESC", "status DESC"),
        (&RUNS, "attributes.Created DESC", "start_time DESC"),
        (&RUNS, "start_time", "start_time ASC"),
        (&EXPERIMENTS, "experiment_id ASC", "experiment_id ASC"),
        (&EXPERIMENTS, "attribute.last_update_time desc", "last_update_time DESC"),
        (&REGISTERED_MODELS, "timestamp\r\rASC", "last_updated_timestamp ASC"),
        (&REGISTERED_MODELS, "name   DESC", "name DESC"),
        (&MODEL_VERSIONS, "version_number DESC", "version_number DESC"),
        (&MODEL_VERSIONS, "creation_timestamp", "creation_timestamp ASC"),
        (&TRACES, "timestamp ASC", "timestamp_ms ASC"),
        (&TRACES, "name", "tags.`mlflow.traceName` ASC"),
        (&TRACES, "request_metadata.x DESC", "metadata.`x` DESC"),
        (&TRACES, "experiment_id", "experiment_id ASC"),
    ] {
        assert_eq!(shown(&[clause], schema), expected, "{clause}");
    }
    assert_eq!(shown(&["status", "metrics.a DESC"], &RUNS), "status ASC, metrics.`a` DESC");
    assert_eq!(shown(&[], &RUNS), "");
}

#[test]
fn refusals_begin_as_the_original_s_do() {
    for (schema, clause, beginning) in [
        (&RUNS, "m.acc", "Invalid entity type 'm'"),
        (&RUNS, "acc", "Invalid attribute key 'acc'"),
        (&RUNS, "`metrics.A", "Invalid order_by clause '`metrics.A'. Could not be parsed."),
        (&RUNS, "`metrics.A`", "Invalid entity type"),
        (&RUNS, "attribute.experiment_id", "Invalid attribute key"),
        (&RUNS, "metrics.A != 1", "Invalid order_by clause"),
        (&RUNS, "params.my_param ", "Invalid order_by clause"),
        (&RUNS, " params.my_param", "Invalid order_by clause"),
        (&RUNS, "", "Invalid order_by clause ''"),
        (&RUNS, "attribute.run_id ACS", "Invalid ordering key in order_by clause"),
        (&RUNS, "dataset.name", "Invalid identifier type 'dataset'"),
        (&EXPERIMENTS, "tags.a", "Invalid order_by entity: tag"),
        (
            &REGISTERED_MODELS,
            "creation_timestamp DESC",
            "Invalid order by key 'creation_timestamp' specified",
        ),
        (&REGISTERED_MODELS, "last_updated_timestamp DESC blah", "Invalid order_by clause"),
        (&REGISTERED_MODELS, "timestamp somerandomstuff ASC", "Invalid order_by clause"),
        (&REGISTERED_MODELS, "timestamp decs", "Invalid order_by clause"),
        (&REGISTERED_MODELS, "name aCs", "Invalid ordering key"),
        (&MODEL_VERSIONS, "run_id DESC", "Invalid attribute key 'run_id' specified"),
        (&MODEL_VERSIONS, "tags.a DESC", "Invalid order by key 'a' specified."),
        (&TRACES, "feedback.a", "Invalid identifier type 'feedback'"),
    ] {
        let message = shown(&[clause], schema);
        assert!(message.starts_with(beginning), "{clause}: {message}");
    }
    for (schema, clauses) in [
        (&RUNS, ["metrics.a", "metric.`a` DESC"]),
        (&RUNS, ["created", "start_time"]),
        (&REGISTERED_MODELS, ["timestamp", "last_updated_timestamp"]),
    ] {
        assert!(shown(&clauses, schema).starts_with("`order_by` contains duplicate fields"));
    }
    assert!(shown(&["a"; MAX_ORDER_CLAUSES + 1], &RUNS).starts_with("`order_by` has 101 clauses"));
}

#[test]
fn logged_models_name_their_field_without_quoting() {
    let shown = |name: &str| match logged_model_order(name, false) {
        Ok(by) => print::field(&by.field),
        Err(error) => error.message().to_owned(),
    };
    assert_eq!(shown("creation_timestamp"), "creation_timestamp");
    assert_eq!(shown("creation_time"), "creation_timestamp");
    assert_eq!(shown("metrics.val loss"), "metrics.`val loss`");
    assert_eq!(shown("artifact_location"), "Invalid order by field name: artifact_location");
    assert_eq!(
        shown("params.x"),
        "Invalid order by field name: params.x. Only metrics are supported."
    );
}
