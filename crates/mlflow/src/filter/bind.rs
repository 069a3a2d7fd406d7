//! Checks each clause against the schema: first its name, then its value, then its comparator.
//! The original checks in that order, and its callers see the first complaint.

use falaj_base::{Error, Result};

use super::ast::{Comparison, Expr, Field, Op, SpanPart, Test};
use super::comparator::{Comparator, EQUAL, LIKES, LISTS};
use super::error::{self, echo, list, refuse};
use super::name::Name;
use super::schema::{Entity, Kind, Schema, Style, Use};
use super::syntax::{BadList, Clause, Node, Value, inside, is_quoted};
use super::{Like, MAX_PATTERNS, Pattern};

pub(super) struct Binder<'s> {
    schema: &'s Schema,
    patterns: usize,
}

/// A value that suits its field.
enum Fit {
    None,
    Number(f64),
    Text(String),
    List(Vec<String>),
}

impl<'s> Binder<'s> {
    pub(super) fn new(schema: &'s Schema) -> Self {
        Self { schema, patterns: 0 }
    }

    pub(super) fn tree(&mut self, node: &Node<'_>) -> Result<Expr> {
        Ok(match node {
            Node::And(members) => Expr::And(self.trees(members)?),
            Node::Or(members) => Expr::Or(self.trees(members)?),
            Node::Not(inner) => Expr::Not(Box::new(self.tree(inner)?)),
            // Parentheses set a comparison of spans apart from its neighbours.
            Node::Alone(inner) => match self.tree(inner)? {
                only @ Expr::Is(Comparison { field: Field::Span(_), .. }) => Expr::And(vec![only]),
                other => other,
            },
            Node::Is(clause) => Expr::Is(self.comparison(clause)?),
        })
    }

