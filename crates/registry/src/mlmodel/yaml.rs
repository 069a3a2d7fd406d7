//! Reading the plain block style in which MLflow writes an `MLmodel` file, and nothing beyond it.
//!
//! Must hold: time and memory are bounded by the text's own length. Anchors, aliases and tags mean
//! nothing here and stay text, so a small file cannot become a large tree, and nothing is ever
//! constructed but maps, lists and texts.

use serde_json::{Map, Value};

/// How deep maps and lists may lie in each other.
const MAX_DEPTH: usize = 16;

/// The most values in one file.
const MAX_VALUES: usize = 20_000;

/// What a text says; nothing if it is not of the style that is understood.
pub(super) fn read(text: &str) -> Option<Value> {
    let lines = text.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect();
    let mut reader = Reader { lines, at: 0, values: 0 };
    let indent = reader.peek()?.0;
    let value = reader.block(indent, 0)?;
    reader.peek().is_none().then_some(value)
}

struct Reader {
    lines: Vec<String>,
    /// The next line.
    at: usize,
    values: usize,
}

impl Reader {
    /// The next line that says something: its indentation and content. It stays the next one.
    fn peek(&mut self) -> Option<(usize, String)> {
        while let Some(line) = self.lines.get(self.at) {
            let content = line.trim_start_matches(' ');
            if content.trim().is_empty() || content.starts_with('#') || content == "---" {
                self.at += 1;
                continue;
            }
            return Some((line.len() - content.len(), content.trim_end().to_owned()));
        }
        None
    }

    fn count(&mut self) -> Option<()> {
        self.values += 1;
        (self.values <= MAX_VALUES).then_some(())
    }

    /// A map or a list whose lines begin at `indent`.
    fn block(&mut self, indent: usize, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (_, first) = self.peek()?;
        if is_item(&first) { self.list(indent, depth) } else { self.map(indent, depth) }
    }

    fn map(&mut self, indent: usize, depth: usize) -> Option<Value> {
        let mut map = Map::new();
        while let Some((at, line)) = self.peek() {
            if at < indent || (at == indent && is_item(&line)) {
                break;
            }
            if at > indent {
                return None;
            }
            let (key, rest) = split_key(&line)?;
            self.count()?;
            self.at += 1;
            let value = self.value(rest, indent, depth)?;
            map.insert(key, value);
        }
        Some(Value::Object(map))
    }

    fn list(&mut self, indent: usize, depth: usize) -> Option<Value> {
        let mut list = Vec::new();
        while let Some((at, line)) = self.peek() {
            if at != indent || !is_item(&line) {
                break;
            }
            self.count()?;
            let rest = line[1..].trim_start();
            if split_key(rest).is_some() {
                // A map that begins behind the dash: its other lines stand below its first.
                let inner = indent + line.len() - rest.len();
                self.lines[self.at] = format!("{}{rest}", " ".repeat(inner));
                list.push(self.block(inner, depth + 1)?);
            } else {
                self.at += 1;
                list.push(self.value(rest, indent, depth)?);
            }
        }
        Some(Value::Array(list))
    }

    /// What stands behind a key or a dash, on its line or below it.
    fn value(&mut self, rest: &str, indent: usize, depth: usize) -> Option<Value> {
        match rest.chars().next() {
            None => match self.peek() {
                Some((at, line)) if at > indent || (at == indent && is_item(&line)) => {
                    self.block(at, depth + 1)
                }
                _ => Some(Value::Null),
            },
            Some(quote @ ('\'' | '"')) => self.quoted(rest, quote),
            Some('|' | '>') => Some(Value::String(self.literal(indent, rest.starts_with('>')))),
            Some(_) => Some(self.plain(rest, indent)),
        }
    }

    /// A quoted text, which may go on over further lines: a line break in it is a space.
    fn quoted(&mut self, first: &str, quote: char) -> Option<Value> {
        let mut inside = String::new();
        let mut line = first[1..].to_owned();
        loop {
            match take(&line, quote, &mut inside)? {
                Taken::Closed => return Some(Value::String(inside)),
                Taken::Joined => {}
                Taken::Open => inside.push(' '),
            }
            self.lines.get(self.at)?.trim().clone_into(&mut line);
            self.at += 1;
            if line.is_empty() {
                inside.pop();
                inside.push('\n');
            }
        }
    }

    /// A text in block style: the lines below that are indented further.
    fn literal(&mut self, indent: usize, folded: bool) -> String {
        let mut lines = Vec::new();
        while let Some(line) = self.lines.get(self.at) {
            let content = line.trim_start_matches(' ');
            if !content.is_empty() && line.len() - content.len() <= indent {
                break;
            }
            lines.push(content.to_owned());
            self.at += 1;
        }
        lines.join(if folded { " " } else { "\n" }).trim_end().to_owned()
    }

