//! Each other kind of thing: what it is searched by.

use super::*;

#[test]
fn experiments() {
    check(
        &EXPERIMENTS,
        &[
            ("name = 'a'", "name = 'a'"),
            ("attribute.`name` != 'a'", "name != 'a'"),
            ("name ILIKE 'a%' AND name ilike '%b'", "name ILIKE 'a%' AND name ILIKE '%b'"),
            ("creation_time >= 1700000000000", "creation_time >= 1700000000000.0"),
            ("last_update_time = 5", "last_update_time = 5.0"),
            ("tag.\"k e y 1\" = 'value'", "tags.`k e y 1` = 'value'"),
            (
                "tag.key1 IS NOT NULL AND tags.key2 IS NULL",
                "tags.`key1` IS NOT NULL AND tags.`key2` IS NULL",
            ),
            ("experiment_id IN ('7', '012')", "experiment_id IN ('12', '7')"),
            ("experiment_id != '0'", "experiment_id != '0'"),
        ],
    );
    check_refused(
        &EXPERIMENTS,
        &[
            (
                "name IS NULL",
                "IS NULL / IS NOT NULL is only supported for tags, not for attribute 'name'",
            ),
            ("attributes.name = 'a'", "Invalid entity type 'attributes'. Valid entity types are "),
            ("params.a = 'b'", "Invalid entity type 'params'"),
            ("artifact_location = 'b'", "Invalid attribute key 'artifact_location' specified."),
            ("name IN ('a')", "Only ['experiment_id'] attributes support comparison with a list"),
            (
                "experiment_id = 'x'",
                "Invalid experiment ID 'x'. Experiment ID must be a valid integer.",
            ),
            ("experiment_id LIKE '1'", "Invalid comparator 'LIKE'"),
            ("creation_time = 1.5", "Invalid value for numeric attribute 'creation_time': 1.5"),
            ("name > 'a'", "Invalid comparator '>'"),
            ("tag.a < 'b'", "Invalid comparator '<'"),
        ],
    );
}

#[test]
fn registered_models() {
    check(
        &REGISTERED_MODELS,
        &[
            ("name lIkE '%blah%'", "name LIKE '%blah%'"),
            ("name iLike '%%'", "name ILIKE '%%'"),
            ("name NOT IN ('a')", "name NOT IN ('a')"),
            (
                "name = 'p' and tags.`mlflow.prompt.is_prompt` = 'true'",
                "name = 'p' AND tags.`mlflow.prompt.is_prompt` = 'true'",
            ),
        ],
    );
    check_refused(
        &REGISTERED_MODELS,
        &[
            (
                "name!=something",
                "Parameter value is either not quoted or unidentified quote types used for string value something",
            ),
            (
                "run_id='somerunID'",
                "Invalid attribute key 'run_id' specified. Valid keys are '{'name'}'",
            ),
            ("timestamp > 1", "Invalid attribute key 'timestamp' specified."),
            ("evilhax = true", "Invalid clause(s) in filter string"),
            ("name > 'a'", "Invalid comparator '>'"),
            ("name = 5", "Expected a quoted string value"),
        ],
    );
}

#[test]
fn model_versions() {
    check(
        &MODEL_VERSIONS,
        &[
            (
                "version_number=2 AND run_id IN ('b','a')",
                "version_number = 2.0 AND run_id IN ('a', 'b')",
            ),
            ("version_number <= '3'", "version_number <= 3.0"),
            ("source_path = 'A/D'", "source_path = 'A/D'"),
            ("name IN ('a')", "name IN ('a')"),
        ],
    );
    check_refused(
        &MODEL_VERSIONS,
        &[
            (
                "run_id IN (1,2,3)",
                "While parsing a list in the query, expected string value, punctuation, or whitespace, but got different type in list",
            ),
            ("run_id IN ()", "but got empty list"),
            ("run_id IN (", "Invalid clause(s) in filter string"),
            ("name LIKE", "Invalid clause(s) in filter string"),
            ("source_path IN ('a')", "Only ['name', 'run_id'] attributes support comparison"),
            ("version_number = 1.5", "Invalid value for numeric attribute 'version_number': 1.5"),
            ("version_number = 'x'", "Invalid value for numeric attribute 'version_number': 'x'"),
            ("version_number LIKE 1", "Invalid comparator 'LIKE'"),
        ],
    );
}

#[test]
fn logged_models() {
    check(
        &LOGGED_MODELS,
        &[
            ("name='new_model'", "name = 'new_model'"),
            ("model_id IN ('m-2', 'm-1')", "model_id IN ('m-1', 'm-2')"),
            (
                "metrics.loss > 0.1 AND params.lr = 0.01",
                "metrics.`loss` > 0.1 AND params.`lr` = '0.01'",
            ),
            ("metrics.loss.min > 1", "metrics.`loss.min` > 1.0"),
            (
                "attributes.creation_time > 1 and creation_timestamp_ms > 1",
                "creation_timestamp > 1.0 AND creation_timestamp > 1.0",
            ),
            ("tags.a like '%x' and tags.b in ('y')", "tags.`a` LIKE '%x' AND tags.`b` IN ('y')"),
        ],
    );
    check_refused(
        &LOGGED_MODELS,
        &[
            (
                "name",
                "Invalid filter string: 'name'. Expected a list of comparisons separated by 'AND'",
            ),
            (
                "foo.a = 'b'",
                "Invalid entity type: 'foo'. Expected one of ['attributes', 'metrics', 'params', 'tags'].",
            ),
            (
                "name > 'b'",
                "Invalid comparison operator for attributes.name: '>'. Expected one of ['!=', ",
            ),
            ("params.a > 'b'", "Invalid comparison operator for params.a: '>'"),
            ("artifact_location = 'b'", "Invalid attribute key 'artifact_location'"),
            ("metrics.a = 'x'", "Expected numeric value type for metric"),
        ],
    );
}

