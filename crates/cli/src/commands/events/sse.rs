//! Server-sent events, as far as our own server speaks them: `id`, `event`, `data` and comments, lines
//! ended by LF or CRLF.

use crate::exit::{Failure, Result};

/// The longest message that is put together.
const MAX_MESSAGE: usize = 4 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) id: Option<String>,
    /// What kind of event it is, if it says so.
    pub(crate) kind: Option<String>,
    pub(crate) data: String,
}

/// Puts messages together from pieces that end anywhere, also inside a letter.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    rest: Vec<u8>,
    id: Option<String>,
    kind: Option<String>,
    data: Option<String>,
}

impl Parser {
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<Vec<Message>> {
        self.rest.extend_from_slice(piece);
        let mut messages = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            messages.extend(self.line(line.trim_end_matches(['\n', '\r'])));
        }
        if self.rest.len() + self.data.as_ref().map_or(0, String::len) > MAX_MESSAGE {
            return Err(Failure::failed(format!("an event is larger than {MAX_MESSAGE} bytes")));
        }
        Ok(messages)
    }

    fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let (id, kind) = (self.id.take(), self.kind.take());
            return self.data.take().map(|data| Message { id, kind, data });
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.id = Some(value.to_owned()),
            "event" => self.kind = Some(value.to_owned()),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // A comment begins with a colon, so its name is empty; other fields are not ours.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_may_end_anywhere() {
        let text =
            ": hello\n\nid: 7\ndata: {\"a\":\ndata: \"é\"}\n\nevent: x\r\ndata:y\r\n\r\n: bye\n";
        let expected = vec![
            Message { id: Some("7".into()), kind: None, data: "{\"a\":\n\"é\"}".into() },
            Message { id: None, kind: Some("x".into()), data: "y".into() },
        ];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                found.extend(parser.feed(piece).unwrap());
            }
            assert_eq!(found, expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_message_without_end_is_refused() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        assert!((0..6).any(|_| parser.feed(&piece).is_err()));
    }
}