    fn trees(&mut self, nodes: &[Node<'_>]) -> Result<Vec<Expr>> {
        nodes.iter().map(|node| self.tree(node)).collect()
    }

    fn comparison(&mut self, clause: &Clause<'_>) -> Result<Comparison> {
        let name = Name::read(clause.name, self.schema, Use::Filter)?;
        let field = name.field(self.schema)?;
        if clause.comparator.is_ok_and(Comparator::is_null_test) {
            self.check_null(&name)?;
        }
        let fit = self.fit(&name, clause)?;
        let comparator = self.comparator(&name, &field, clause)?;
        if field == Field::Prompt {
            check_prompt(&fit)?;
        }
        let test = self.test(comparator, fit)?;
        Ok(Comparison { field, test })
    }

    fn check_null(&self, name: &Name<'_>) -> Result<()> {
        let keyed = matches!(name.entity, Entity::Tag | Entity::Param);
        match self.schema.style {
            Style::Traces => Ok(()),
            _ if keyed => Ok(()),
            Style::Runs => Err(refuse(format!(
                "IS NULL / IS NOT NULL is only supported for tags and params, not for '{}' '{}'",
                name.entity.word(),
                echo(name.key)
            ))),
            _ => Err(refuse(format!(
                "IS NULL / IS NOT NULL is only supported for tags, not for {} '{}'",
                name.entity.word(),
                echo(name.key)
            ))),
        }
    }

    fn fit(&self, name: &Name<'_>, clause: &Clause<'_>) -> Result<Fit> {
        let value = &clause.value;
        if matches!(value, Value::None) {
            return Ok(Fit::None);
        }
        match name.entity {
            Entity::Metric => match value {
                Value::Number(text) => number(text).map(Fit::Number),
                other => Err(refuse(format!(
                    "Expected numeric value type for metric. Found {}",
                    echo(other.written())
                ))),
            },
            Entity::Attribute => {
                let kind = name.attribute.map_or(Kind::Text, |attribute| attribute.kind);
                self.fit_attribute(name.key, kind, value)
            }
            Entity::Feedback | Entity::Expectation => fit_assessment(name.entity, clause),
            Entity::Dataset => texts(value, true, "dataset attributes"),
            Entity::Span => texts(value, true, "span (e.g. 'my-value')"),
            Entity::Param | Entity::Tag if self.schema.style == Style::LoggedModels => {
                lenient(value)
            }
            Entity::Tag if self.schema.style == Style::Traces => {
                texts(value, true, "tag (e.g. 'my-value')")
            }
            entity => texts(value, false, &format!("{} (e.g. 'my-value')", entity.word())),
        }
    }

    fn fit_attribute(&self, key: &str, kind: Kind, value: &Value<'_>) -> Result<Fit> {
        if kind == Kind::Number {
            return self.fit_number(key, value);
        }
        if kind == Kind::Text && matches!(value, Value::List { .. }) {
            let listed = self.schema.attributes.iter().filter(|attribute| {
                matches!(attribute.kind, Kind::Listed | Kind::Id) && attribute.serves(Use::Filter)
            });
            let listed = list(listed.flat_map(|attribute| attribute.names.iter().copied()));
            return Err(refuse(format!(
                "Only {listed} attributes support comparison with a list of quoted string values."
            )));
        }
        if self.schema.style == Style::LoggedModels {
            return lenient(value);
        }
        let fit = texts(value, true, "attributes")?;
        Ok(match (kind, fit) {
            (Kind::Id, Fit::Text(id)) => Fit::Text(experiment_id(&id)?),
            (Kind::Id, Fit::List(ids)) => {
                Fit::List(ids.iter().map(|id| experiment_id(id)).collect::<Result<_>>()?)
            }
            (_, fit) => fit,
        })
    }

    /// Versions and traces take a number in quotes; experiments and versions take no fraction.
    fn fit_number(&self, key: &str, value: &Value<'_>) -> Result<Fit> {
        let style = self.schema.style;
        let invalid = || {
            refuse(format!(
                "Invalid value for numeric attribute '{key}': {}",
                echo(value.written())
            ))
        };
        let whole = matches!(style, Style::Experiments | Style::Versions);
        match value {
            Value::Number(text) if whole && text.contains(['.', 'e', 'E']) => Err(invalid()),
            Value::Number(text) => number(text).map(Fit::Number),
            Value::Text(text) | Value::Name(text)
                if matches!(style, Style::Versions | Style::Traces)
                    && (is_quoted(text, '\'') || is_quoted(text, '"')) =>
            {
                let digits = inside(text).trim();
                let number = digits.parse::<i64>().map_err(|_| invalid())?;
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "times and versions are far below 2^53"
                )]
                Ok(Fit::Number(number as f64))
            }
            other => Err(refuse(format!(
                "Expected numeric value type for numeric attribute: {key}. Found {}",
                echo(other.written())
            ))),
        }
    }

    fn comparator(
        &self,
        name: &Name<'_>,
        field: &Field,
        clause: &Clause<'_>,
    ) -> Result<Comparator> {
        let accepted = match (field, name.attribute) {
            (Field::Span(SpanPart::Content), _) => LIKES,
            (Field::Span(_), _) => self.schema.of_entity(Entity::Span),
            (Field::Prompt, _) => EQUAL,
            (Field::Attribute(_), Some(attribute)) => self.schema.of_attribute(attribute.kind),
            _ => self.schema.of_entity(name.entity),
        };
        let listed = matches!(clause.value, Value::List { .. });
        match clause.comparator {
            Ok(comparator)
                if comparator.is_one_of(accepted) && comparator.takes_a_list() == listed =>
            {
                Ok(comparator)
            }
            Ok(comparator) => {
                let accepted = if listed { LISTS } else { accepted };
                Err(self.invalid_comparator(name, field, comparator.text(), accepted))
            }
            Err(written) => Err(self.invalid_comparator(name, field, written, accepted)),
        }
    }

    fn invalid_comparator(
        &self,
        name: &Name<'_>,
        field: &Field,
        written: &str,
        accepted: &[Comparator],
    ) -> Error {
        let key = echo(name.key);
        let all = || error::set(accepted.iter().map(|comparator| comparator.text()));
        match (field, name.entity) {
            (Field::Prompt, _) => refuse(format!(
                "Invalid comparator '{}' for prompts filter. Only '=' is supported with format: \
                 prompt = \"name/version\"",
                echo(written)
            )),
            (Field::Span(SpanPart::Content), _) => refuse(format!(
                "span.content comparator '{}' not one of '{}'",
                echo(written),
                all()
            )),
            (_, Entity::Span | Entity::Issue) => refuse(format!(
                "{}.{key} comparator '{}' not one of '{}'",
                name.entity.word(),
                echo(written),
                all()
            )),
            (_, Entity::Feedback | Entity::Expectation) => refuse(format!(
                "assessment.{key} comparator '{}' not one of '{}'",
                echo(written),
                all()
            )),
            _ if self.schema.style == Style::LoggedModels => refuse(format!(
                "Invalid comparison operator for {}s.{key}: '{}'. Expected one of {}.",
                if name.entity == Entity::Param { "param" } else { name.entity.word() },
                echo(written),
                list(accepted.iter().map(|comparator| comparator.text()))
            )),
            _ => error::comparator(written, accepted),
        }
    }

    fn test(&mut self, comparator: Comparator, fit: Fit) -> Result<Test> {
        let like = |text: &str, case_insensitive, negated| {
            Ok(Test::Like { like: Like::new(text, case_insensitive)?, negated })
        };
        match (comparator, fit) {
            (Comparator::Number(op), Fit::Number(number)) => Ok(Test::Number(op, number)),
            (Comparator::Number(op @ (Op::Eq | Op::Ne)), Fit::Text(value)) => {
                Ok(Test::Text { value, negated: op == Op::Ne })
            }
            (Comparator::Like, Fit::Text(text)) => like(&text, false, false),
            (Comparator::NotLike, Fit::Text(text)) => like(&text, false, true),
            (Comparator::Ilike, Fit::Text(text)) => like(&text, true, false),
            (Comparator::NotIlike, Fit::Text(text)) => like(&text, true, true),
            (Comparator::Rlike, Fit::Text(text)) => self.regex(&text, false),
            (Comparator::NotRlike, Fit::Text(text)) => self.regex(&text, true),
            (Comparator::In | Comparator::NotIn, Fit::List(mut values)) => {
                values.sort_unstable();
                values.dedup();
                Ok(Test::In { values, negated: comparator == Comparator::NotIn })
            }
            (Comparator::IsNull, Fit::None) => Ok(Test::Null { negated: false }),
            (Comparator::IsNotNull, Fit::None) => Ok(Test::Null { negated: true }),
            // Each field takes one kind of value and only comparators of that kind.
            (comparator, _) => {
                Err(refuse(format!("Invalid comparator '{}' for this value", comparator.text())))
            }
        }
    }

    fn regex(&mut self, text: &str, negated: bool) -> Result<Test> {
        if self.patterns == MAX_PATTERNS {
            return Err(refuse(format!(
                "Invalid filter string: more than {MAX_PATTERNS} regular expressions"
            )));
        }
        self.patterns += 1;
        Ok(Test::Regex { pattern: Pattern::new(text)?, negated })
    }
}

