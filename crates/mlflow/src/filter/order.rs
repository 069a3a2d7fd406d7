//! Orderings: `metrics.acc DESC`. Spaces may stand between the field and its direction, and nowhere
//! else: the original refuses them at either end.

use std::borrow::Cow;
use std::collections::HashSet;

use falaj_base::{Error, Result};

use super::ast::{Aggregate, Field};
use super::error::{echo, refuse, set};
use super::lex::{self, Kind};
use super::name::Name;
use super::schema::{Entity, LOGGED_MODELS, Schema, Style, Use};
use super::syntax::{inside, is_quoted};
use super::{MAX_ORDER_CLAUSES, MAX_TEXT};

#[derive(Clone, Debug, PartialEq)]
pub struct OrderBy {
    pub field: Field,
    pub ascending: bool,
}

/// Reads an ordering, most significant clause first. Ties, and what comes first without an
/// ordering, are for the search to decide.
pub fn parse_order(clauses: &[String], schema: &Schema) -> Result<Vec<OrderBy>> {
    if clauses.len() > MAX_ORDER_CLAUSES {
        return Err(refuse(format!(
            "`order_by` has {} clauses; at most {MAX_ORDER_CLAUSES} are allowed",
            clauses.len()
        )));
    }
    let mut seen = HashSet::new();
    clauses
        .iter()
        .map(|text| {
            let clause = parse_clause(text, schema)?;
            if schema.style != Style::Experiments && !seen.insert(clause.field.clone()) {
                return Err(refuse(format!(
                    "`order_by` contains duplicate fields: '{}'",
                    echo(text)
                )));
            }
            Ok(clause)
        })
        .collect()
}

fn parse_clause(text: &str, schema: &Schema) -> Result<OrderBy> {
    let unreadable =
        || refuse(format!("Invalid order_by clause '{}'. Could not be parsed.", echo(text)));
    if text.len() > MAX_TEXT || text.starts_with(char::is_whitespace) {
        return Err(unreadable());
    }
    let tokens = lex::tokens(text).map_err(|_| unreadable())?;
    let ends_here = |token: &lex::Token<'_>| token.at + token.text.len() == text.len();
    let (name, ascending) = match tokens.as_slice() {
        [name] if name.kind == Kind::Name && ends_here(name) => (Cow::Borrowed(name.text), true),
        [name, way] if name.kind == Kind::Name && way.kind == Kind::Name && ends_here(way) => {
            match way.text {
                word if word.eq_ignore_ascii_case("asc") => (unquoted(name.text), true),
                word if word.eq_ignore_ascii_case("desc") => (unquoted(name.text), false),
                _ if name.text == "timestamp" => return Err(unreadable()),
                _ => {
                    return Err(refuse(format!(
                        "Invalid ordering key in order_by clause '{}'.",
                        echo(text)
                    )));
                }
            }
        }
        _ => return Err(unreadable()),
    };
    Ok(OrderBy { field: field(&name, schema)?, ascending })
}

/// The original takes quotes off as a shell does, wherever they stand, but only before a direction:
/// ``metrics.`a`.b DESC`` orders by `a.b`. A key that is quoted whole keeps its quotes here, which
/// comes to the same and still says that the key is meant literally.
fn unquoted(name: &str) -> Cow<'_, str> {
    const QUOTES: [char; 3] = ['`', '"', '\''];
    let (entity, key) = name.split_once('.').unwrap_or(("", name));
    let whole = key.starts_with(QUOTES) && is_quoted(key, key.chars().next().unwrap_or_default());
    let key = if whole { inside(key) } else { key };
    if !entity.contains(QUOTES) && !key.contains(QUOTES) {
        return name.into();
    }
    let mut plain = String::with_capacity(name.len());
    let mut open = None;
    for c in name.chars() {
        match open {
            Some(quote) if quote == c => open = None,
            None if QUOTES.contains(&c) => open = Some(c),
            _ => plain.push(c),
        }
    }
    plain.into()
}

fn field(text: &str, schema: &Schema) -> Result<Field> {
    if schema.style == Style::Models && !schema.names(Use::Order).any(|name| name == text) {
        return Err(refuse(format!(
            "Invalid order by key '{}' specified. Valid keys are '{}'",
            echo(text),
            set(["name", "timestamp"].into_iter())
        )));
    }
    let name = Name::read(text, schema, Use::Order)?;
    let field = name.field(schema)?;
    if name.entity == Entity::Attribute || schema.order.contains(&name.entity) {
        return Ok(field);
    }
    Err(unorderable(&name, schema))
}

fn unorderable(name: &Name<'_>, schema: &Schema) -> Error {
    refuse(match schema.style {
        Style::Experiments => format!("Invalid order_by entity: {}", name.entity.word()),
        Style::Versions => format!(
            "Invalid order by key '{}' specified. Valid keys are {}",
            echo(name.key),
            set(schema.names(Use::Order))
        ),
        _ => format!("Invalid identifier type '{}'", name.entity.word()),
    })
}

/// The ordering of logged models comes in parts, not as a text. The key of a metric is taken as it
/// is, without quotes.
pub fn logged_model_order(field_name: &str, ascending: bool) -> Result<OrderBy> {
    let invalid =
        |more: &str| refuse(format!("Invalid order by field name: {}{more}", echo(field_name)));
    let field = match field_name.split_once('.') {
        Some(("metrics", key)) => {
            Field::Metric { key: key.to_owned(), aggregate: Aggregate::Latest }
        }
        Some(_) => return Err(invalid(". Only metrics are supported.")),
        None => {
            let name = field_name.trim();
            let mut attributes = LOGGED_MODELS.attributes.iter();
            let found = attributes.find(|attribute| attribute.names.contains(&name));
            Field::Attribute(found.ok_or_else(|| invalid(""))?.column())
        }
    };
    Ok(OrderBy { field, ascending })
}