    /// A bare word, number or text; a long text goes on in further lines.
    fn plain(&mut self, first: &str, indent: usize) -> Value {
        let mut text = without_comment(first).to_owned();
        while let Some((at, line)) = self.peek() {
            if at <= indent {
                break;
            }
            self.at += 1;
            text.push(' ');
            text.push_str(without_comment(&line));
        }
        match text.as_str() {
            "null" | "~" | "Null" | "NULL" => Value::Null,
            "true" | "True" => true.into(),
            "false" | "False" => false.into(),
            "{}" => Value::Object(Map::new()),
            "[]" => Value::Array(Vec::new()),
            _ => Value::String(text),
        }
    }
}

fn is_item(line: &str) -> bool {
    line == "-" || line.starts_with("- ")
}

/// Splits `key: rest`; a key may be quoted.
fn split_key(line: &str) -> Option<(String, &str)> {
    if let Some(quote) = line.chars().next().filter(|c| matches!(c, '\'' | '"')) {
        let end = line[1..].find(quote)? + 1;
        let rest = line[end + 1..].strip_prefix(':')?;
        let is_end = rest.is_empty() || rest.starts_with(' ');
        return is_end.then(|| (line[1..end].to_owned(), rest.trim_start()));
    }
    if let Some((key, rest)) = line.split_once(": ") {
        return Some((key.to_owned(), rest.trim_start()));
    }
    line.strip_suffix(':').map(|key| (key.to_owned(), ""))
}

/// How a line of a quoted text ended.
enum Taken {
    Closed,
    Open,
    /// With a backslash: the next line goes on without a space.
    Joined,
}

/// Adds a line of a quoted text; nothing if something follows the closing quote.
fn take(line: &str, quote: char, inside: &mut String) -> Option<Taken> {
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        if c == quote {
            if quote == '\'' && rest.peek() == Some(&'\'') {
                rest.next();
                inside.push('\'');
                continue;
            }
            let after: String = rest.collect();
            return without_comment(&after).is_empty().then_some(Taken::Closed);
        }
        if c == '\\' && quote == '"' {
            match rest.next() {
                None => return Some(Taken::Joined),
                Some('n') => inside.push('\n'),
                Some('t') => inside.push('\t'),
                Some('x') => inside.push(escaped(&mut rest, 2)?),
                Some('u') => inside.push(escaped(&mut rest, 4)?),
                Some('U') => inside.push(escaped(&mut rest, 8)?),
                Some(other) => inside.push(other),
            }
            continue;
        }
        inside.push(c);
    }
    Some(Taken::Open)
}

fn escaped(rest: &mut impl Iterator<Item = char>, digits: usize) -> Option<char> {
    let digits: String = rest.take(digits).collect();
    u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)
}

fn without_comment(text: &str) -> &str {
    text.find(" #").map_or(text, |at| &text[..at]).trim()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_mlflow_writes() {
        let text = "\
# comment
artifact_path: chain
flavors:
  python_function:
    env:
      conda: conda.yaml
    code: null
    streamable: true
    index:
    - name: a.b
      kind: x
    - plain
  sklearn: {}
long: a text that is
  folded # not this
empty:
signature:
  inputs: '[{\"type\": \"object\", \"properties\":
    {\"content\": \"it''s\"}}]'
  outputs: \"a\\tb \\
    \\ c\\u00e9\"
note: |
  one
  two
size: 12
";
        let expected = json!({
            "artifact_path": "chain",
            "flavors": {
                "python_function": {
                    "env": {"conda": "conda.yaml"}, "code": null, "streamable": true,
                    "index": [{"name": "a.b", "kind": "x"}, "plain"],
                },
                "sklearn": {},
            },
            "long": "a text that is folded",
            "empty": null,
            "signature": {
                "inputs": "[{\"type\": \"object\", \"properties\": {\"content\": \"it's\"}}]",
                "outputs": "a\tb  cé",
            },
            "note": "one\ntwo",
            "size": "12",
        });
        assert_eq!(read(text), Some(expected));
    }

    #[test]
    fn what_is_not_understood() {
        for text in ["", "just words", "a: 'open", "a: 1\n   b: 2\n  c: 3\nd", "? a\n: b"] {
            assert_eq!(read(text), None, "{text:?}");
        }
        let deep: Vec<String> = (0..100).map(|n| format!("{}k:", " ".repeat(n))).collect();
        assert_eq!(read(&deep.join("\n")), None);
        // An alias is a text, not a copy.
        let bomb = "a: &a [x]\nb: *a\n";
        assert_eq!(read(bomb), Some(json!({"a": "&a [x]", "b": "*a"})));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ \n:'\"a-c|>#&*-]{0,200}") {
            let _ = read(&text);
        }
    }
}
