//! Tests one row in memory: for searches over things few enough to look at each.

use std::borrow::Cow;

use super::ast::{Comparison, Expr, Field, Test};

/// What a filter can ask of a row. A kind of row answers for the fields of its own schema and with
/// `None` for what it lacks.
///
/// A search of models hides prompts by answering `false` for an absent `mlflow.prompt.is_prompt` tag.
pub trait Row {
    fn number(&self, field: &Field) -> Option<f64>;

    fn text(&self, field: &Field) -> Option<Cow<'_, str>>;

    /// Whether any number under the field is accepted. For fields with several.
    fn any_number(&self, field: &Field, accept: &mut dyn FnMut(f64) -> bool) -> bool {
        self.number(field).is_some_and(accept)
    }

    /// Whether any text under the field is accepted. For fields with several, such as datasets.
    fn any_text(&self, field: &Field, accept: &mut dyn FnMut(&str) -> bool) -> bool {
        self.text(field).is_some_and(|text| accept(&text))
    }

    /// Whether any span is accepted; each is a row with the [`Field::Span`] fields.
    fn any_span(&self, accept: &mut dyn FnMut(&dyn Row) -> bool) -> bool {
        let _ = accept;
        false
    }
}

impl Expr {
    /// Whether the row is one of those the filter asks for.
    #[must_use]
    pub fn matches(&self, row: &impl Row) -> bool {
        self.holds(row)
    }

    fn holds(&self, row: &dyn Row) -> bool {
        match self {
            Self::And(members) => all(members, row),
            Self::Or(members) => members.iter().any(|member| member.holds(row)),
            Self::Not(inner) => !inner.holds(row),
            Self::Is(_) => all(std::slice::from_ref(self), row),
        }
    }
}

/// Every member holds, those about spans all of one span.
fn all(members: &[Expr], row: &dyn Row) -> bool {
    let mut spans = Vec::new();
    for member in members {
        match member {
            Expr::Is(comparison @ Comparison { field: Field::Span(_), .. }) => {
                spans.push(comparison);
            }
            Expr::Is(comparison) if !comparison.holds(row) => return false,
            Expr::Is(_) => {}
            other if !other.holds(row) => return false,
            _ => {}
        }
    }
    spans.is_empty()
        || row.any_span(&mut |span| spans.iter().all(|comparison| comparison.holds(span)))
}

impl Comparison {
    fn holds(&self, row: &dyn Row) -> bool {
        match &self.test {
            Test::Number(op, value) => {
                row.any_number(&self.field, &mut |number| op.holds(number, *value))
            }
            Test::Null { negated } => {
                let there = row.any_text(&self.field, &mut |_| true)
                    || row.any_number(&self.field, &mut |_| true);
                there == *negated
            }
            test => row.any_text(&self.field, &mut |text| test.accepts(text)),
        }
    }
}

impl Test {
    /// Whether a text that is there passes. A number test accepts no text.
    #[must_use]
    pub fn accepts(&self, text: &str) -> bool {
        match self {
            Self::Text { value, negated } => (text == value) != *negated,
            Self::Like { like, negated } => like.matches(text) != *negated,
            Self::Regex { pattern, negated } => pattern.matches(text) != *negated,
            Self::In { values, negated } => {
                values.binary_search_by(|value| value.as_str().cmp(text)).is_ok() != *negated
            }
            Self::Null { negated } => *negated,
            Self::Number(..) => false,
        }
    }
}
