//! Text into what the grammar says, within limits.

use falaj_base::{Error, Result};
use sqlparser::ast::{Expr, Query, Select, SelectItem, SetExpr, TableFactor};
use sqlparser::dialect::DuckDbDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};

/// The longest text, in bytes.
pub const MAX_BYTES: usize = 16 << 10;
/// The most words and signs.
pub const MAX_TOKENS: usize = 2000;
/// The most of them in one expression, with those around it: a chain of operators is as deep as it is
/// long, and whoever looks at it goes as deep.
const MAX_CHAIN: usize = 300;
/// How deep brackets may lie in each other.
const MAX_NESTING: usize = 16;

const SHAPE: &str = "`SELECT expression AS name, … FROM source [WHERE condition]` and nothing else";

/// What stands in a text that has the shape.
pub(super) struct Parsed {
    pub(super) items: Vec<SelectItem>,
    /// What the rows are called.
    pub(super) from: String,
    pub(super) condition: Option<Expr>,
}

pub(super) fn parse(sql: &str) -> Result<Parsed> {
    if sql.len() > MAX_BYTES {
        let allowed = format!("at most {MAX_BYTES} bytes of SQL");
        return Err(Error::invalid("sql", format!("{} bytes", sql.len()), allowed));
    }
    let dialect = DuckDbDialect {};
    let wrong = |why: String| Error::invalid("sql", shortened(&why), SHAPE);
    let tokens = Tokenizer::new(&dialect, sql).tokenize().map_err(|why| wrong(why.to_string()))?;
    let words = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).count();
    if words > MAX_TOKENS {
        let allowed = format!("at most {MAX_TOKENS} words and signs of SQL");
        return Err(Error::invalid("sql", format!("{words} of them"), allowed));
    }
    if chain(&tokens) > MAX_CHAIN {
        let allowed = format!("at most {MAX_CHAIN} words and signs in one expression");
        return Err(Error::invalid("sql", "a longer expression", allowed));
    }
    let mut parser = Parser::new(&dialect).with_recursion_limit(MAX_NESTING).with_tokens(tokens);
    let query = parser.parse_query().map_err(|why| wrong(why.to_string()))?;
    if parser.peek_token().token != Token::EOF {
        return Err(wrong(format!("something behind the end: {}", parser.peek_token())));
    }
    taken(*query)
}

/// The most words and signs between commas, with those of the brackets around them.
fn chain(tokens: &[Token]) -> usize {
    let (mut levels, mut all, mut most) = (vec![0], 0, 0);
    for token in tokens {
        match token {
            Token::Whitespace(_) => {}
            Token::LParen => levels.push(0),
            Token::RParen => all -= if levels.len() > 1 { levels.pop().unwrap_or(0) } else { 0 },
            Token::Comma => {
                if let Some(level) = levels.last_mut() {
                    all -= std::mem::take(level);
                }
            }
            _ => {
                if let Some(level) = levels.last_mut() {
                    *level += 1;
                    all += 1;
                }
            }
        }
        most = most.max(all);
    }
    most
}

/// The parts of a query that has no others: written out from those it reads as it did.
fn taken(query: Query) -> Result<Parsed> {
    let text = query.to_string();
    let odd = || Error::invalid("sql", shortened(&text), SHAPE);
    let SetExpr::Select(select) = *query.body else { return Err(odd()) };
    let Select { projection: items, from, selection: condition, .. } = *select;
    let [table] = from.as_slice() else { return Err(odd()) };
    let TableFactor::Table { name, .. } = &table.relation else { return Err(odd()) };
    let from = name.to_string();
    let shown: Vec<_> = items.iter().map(ToString::to_string).collect();
    let mut plain = format!("SELECT {} FROM {from}", shown.join(", "));
    if let Some(condition) = &condition {
        plain = format!("{plain} WHERE {condition}");
    }
    if plain != text {
        return Err(odd());
    }
    Ok(Parsed { items, from, condition })
}

/// A text that can stand in a refusal.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 200;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(MOST).collect();
    short.push('…');
    short
}
