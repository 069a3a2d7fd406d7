//! CSV as RFC 4180 has it, read as it comes: rows of fields, of bounded size.
//!
//! A field that stands between quotes may hold the delimiter, line ends and, doubled, quotes. Lines
//! end with LF or CRLF. A mark of UTF-8 at the beginning is passed over.

use std::io::{self, Read};

use falaj_base::{Error, Result, code};

const BUFFER: usize = 256 << 10;

/// One field: where it lies in the row's text, and whether it stood between quotes, which tells an
/// empty text from nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    end: usize,
    quoted: bool,
}

/// One row.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    text: Vec<u8>,
    fields: Vec<Field>,
}

impl Row {
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// A field, and whether it stood between quotes.
    pub(super) fn get(&self, place: usize) -> Option<(&[u8], bool)> {
        let field = self.fields.get(place)?;
        let start = place.checked_sub(1).map_or(0, |before| self.fields[before].end);
        Some((&self.text[start..field.end], field.quoted))
    }

    fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
    }

    fn end_field(&mut self, quoted: bool) {
        self.fields.push(Field { end: self.text.len(), quoted });
    }

    /// A line without anything on it.
    fn is_blank(&self) -> bool {
        self.text.is_empty() && self.fields.len() == 1 && !self.fields[0].quoted
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the beginning of a field.
    Start,
    Plain,
    Quoted,
    /// After a quote that ended the field, or was the first of two.
    Closed,
}

pub(super) struct Reader<R> {
    from: R,
    buffer: Vec<u8>,
    /// What of the buffer is yet to be read.
    left: std::ops::Range<usize>,
    delimiter: u8,
    /// Bytes of a row at most.
    most: usize,
    line: u64,
    begun: bool,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R, delimiter: u8, most: usize) -> Self {
        let buffer = vec![0; BUFFER];
        Self { from, buffer, left: 0..0, delimiter, most, line: 1, begun: false }
    }

    /// The line that the next row begins on.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Reads the next row; false at the end. Lines without anything on them are passed over.
    pub(super) fn next(&mut self, row: &mut Row) -> Result<bool> {
        loop {
            row.clear();
            if !self.read(row)? {
                return Ok(false);
            }
            if !row.is_blank() {
                return Ok(true);
            }
        }
    }

    fn byte(&mut self) -> Result<Option<u8>> {
        if self.left.is_empty() {
            let count = self.from.read(&mut self.buffer).map_err(passed_on)?;
            self.left = 0..count;
            if !self.begun {
                self.begun = true;
                // A read may give less than the mark; files do not come in such small pieces.
                if self.buffer[..count].starts_with(b"\xef\xbb\xbf") {
                    self.left.start = 3;
                }
            }
            if self.left.is_empty() {
                return Ok(None);
            }
        }
        self.left.start += 1;
        Ok(Some(self.buffer[self.left.start - 1]))
    }

    fn read(&mut self, row: &mut Row) -> Result<bool> {
        let (first, mut state, mut quoted, mut any) = (self.line, State::Start, false, false);
        loop {
            let Some(byte) = self.byte()? else {
                if state == State::Quoted {
                    let text = format!("the quotes that line {first} opens are never closed");
                    return Err(Error::new(&code::INVALID_INPUT, text).at("file"));
                }
                if any {
                    row.end_field(quoted);
                }
                return Ok(any);
            };
            any = true;
            if byte == b'\n' {
                self.line += 1;
            }
            if state == State::Quoted {
                if byte == b'"' {
                    state = State::Closed;
                } else {
                    row.text.push(byte);
                }
            } else if byte == self.delimiter {
                row.end_field(quoted);
                (state, quoted) = (State::Start, false);
            } else if byte == b'\n' {
                // The other half of a CRLF is no content, unless it stood between the quotes.
                let start = row.fields.last().map_or(0, |field| field.end);
                if state == State::Plain && row.text[start..].last() == Some(&b'\r') {
                    row.text.pop();
                }
                row.end_field(quoted);
                return Ok(true);
            } else {
                state = match (state, byte) {
                    (State::Start, b'"') => {
                        quoted = true;
                        State::Quoted
                    }
                    (State::Closed, b'"') => {
                        row.text.push(byte);
                        State::Quoted
                    }
                    (State::Closed, b'\r') => State::Closed,
                    (State::Closed, _) => {
                        let found = format!("{:?} after the closing quote", char::from(byte));
                        let allowed = "the delimiter or the end of the line";
                        return Err(Error::invalid(format!("line {}", self.line), found, allowed));
                    }
                    _ => {
                        row.text.push(byte);
                        State::Plain
                    }
                };
            }
            if row.text.len() > self.most {
                let text = format!(
                    "the row on line {first} has more than {} bytes (`datasets.max_csv_row`)",
                    self.most
                );
                return Err(Error::new(&code::TOO_LARGE, text));
            }
            if row.fields.len() > MAX_FIELDS {
                let found = format!("more than {MAX_FIELDS} fields");
                return Err(Error::invalid(format!("line {first}"), found, "fewer fields"));
            }
        }
    }
}

