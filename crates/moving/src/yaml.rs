//! The YAML that MLflow writes. Scalars are kept as the texts they are: it is the reader of a field
//! who knows whether that is a number. (`59187e80` is a digest to MLflow and a number to YAML 1.2.)

use std::collections::BTreeMap;
use std::path::Path;

use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::error::{Error, Result};

/// The largest file that is read: a dataset's profile can have 16 MB.
const LARGEST: u64 = 32 << 20;
/// How deep values may nest.
const DEEPEST: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Null,
    Text(String),
    List(Vec<Node>),
    Map(BTreeMap<String, Node>),
}

/// Reads a file that holds one mapping.
pub(crate) fn read(path: &Path) -> Result<Fields> {
    let found = std::fs::symlink_metadata(path).map_err(Error::reading(path))?;
    if !found.is_file() {
        return Err(Error::malformed(
            path.display(),
            "it is a link or no file; links are not followed",
        ));
    }
    let size = found.len();
    if size > LARGEST {
        let why = format!("it has {size} bytes; at most {LARGEST} are read");
        return Err(Error::malformed(path.display(), why));
    }
    let text = std::fs::read_to_string(path).map_err(Error::reading(path))?;
    let at = path.display().to_string();
    match parse(&text).map_err(|why| Error::malformed(&at, why))? {
        Node::Map(map) => Ok(Fields { at, map }),
        _ => Err(Error::malformed(at, "it holds no mapping")),
    }
}

pub(crate) fn parse(text: &str) -> Result<Node, String> {
    let mut stack: Vec<Open> = Vec::new();
    let mut whole = None;
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| format!("not valid YAML: {error}"))?;
        let done = match event {
            Event::Scalar(text, style, _, _) => Some(scalar(&text, style)),
            Event::SequenceStart(..) => {
                stack.push(Open::List(Vec::new()));
                None
            }
            Event::MappingStart(..) => {
                stack.push(Open::Map(BTreeMap::new(), None));
                None
            }
            Event::SequenceEnd | Event::MappingEnd => stack.pop().map(Open::close),
            Event::Alias(_) => return Err("aliases are not read".to_owned()),
            Event::DocumentEnd => break,
            _ => None,
        };
        if stack.len() > DEEPEST {
            return Err(format!("values nest deeper than {DEEPEST}"));
        }
        let Some(done) = done else { continue };
        match stack.last_mut() {
            Some(open) => open.take(done)?,
            None => whole = Some(done),
        }
    }
    Ok(whole.unwrap_or(Node::Null))
}

/// A value that has begun.
enum Open {
    List(Vec<Node>),
    /// What is there, and a key that waits for its value.
    Map(BTreeMap<String, Node>, Option<String>),
}

impl Open {
    fn take(&mut self, node: Node) -> Result<(), String> {
        match self {
            Self::List(list) => list.push(node),
            Self::Map(map, key) => match key.take() {
                Some(key) => drop(map.insert(key, node)),
                None => match node {
                    Node::Text(text) => *key = Some(text),
                    Node::Null => *key = Some(String::new()),
                    _ => return Err("a key is not a text".to_owned()),
                },
            },
        }
        Ok(())
    }

    fn close(self) -> Node {
        match self {
            Self::List(list) => Node::List(list),
            Self::Map(map, _) => Node::Map(map),
        }
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Node {
    let null = matches!(text, "" | "~" | "null" | "Null" | "NULL");
    if style == ScalarStyle::Plain && null { Node::Null } else { Node::Text(text.to_owned()) }
}

/// The fields of a file.
#[derive(Debug)]
pub(crate) struct Fields {
    at: String,
    map: BTreeMap<String, Node>,
}

impl Fields {
    /// A text; absent, null and empty are the same to MLflow's own readers.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        match self.map.get(name) {
            Some(Node::Text(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        }
    }

    pub(crate) fn required(&self, name: &str) -> Result<String> {
        self.text(name).ok_or_else(|| Error::malformed(&self.at, format!("`{name}` is missing")))
    }

    pub(crate) fn int(&self, name: &str) -> Result<Option<i64>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse::<i64>().ok().or_else(|| whole(text.parse().ok()?));
        number.map(Some).ok_or_else(|| {
            Error::malformed(&self.at, format!("`{name}` is `{text}`, not a whole number"))
        })
    }

    /// The pairs of a mapping of texts.
    pub(crate) fn pairs(&self, name: &str) -> Vec<(String, String)> {
        let Some(Node::Map(map)) = self.map.get(name) else { return Vec::new() };
        let text = |node: &Node| match node {
            Node::Text(text) => text.clone(),
            _ => String::new(),
        };
        map.iter().map(|(key, value)| (key.clone(), text(value))).collect()
    }
}

/// Old versions wrote times with a fraction.
#[allow(clippy::cast_possible_truncation, reason = "within 2^53")]
fn whole(value: f64) -> Option<i64> {
    (value.abs() <= 9_007_199_254_740_992.0).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        match parse(text).unwrap() {
            Node::Map(map) => Fields { at: "test".to_owned(), map },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_mlflow_writes() {
        let read = fields(
            "digest: 59187e80\nname: 'a: b'\nprofile: '{\"x\": 1,\n  \"y\": 2}'\nend_time: null\n\
             tags:\n  k: v\n  n: 5\nstatus: 3\ntime: 15.0\nnothing:\nlist: [1, two]\nno: off\n",
        );
        assert_eq!(read.text("digest").as_deref(), Some("59187e80"));
        assert_eq!(read.text("name").as_deref(), Some("a: b"));
        assert_eq!(read.text("profile").as_deref(), Some("{\"x\": 1, \"y\": 2}"));
        assert_eq!(read.text("end_time"), None);
        assert_eq!(read.text("nothing"), None);
        assert_eq!(read.text("no").as_deref(), Some("off"));
        assert_eq!((read.int("status").unwrap(), read.int("time").unwrap()), (Some(3), Some(15)));
        assert_eq!(read.pairs("tags"), [("k".into(), "v".into()), ("n".into(), "5".into())]);
        assert!(read.int("digest").is_err() && read.int("name").is_err());
        assert!(read.required("absent").unwrap_err().to_string().contains("`absent` is missing"));
    }

    #[test]
    fn what_is_refused() {
        let deep = "[".repeat(40);
        for text in ["a: &x 1\nb: *x\n", "a: [", "{a: b", &deep, "? [1]\n: 2\n"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
