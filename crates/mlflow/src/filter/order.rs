//! Orderings: `metrics.acc DESC`. Spaces may stand between the field and its direction, and nowhere
//! else: the original refuses them at either end.

use std::collections::HashSet;

use falaj_base::{Error, Result};

use super::ast::{Aggregate, Field};
use super::error::{echo, refuse, set};
use super::lex::{self, Kind};
use super::name::Name;
use super::schema::{Entity, LOGGED_MODELS, Schema, Style, Use};
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
        [name] if name.kind == Kind::Name && ends_here(name) => (name.text, true),
        [name, way] if name.kind == Kind::Name && way.kind == Kind::Name && ends_here(way) => {
            match way.text {
                word if word.eq_ignore_ascii_case("asc") => (name.text, true),
                word if word.eq_ignore_ascii_case("desc") => (name.text, false),
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
    Ok(OrderBy { field: field(name, schema)?, ascending })
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