/// Fields of a row at most; how many a dataset may have is checked with the first.
const MAX_FIELDS: usize = 20_000;

/// An error of ours that came through a reader is told as it was.
fn passed_on(error: io::Error) -> Error {
    error.downcast::<Error>().unwrap_or_else(Error::internal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Rows = Vec<Vec<(String, bool)>>;

    fn rows(text: &[u8]) -> Result<Rows> {
        // Small pieces, so that everything is once at their end.
        struct Small<'a>(&'a [u8]);
        impl Read for Small<'_> {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                let count = self.0.len().min(5).min(to.len());
                to[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let (mut reader, mut row, mut all) =
            (Reader::new(Small(text), b',', 100), Row::default(), Vec::new());
        while reader.next(&mut row)? {
            let field = |place| {
                let (bytes, quoted) = row.get(place).unwrap();
                (String::from_utf8_lossy(bytes).into_owned(), quoted)
            };
            all.push((0..row.len()).map(field).collect());
        }
        Ok(all)
    }

    fn plain(fields: &[&str]) -> Vec<(String, bool)> {
        fields.iter().map(|field| ((*field).to_owned(), false)).collect()
    }

    #[test]
    fn rows_are_read_as_they_were_meant() {
        let table: [(&str, Rows); 7] = [
            ("", vec![]),
            ("a,b\n1,2\n", vec![plain(&["a", "b"]), plain(&["1", "2"])]),
            ("a,b\r\n1,2", vec![plain(&["a", "b"]), plain(&["1", "2"])]),
            ("\u{feff}a\n", vec![plain(&["a"])]),
            ("a\n\n\r\nb\n", vec![plain(&["a"]), plain(&["b"])]),
            ("a,\n", vec![plain(&["a", ""])]),
            (
                "\"x,\"\"y\"\"\r\nz\",\"\",\n",
                vec![vec![
                    ("x,\"y\"\r\nz".into(), true),
                    (String::new(), true),
                    (String::new(), false),
                ]],
            ),
        ];
        for (text, expected) in table {
            assert_eq!(rows(text.as_bytes()).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        for (text, words) in [
            ("a\n\"b", "line 2 opens"),
            ("a\n\"b\"c\n", "line 2"),
            (&format!("a\n{}", "x".repeat(200)), "line 2 has more than"),
            (&format!("a\n\"{}", "\n".repeat(200)), "line 2 has more than"),
        ] {
            assert!(rows(text.as_bytes()).unwrap_err().message().contains(words), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            table in prop::collection::vec(prop::collection::vec("[ -~\r\n\"é]{0,12}", 1..5), 1..6),
        ) {
            let quoted = |field: &String| format!("\"{}\"", field.replace('"', "\"\""));
            let line = |row: &Vec<String>| row.iter().map(quoted).collect::<Vec<_>>().join(",");
            let text = table.iter().map(line).collect::<Vec<_>>().join("\r\n");
            let expected: Rows = table
                .iter()
                .map(|row| row.iter().map(|field| (field.clone(), true)).collect())
                .collect();
            prop_assert_eq!(rows(text.as_bytes()).unwrap(), expected);
        }
    }
}