/// Inequalities of an assessment take a number, everything else a text.
fn fit_assessment(entity: Entity, clause: &Clause<'_>) -> Result<Fit> {
    let inequality = clause.comparator.is_ok_and(Comparator::is_inequality);
    match &clause.value {
        Value::Number(text) if inequality => number(text).map(Fit::Number),
        value if inequality => Err(refuse(format!(
            "Expected a numeric value for {} when using comparator '{}'. Got value {}",
            entity.word(),
            clause.comparator.map_or("", Comparator::text),
            echo(value.written())
        ))),
        value => texts(value, false, &format!("{} (e.g. 'my-value')", entity.word())),
    }
}

/// Searches of logged models compare with a bare word or number as if it were quoted.
fn lenient(value: &Value<'_>) -> Result<Fit> {
    match value {
        Value::Number(text) | Value::Odd(text) => Ok(Fit::Text((*text).to_owned())),
        Value::Name(text) if !is_quoted(text, '"') => Ok(Fit::Text((*text).to_owned())),
        other => texts(other, true, "attributes"),
    }
}

fn check_prompt(fit: &Fit) -> Result<()> {
    let Fit::Text(value) = fit else { return Ok(()) };
    if value.matches('/').count() == 1 {
        return Ok(());
    }
    Err(refuse(format!(
        "Invalid prompts filter value '{}'. Expected format: prompt = \"name/version\"",
        echo(value)
    )))
}

/// A quoted text, or a list of them where that may be.
fn texts(value: &Value<'_>, list_too: bool, what: &str) -> Result<Fit> {
    match value {
        Value::Text(text) => Ok(Fit::Text(inside(text).to_owned())),
        Value::Name(text) if is_quoted(text, '"') => Ok(Fit::Text(inside(text).to_owned())),
        Value::Name(text) => Err(refuse(format!(
            "Parameter value is either not quoted or unidentified quote types used for string \
             value {}. Use either single or double quotes.",
            echo(text)
        ))),
        Value::List { written, items } if list_too => match items {
            Ok(items) => Ok(Fit::List(items.iter().map(ToString::to_string).collect())),
            Err(bad) => Err(bad_list(*bad, written)),
        },
        other => Err(refuse(format!(
            "Expected a quoted string value for {what}. Got value {}",
            echo(other.written())
        ))),
    }
}

fn bad_list(bad: BadList, written: &str) -> Error {
    let why = match bad {
        BadList::Empty => {
            "expected a non-empty list of string values, but got empty list".to_owned()
        }
        BadList::IllFormed => {
            "expected a non-empty list of string values, but got ill-formed list.".to_owned()
        }
        BadList::NotText => format!(
            "expected string value, punctuation, or whitespace, but got different type in list: {}",
            echo(written)
        ),
    };
    refuse(format!("While parsing a list in the query, {why}"))
}

fn number(text: &str) -> Result<f64> {
    text.parse().map_err(|_| refuse(format!("Expected numeric value. Found {}", echo(text))))
}

/// The one way to write an experiment's id, so that equal ids are equal texts.
fn experiment_id(text: &str) -> Result<String> {
    text.trim().parse::<i64>().map(|id| id.to_string()).map_err(|_| {
        refuse(format!(
            "Invalid experiment ID '{}'. Experiment ID must be a valid integer.",
            echo(text)
        ))
    })
}
