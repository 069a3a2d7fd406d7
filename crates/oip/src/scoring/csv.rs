//! Frames as CSV: a line of names, then a line for each row, as pandas writes them.

use std::borrow::Cow;

use bytes::Bytes;
use falaj_base::{Error, Result, code};

use super::frame::Frame;
use super::grow::Cell;
use super::{Form, Scheme, Scored};
use crate::message::Limits;

pub(super) fn read(body: &Bytes, scheme: Scheme<'_>, limits: &Limits) -> Result<Scored> {
    let text = std::str::from_utf8(body)
        .map_err(|wrong| malformed(format!("it is not UTF-8 at byte {}", wrong.valid_up_to())))?;
    let mut lines = Lines { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 0 };
    let mut fields = Vec::new();
    if !lines.next(&mut fields)? {
        return Err(malformed("it is empty, where a line with names is expected"));
    }
    let names: Vec<String> = fields.drain(..).map(Cow::into_owned).collect();
    let mut frame = Frame::new(names, scheme)?;
    while lines.next(&mut fields)? {
        let columns = frame.width();
        if fields.len() != columns {
            let text = format!("line {} has {} fields, not {columns}", lines.line, fields.len());
            return Err(malformed(text));
        }
        frame.row(body, limits, |source| Cell::Text(&fields[source]))?;
    }
    frame.finish(Form::Frame)
}

fn malformed(why: impl std::fmt::Display) -> Error {
    Error::new(&code::MALFORMED_BODY, format!("the body cannot be read as CSV: {why}"))
}

/// What is left of the text, and the number of the line last read.
struct Lines<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Lines<'a> {
    /// The fields of the next line that is not empty; false at the end.
    fn next(&mut self, fields: &mut Vec<Cow<'a, str>>) -> Result<bool> {
        fields.clear();
        loop {
            if self.rest.is_empty() {
                return Ok(false);
            }
            self.line += 1;
            if !self.ended() {
                break;
            }
        }
        loop {
            let field = if self.rest.starts_with('"') { self.quoted()? } else { self.plain() };
            fields.push(field);
            if self.rest.is_empty() || self.ended() {
                return Ok(true);
            }
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest,
                None => {
                    return Err(malformed(format!("text follows a quote on line {}", self.line)));
                }
            }
        }
    }

    /// Passes the end of a line if it is next.
    fn ended(&mut self) -> bool {
        let rest = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix(['\n', '\r']));
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn plain(&mut self) -> Cow<'a, str> {
        let end = self.rest.find([',', '\n', '\r']).unwrap_or(self.rest.len());
        let (field, rest) = self.rest.split_at(end);
        self.rest = rest;
        Cow::Borrowed(field)
    }

    /// A field in quotes; two quotes inside it stand for one.
    fn quoted(&mut self) -> Result<Cow<'a, str>> {
        let inside = &self.rest[1..];
        let mut from = 0;
        loop {
            let Some(quote) = inside[from..].find('"').map(|place| from + place) else {
                return Err(malformed(format!("a quote of line {} is never closed", self.line)));
            };
            if inside[quote + 1..].starts_with('"') {
                from = quote + 2;
                continue;
            }
            self.rest = &inside[quote + 1..];
            let field = &inside[..quote];
            return Ok(match from {
                0 => Cow::Borrowed(field),
                _ => Cow::Owned(field.replace("\"\"", "\"")),
            });
        }
    }
}
