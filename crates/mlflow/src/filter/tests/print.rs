//! Prints a tree as a filter that reads back as the same tree. Values with both kinds of quotes, and
//! keys with backticks, have no written form.

use crate::filter::*;

pub(super) fn expr(expr: &Expr) -> String {
    let group = |members: &[Expr], word: &str| -> String {
        members.iter().map(member).collect::<Vec<_>>().join(word)
    };
    match expr {
        Expr::And(members) if members.len() == 1 => format!("({})", group(members, "")),
        Expr::And(members) => group(members, " AND "),
        Expr::Or(members) => group(members, " OR "),
        Expr::Not(inner) => format!("NOT {}", member(inner)),
        Expr::Is(comparison) => self::comparison(comparison),
    }
}

fn member(expr: &Expr) -> String {
    match expr {
        Expr::And(members) if members.len() == 1 => self::expr(expr),
        Expr::And(_) | Expr::Or(_) => format!("({})", self::expr(expr)),
        other => self::expr(other),
    }
}

fn comparison(comparison: &Comparison) -> String {
    format!("{} {}", field(&comparison.field), test(&comparison.test))
}

pub(super) fn field(field: &Field) -> String {
    match field {
        Field::Metric { key, aggregate } => match aggregate {
            Aggregate::Latest => format!("metrics.`{key}`"),
            Aggregate::Min => format!("metrics.`{key}`.min"),
            Aggregate::Max => format!("metrics.`{key}`.max"),
            Aggregate::Undecided => format!("metrics.{key}"),
        },
        Field::Param(key) => format!("params.`{key}`"),
        Field::Tag(key) => format!("tags.`{key}`"),
        Field::Metadata(key) => format!("metadata.`{key}`"),
        Field::Feedback(key) => format!("feedback.`{key}`"),
        Field::Expectation(key) => format!("expectation.`{key}`"),
        Field::Attribute(name) => (*name).to_owned(),
        Field::Dataset(DatasetPart::Name) => "dataset.name".into(),
        Field::Dataset(DatasetPart::Digest) => "dataset.digest".into(),
        Field::Dataset(DatasetPart::Context) => "dataset.context".into(),
        Field::Span(SpanPart::Name) => "span.name".into(),
        Field::Span(SpanPart::Type) => "span.type".into(),
        Field::Span(SpanPart::Status) => "span.status".into(),
        Field::Span(SpanPart::Content) => "span.content".into(),
        Field::Span(SpanPart::Attribute(key)) => format!("span.attributes.`{key}`"),
        Field::Issue => "issue.id".into(),
        Field::Prompt => "prompt".into(),
    }
}

fn test(test: &Test) -> String {
    let not = |negated: bool| if negated { "NOT " } else { "" };
    match test {
        Test::Number(op, value) => format!("{} {value:?}", op.text()),
        Test::Text { value, negated } => {
            format!("{} {}", if *negated { "!=" } else { "=" }, quoted(value))
        }
        Test::Like { like, negated } => {
            let word = if like.is_case_insensitive() { "ILIKE" } else { "LIKE" };
            format!("{}{word} {}", not(*negated), quoted(like.pattern()))
        }
        Test::Regex { pattern, negated } => {
            format!("{}RLIKE {}", not(*negated), quoted(pattern.as_str()))
        }
        Test::In { values, negated } => {
            let values: Vec<_> = values.iter().map(|value| quoted(value)).collect();
            format!("{}IN ({})", not(*negated), values.join(", "))
        }
        Test::Null { negated } => format!("IS {}NULL", not(*negated)),
    }
}

fn quoted(value: &str) -> String {
    if value.contains('\'') { format!("\"{value}\"") } else { format!("'{value}'") }
}