#[test]
fn traces() {
    check(
        &TRACES,
        &[
            ("trace.status = 'OK' and attributes.status = 'OK'", "status = 'OK' AND status = 'OK'"),
            ("name != 'aaa'", "tags.`mlflow.traceName` != 'aaa'"),
            ("trace.run_id = \"r\"", "metadata.`mlflow.sourceRun` = 'r'"),
            (
                "timestamp >= 1500 and trace.timestamp_ms < '2500'",
                "timestamp_ms >= 1500.0 AND timestamp_ms < 2500.0",
            ),
            (
                "execution_time > 1.5 and end_time != 2",
                "execution_time_ms > 1.5 AND end_time_ms != 2.0",
            ),
            ("request_id IN ('tr-1')", "request_id IN ('tr-1')"),
            ("client_request_id RLIKE '^req'", "client_request_id RLIKE '^req'"),
            (
                "tag.region IS NULL AND metadata.env = \"x\"",
                "tags.`region` IS NULL AND metadata.`env` = 'x'",
            ),
            ("request_metadata.mlflow.sourceRun = 'run0'", "metadata.`mlflow.sourceRun` = 'run0'"),
            ("trace.text ILIKE \"%90%%\"", "span.content ILIKE '%90%%'"),
            ("span.type NOT IN (\"LLM\", \"A\")", "span.type NOT IN ('A', 'LLM')"),
            (
                "span.attributes.similarity.threshold LIKE \"%0.8%\"",
                "span.attributes.`similarity.threshold` LIKE '%0.8%'",
            ),
            (
                "feedback.score > 3 AND expectation.t <= 0.5",
                "feedback.`score` > 3.0 AND expectation.`t` <= 0.5",
            ),
            ("feedback.correctness = \"true\"", "feedback.`correctness` = 'true'"),
            ("feedback.name IS NOT NULL", "feedback.`name` IS NOT NULL"),
            ("issue.id = 'i'", "issue.id = 'i'"),
            (
                "prompt = \"qa/4\" and tags.`mlflow.linkedPrompts` = 'qa/4'",
                "prompt = 'qa/4' AND prompt = 'qa/4'",
            ),
            ("span.name = 'a' AND (span.name = 'b')", "span.name = 'a' AND (span.name = 'b')"),
        ],
    );
    check_refused(
        &TRACES,
        &[
            ("invalid", "Invalid clause(s) in filter string"),
            ("name = 'foo' AND invalid", "Invalid clause(s) in filter string"),
            ("foo.bar = 'baz'", "Invalid entity type 'foo'"),
            ("invalid = 'foo'", "Invalid attribute key 'invalid'"),
            ("trace.tags.foo = 'bar'", "Invalid attribute key 'tags.foo'"),
            ("trace.status < 'OK'", "Invalid comparator '<'"),
            ("status IS NULL", "Invalid comparator 'IS NULL'"),
            ("name IN ('foo', 'bar')", "Invalid comparator 'IN'"),
            (
                "span.duration = \"1000\"",
                "Invalid span attribute 'duration'. Supported attributes: name, status, type, attributes.<attribute_name>.",
            ),
            ("span.content = \"test\"", "span.content comparator '=' not one of "),
            ("span.name > \"test\"", "span.name comparator '>' not one of "),
            (
                "feedback.score > \"high\"",
                "Expected a numeric value for feedback when using comparator '>'. Got value \"high\"",
            ),
            ("feedback.quality = 3", "Expected a quoted string value for feedback"),
            (
                "prompt LIKE \"%qa%\"",
                "Invalid comparator 'LIKE' for prompts filter. Only '=' is supported with format: prompt = \"name/version\"",
            ),
            ("prompt RLIKE \"version.*1\"", "Invalid comparator 'RLIKE' for prompts filter."),
            ("prompt != \"test/1\"", "Invalid comparator '!=' for prompts filter."),
            (
                "prompt = \"foo/1/baz\"",
                "Invalid prompts filter value 'foo/1/baz'. Expected format: prompt = \"name/version\"",
            ),
            ("prompt = \"\"", "Invalid prompts filter value ''."),
            ("issue.name = 'x'", "Invalid issue attribute 'name'. Supported attributes: id"),
            ("issue.id != 'x'", "issue.id comparator '!=' not one of"),
            ("name RLIKE '('", "Invalid regular expression '('"),
            ("timestamp > 'x'", "Invalid value for numeric attribute 'timestamp': 'x'"),
        ],
    );
    let many = vec!["name RLIKE 'x'"; MAX_PATTERNS + 1].join(" AND ");
    check_refused(&TRACES, &[(&many, "more than 16 regular expressions")]);
}
