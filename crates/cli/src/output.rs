//! What a command prints: data on stdout, talk on stderr.
//!
//! Must hold: stdout carries only what was asked for, as a table for people or JSON for programs;
//! a text from the server can neither move the cursor nor forge a line in a table.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

pub(crate) mod progress;
mod table;

use crate::exit::{Failure, Result};
use table::Table;

/// Aligned columns for people, or JSON for programs. The variants carry no text of their own: it
/// would double the length of every help page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

/// How much to say on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Talk {
    Quiet,
    Normal,
    Verbose,
}

/// A column of a table or a line of a record: what it is called and where in the JSON it is, as
/// a dotted path.
pub(crate) type Column = (&'static str, &'static str);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) talk: Talk,
}

impl Output {
    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// A list of things.
    pub(crate) fn list(self, items: &[Value], columns: &[Column]) -> Result<()> {
        if self.is_json() {
            return self.json(&Value::Array(items.to_vec()));
        }
        if items.is_empty() {
            self.say("nothing here");
            return Ok(());
        }
        let mut table = Table::new(columns.iter().map(|(name, _)| *name));
        for item in items {
            table.row(columns.iter().map(|(_, path)| cell(item, path)));
        }
        self.text(table.render(terminal_width()).trim_end())
    }

    /// Rows of fields whose names are only known now.
    pub(crate) fn table(self, rows: &[Value], names: &[String]) -> Result<()> {
        if rows.is_empty() {
            self.say("nothing here");
            return Ok(());
        }
        let mut table = Table::new(names.iter().map(String::as_str));
        for row in rows {
            table.row(names.iter().map(|name| plain(&row[name])));
        }
        self.text(table.render(terminal_width()).trim_end())
    }

    /// One thing, a line for each field.
    pub(crate) fn record(self, item: &Value, fields: &[Column]) -> Result<()> {
        if self.is_json() {
            return self.json(item);
        }
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let lines: Vec<_> = fields
            .iter()
            .map(|(name, path)| format!("{name:width$}  {}", cell(item, path)))
            .collect();
        self.text(&lines.join("\n"))
    }

    /// One entry of a stream: a JSON line, or the given text.
    pub(crate) fn entry(self, item: &Value, text: impl FnOnce(&Value) -> String) -> Result<()> {
        let line = if self.is_json() { item.to_string() } else { text(item) };
        self.text(&line)
    }

    /// Something was done: JSON gets the thing itself, a person the sentence.
    pub(crate) fn done(self, item: &Value, sentence: &str) -> Result<()> {
        if self.is_json() {
            return self.json(item);
        }
        self.say(sentence);
        Ok(())
    }

    pub(crate) fn json(self, value: &Value) -> Result<()> {
        self.text(&format!("{value:#}"))
    }

    /// Data as it is, with a newline.
    #[allow(clippy::unused_self, reason = "all that is printed goes through an output")]
    pub(crate) fn text(self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.write_all(b"\n")?;
        out.flush().map_err(Failure::from)
    }

    /// A sentence for the person, on stderr, unless `--quiet`.
    pub(crate) fn say(self, text: &str) {
        if self.talk > Talk::Quiet {
            to_stderr(text);
        }
    }

    /// A detail for `--verbose`.
    pub(crate) fn detail(self, text: impl FnOnce() -> String) {
        if self.talk == Talk::Verbose {
            to_stderr(&text());
        }
    }

    /// An error is said even with `--quiet`.
    pub(crate) fn fail(self, failure: &Failure) {
        if self.is_json() {
            to_stderr(&failure.json().to_string());
        } else {
            to_stderr(&printable(&failure.text(), true));
        }
    }
}

/// Writes a line to stderr. If that fails there is nowhere left to say so.
pub(crate) fn to_stderr(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn terminal_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// The value at a dotted path, as one printable line.
pub(crate) fn cell(item: &Value, path: &str) -> String {
    let value = path.split('.').try_fold(item, |value, step| value.get(step));
    plain(value.unwrap_or(&Value::Null))
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => printable(text, false),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        Value::Object(fields) if fields.is_empty() => "-".to_owned(),
        Value::Object(fields) => {
            let pair = |(name, value): (&String, &Value)| {
                format!("{}={}", printable(name, false), plain(value))
            };
            fields.iter().map(pair).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

/// Replaces what a terminal would obey: control characters and direction overrides.
pub(crate) fn printable(text: &str, lines: bool) -> String {
    let obeyed = |c: char| {
        (c.is_control() && !(lines && c == '\n'))
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if obeyed(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cell_is_one_printable_line() {
        let item = json!({
            "name": "acme", "none": null, "tags": {"a": "1", "b": "2"}, "zones": ["ae", "sa"],
            "evil": "a\u{1b}[2J\nroot", "deep": {"x": 7}, "empty": [],
        });
        for (path, expected) in [
            ("name", "acme"),
            ("none", "-"),
            ("absent", "-"),
            ("empty", "-"),
            ("tags", "a=1,b=2"),
            ("zones", "ae,sa"),
            ("deep.x", "7"),
            ("evil", "a\u{fffd}[2J\u{fffd}root"),
        ] {
            assert_eq!(cell(&item, path), expected, "{path}");
        }
    }
}
