//! The shape of a filter: who stands where, before anyone asks whether such a field exists.
//!
//! The original complains of a malformed clause anywhere before it complains of an unknown key, so
//! the whole text is read first. It also takes comparisons side by side, and spare `AND`s, for a
//! conjunction; some clients build filters that way.

use std::borrow::Cow;

use super::comparator::Comparator;
use super::lex::{self, Kind, Token};
use super::{MAX_COMPARISONS, MAX_DEPTH, MAX_TEXT};

#[derive(Debug)]
pub(super) enum Node<'a> {
    And(Vec<Node<'a>>),
    Or(Vec<Node<'a>>),
    Not(Box<Node<'a>>),
    /// In parentheses, alone.
    Alone(Box<Node<'a>>),
    Is(Clause<'a>),
}

#[derive(Debug)]
pub(super) struct Clause<'a> {
    pub(super) name: &'a str,
    /// The comparator, or what was written in its place.
    pub(super) comparator: Result<Comparator, &'a str>,
    pub(super) value: Value<'a>,
}

#[derive(Debug)]
pub(super) enum Value<'a> {
    /// Of `IS NULL`.
    None,
    /// With its single quotes.
    Text(&'a str),
    /// A word, or a text with its double quotes.
    Name(&'a str),
    Number(&'a str),
    Odd(&'a str),
    List {
        written: &'a str,
        items: Result<Vec<Cow<'a, str>>, BadList>,
    },
}

impl<'a> Value<'a> {
    pub(super) fn written(&self) -> &'a str {
        match self {
            Self::None => "",
            Self::Text(text) | Self::Name(text) | Self::Number(text) | Self::Odd(text) => text,
            Self::List { written, .. } => written,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadList {
    Empty,
    IllFormed,
    NotText,
}

#[derive(Debug, PartialEq)]
pub(super) enum Refusal<'a> {
    TooLong,
    TooDeep,
    TooMany,
    /// Nothing but spaces.
    Blank,
    /// Several statements.
    Several,
    Clause(&'a str),
    /// Something else stands where a field should.
    NotAName(&'a str),
}

/// Words that are part of the language, and so neither a field nor a value unless quoted.
const RESERVED: [&str; 12] =
    ["AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "ILIKE", "RLIKE", "TRUE", "FALSE", "BETWEEN"];

pub(super) fn read(text: &str) -> Result<Node<'_>, Refusal<'_>> {
    if text.len() > MAX_TEXT {
        return Err(Refusal::TooLong);
    }
    let tokens = lex::tokens(text).map_err(|at| Refusal::Clause(&text[at..]))?;
    if tokens.is_empty() {
        return Err(Refusal::Blank);
    }
    if let Some(place) = tokens.iter().position(|token| token.kind == Kind::Semicolon) {
        let last = place + 1 == tokens.len();
        return Err(if last { Refusal::Clause(";") } else { Refusal::Several });
    }
    let mut reader = Reader { text, tokens, next: 0, depth: 0, comparisons: 0 };
    let tree = reader.any()?;
    match reader.peek() {
        None => Ok(tree),
        Some(token) => Err(reader.clause(token)),
    }
}

struct Reader<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    next: usize,
    depth: usize,
    comparisons: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.next).copied()
    }

    fn take(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.next += usize::from(token.is_some());
        token
    }

    fn sees(&self, word: &str) -> bool {
        self.peek().is_some_and(|token| is_word(token, word))
    }

    fn eat(&mut self, word: &str) -> bool {
        let seen = self.sees(word);
        self.next += usize::from(seen);
        seen
    }

    fn clause(&self, token: Token<'a>) -> Refusal<'a> {
        Refusal::Clause(&self.text[token.at..])
    }

    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Refusal<'a>>,
    ) -> Result<T, Refusal<'a>> {
        if self.depth == MAX_DEPTH {
            return Err(Refusal::TooDeep);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// `all (OR all)*`
    fn any(&mut self) -> Result<Node<'a>, Refusal<'a>> {
        let first = self.all()?;
        if !self.sees("OR") {
            return Ok(first);
        }
        let mut members = vec![first];
        while self.eat("OR") {
            members.push(self.all()?);
        }
        Ok(Node::Or(members))
    }

    /// `one ([AND] one)*`, with spare `AND`s anywhere
    fn all(&mut self) -> Result<Node<'a>, Refusal<'a>> {
        let mut members = Vec::new();
        loop {
            while self.eat("AND") {}
            match self.peek() {
                Some(token) if token.kind != Kind::Close && !is_word(token, "OR") => {
                    members.push(self.one()?);
                }
                _ => break,
            }
        }
        match members.pop() {
            None => Err(self.peek().map_or(Refusal::Clause(self.text), |token| self.clause(token))),
            Some(only) if members.is_empty() => Ok(only),
            Some(last) => {
                members.push(last);
                Ok(Node::And(members))
            }
        }
    }

    /// `NOT one | (any) | comparison`
    fn one(&mut self) -> Result<Node<'a>, Refusal<'a>> {
        if self.eat("NOT") {
            return self.deeper(|reader| Ok(Node::Not(Box::new(reader.one()?))));
        }
        match self.peek() {
            Some(open) if open.kind == Kind::Open => self.deeper(|reader| {
                reader.take();
                let inner = reader.any()?;
                match reader.take() {
                    Some(token) if token.kind == Kind::Close => Ok(match inner {
                        Node::Is(_) => Node::Alone(Box::new(inner)),
                        other => other,
                    }),
                    _ => Err(reader.clause(open)),
                }
            }),
            _ => self.comparison(),
        }
    }

    fn comparison(&mut self) -> Result<Node<'a>, Refusal<'a>> {
        let Some(first) = self.take() else { return Err(Refusal::Clause(self.text)) };
        let broken = self.clause(first);
        let signed = self.peek().is_some_and(|token| token.kind == Kind::Sign);
        match first.kind {
            Kind::Name if !is_reserved(first) => {}
            Kind::Odd => return Err(Refusal::NotAName(first.text)),
            Kind::Text | Kind::Number if signed => return Err(Refusal::NotAName(first.text)),
            _ => return Err(broken),
        }
        if self.comparisons == MAX_COMPARISONS {
            return Err(Refusal::TooMany);
        }
        self.comparisons += 1;
        let Some((comparator, value)) = self.test() else { return Err(broken) };
        Ok(Node::Is(Clause { name: first.text, comparator, value }))
    }

    /// What follows the field.
    fn test(&mut self) -> Option<(Result<Comparator, &'a str>, Value<'a>)> {
        let token = self.take()?;
        if token.kind == Kind::Sign {
            return Some((Comparator::sign(token.text).ok_or(token.text), self.value()?));
        }
        if is_word(token, "IS") {
            let negated = self.eat("NOT");
            let comparator = if negated { Comparator::IsNotNull } else { Comparator::IsNull };
            return self.eat("NULL").then_some((Ok(comparator), Value::None));
        }
        let negated = is_word(token, "NOT");
        let word = if negated { self.take()? } else { token };
        let comparator = Comparator::word(word.text, negated)?;
        let value = self.value()?;
        let fits = !comparator.takes_a_list() || matches!(value, Value::List { .. });
        fits.then_some((Ok(comparator), value))
    }

    fn value(&mut self) -> Option<Value<'a>> {
        let token = self.take()?;
        Some(match token.kind {
            Kind::Text => Value::Text(token.text),
            Kind::Number => Value::Number(token.text),
            Kind::Odd => Value::Odd(token.text),
            Kind::Name if !is_reserved(token) => Value::Name(token.text),
            Kind::Open => self.list(token)?,
            _ => return None,
        })
    }

    /// Up to the closing parenthesis, well formed or not.
    fn list(&mut self, open: Token<'a>) -> Option<Value<'a>> {
        let start = self.next;
        loop {
            let token = self.take()?;
            if token.kind == Kind::Close {
                let items = items(&self.tokens[start..self.next - 1]);
                return Some(Value::List { written: &self.text[open.at..=token.at], items });
            }
        }
    }
}

fn items<'a>(tokens: &[Token<'a>]) -> Result<Vec<Cow<'a, str>>, BadList> {
    if tokens.is_empty() {
        return Err(BadList::Empty);
    }
    let mut values = Vec::with_capacity(tokens.len().div_ceil(2));
    for (place, token) in tokens.iter().enumerate() {
        match (place % 2, token.kind) {
            (0, Kind::Text) => values.push(item(token.text)),
            (0, Kind::Name) if is_quoted(token.text, '"') => values.push(item(token.text)),
            (0, Kind::Number) => return Err(BadList::NotText),
            (1, Kind::Comma) => {}
            _ => return Err(BadList::IllFormed),
        }
    }
    Ok(values)
}

/// A value of a list. The original reads lists as Python does, so here, unlike elsewhere, a backslash
/// escapes a quote or another backslash.
fn item(text: &str) -> Cow<'_, str> {
    let inner = inside(text);
    if !inner.contains('\\') {
        return inner.into();
    }
    let mut value = String::with_capacity(inner.len());
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped =
            if c == '\\' { chars.next_if(|c| matches!(c, '\\' | '\'' | '"')) } else { None };
        value.push(escaped.unwrap_or(c));
    }
    value.into()
}

/// Whether a text begins and ends with this quote.
pub(super) fn is_quoted(text: &str, quote: char) -> bool {
    text.len() >= 2 && text.starts_with(quote) && text.ends_with(quote)
}

/// A quoted text without its quotes.
pub(super) fn inside(quoted: &str) -> &str {
    let mut chars = quoted.chars();
    chars.next();
    chars.next_back();
    chars.as_str()
}

fn is_word(token: Token<'_>, word: &str) -> bool {
    token.kind == Kind::Name && token.text.eq_ignore_ascii_case(word)
}

fn is_reserved(token: Token<'_>) -> bool {
    RESERVED.iter().any(|word| is_word(token, word))
}
