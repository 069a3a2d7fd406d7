//! A place in a JSON text that moves on as values are read.
//!
//! Bare `NaN`, `Infinity` and `-Infinity` count as numbers. Depth is bounded, and every error says
//! where in the body it is.

use std::borrow::Cow;

use falaj_base::{Error, Result, code};

use super::decimal;

/// How deep lists and objects that nobody reads may be nested.
const MAX_DEPTH: usize = 32;

#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Bytes, which must be UTF-8.
    pub(crate) fn of(bytes: &'a [u8]) -> Result<Self> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Self::new(text)),
            Err(wrong) => {
                let text = format!("the body is not UTF-8 at byte {}", wrong.valid_up_to());
                Err(Error::new(&code::MALFORMED_BODY, text))
            }
        }
    }

    /// The same text from another place on.
    pub(crate) fn moved(&self, at: usize) -> Self {
        Self { text: self.text, at }
    }

    /// Where the next value begins, once [`Self::peek`] has passed what is before it.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.text.len() - self.at
    }

    /// The first byte of what comes next.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Passes this byte if it is next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<()> {
        if self.take(byte) { Ok(()) } else { Err(self.expected(what)) }
    }

    /// Nothing may follow.
    pub(crate) fn end(&mut self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.expected("the end of the body")) }
    }

    #[cold]
    pub(crate) fn expected(&mut self, what: &str) -> Error {
        let found = if self.peek().is_some() {
            let shown: String = self.text[self.at..].chars().take(20).collect();
            format!("{shown:?} stands")
        } else {
            "it ends".to_owned()
        };
        let text = format!("the body is not as it should be: {found} at byte {}", self.at);
        Error::new(&code::MALFORMED_BODY, format!("{text}, where {what} is expected"))
    }

    /// The members of an object: each key, with the cursor at its value.
    pub(crate) fn object(
        &mut self,
        what: &str,
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<()>,
    ) -> Result<()> {
        self.expect(b'{', what)?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.expected("a name in quotes"));
            }
            let key = self.string("a name in quotes")?;
            self.expect(b':', "a colon")?;
            member(self, key)?;
            if !self.take(b',') {
                return self.expect(b'}', "a comma or the end of the object");
            }
        }
    }

    /// The items of a list, with the cursor at each.
    pub(crate) fn list(
        &mut self,
        what: &str,
        mut item: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.expect(b'[', what)?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            item(self)?;
            if !self.take(b',') {
                return self.expect(b']', "a comma or the end of the list");
            }
        }
    }

    /// A string; borrowed if nothing in it is escaped, and then it begins right after the quote.
    pub(crate) fn string(&mut self, what: &str) -> Result<Cow<'a, str>> {
        self.expect(b'"', what)?;
        let (bytes, start) = (self.text.as_bytes(), self.at);
        let mut escaped = false;
        loop {
            match bytes.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.at += 2;
                }
                Some(0..=0x1f) => return Err(self.expected("text without control characters")),
                Some(_) => self.at += 1,
                None => {
                    self.at = bytes.len();
                    return Err(self.expected("the end of a string"));
                }
            }
        }
        self.at += 1;
        if !escaped {
            return Ok(Cow::Borrowed(&self.text[start..self.at - 1]));
        }
        serde_json::from_str(&self.text[start - 1..self.at]).map(Cow::Owned).map_err(|_| {
            self.at = start - 1;
            self.expected("a string without unknown escapes")
        })
    }

    /// A number written in few digits, if one is next. If not, the cursor stays where it is.
    #[inline]
    pub(crate) fn decimal<T: decimal::Float>(&mut self) -> Option<T> {
        self.peek();
        let (number, length) = decimal::read(&self.text.as_bytes()[self.at..])?;
        self.at += length;
        Some(number)
    }

    /// A number as it is written, if one is next.
    pub(crate) fn number(&mut self) -> Option<&'a str> {
        self.peek();
        let rest = &self.text.as_bytes()[self.at..];
        let digits = |from: usize| rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let sign = usize::from(rest.first() == Some(&b'-'));
        let whole = digits(sign);
        if whole == 0 || (whole > 1 && rest[sign] == b'0') {
            return None;
        }
        let mut end = sign + whole;
        if rest.get(end) == Some(&b'.') {
            let fraction = digits(end + 1);
            if fraction == 0 {
                return None;
            }
            end += 1 + fraction;
        }
        if matches!(rest.get(end), Some(b'e' | b'E')) {
            let signed = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + signed);
            if exponent == 0 {
                return None;
            }
            end += 1 + signed + exponent;
        }
        let token = &self.text[self.at..self.at + end];
        self.at += end;
        Some(token)
    }

    /// Passes a word such as `true` if it is next.
    pub(crate) fn word(&mut self, word: &str) -> bool {
        self.peek();
        let is_next = self.text[self.at..].starts_with(word);
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    /// Passes any value; what it was as text.
    pub(crate) fn skip(&mut self) -> Result<&'a str> {
        self.peek();
        let start = self.at;
        self.skip_within(MAX_DEPTH)?;
        Ok(&self.text[start..self.at])
    }

    fn skip_within(&mut self, depth: usize) -> Result<()> {
        let deeper = |cursor: &mut Self| match depth.checked_sub(1) {
            Some(depth) => cursor.skip_within(depth),
            None => Err(cursor.expected("a value nested less deeply")),
        };
        match self.peek() {
            Some(b'{') => self.object("an object", |cursor, _| deeper(cursor)),
            Some(b'[') => self.list("a list", deeper),
            Some(b'"') => self.string("a string").map(drop),
            _ => {
                let words = ["true", "false", "null", "NaN", "Infinity", "-Infinity"];
                if self.number().is_some() || words.iter().any(|word| self.word(word)) {
                    return Ok(());
                }
                Err(self.expected("a value"))
            }
        }
    }
}
