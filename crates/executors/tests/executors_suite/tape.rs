//! Exchanges with a cluster, recorded and played again.
//!
//! What changes something stands in order, and must come again in that order and with the same content. What
//! only asks is answered as it was at that time after the last change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// JSON, or a text.
    pub(crate) body: Value,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Tape {
    /// The version of the cluster.
    version: String,
    /// What was asked before the first change, and then each change with what was asked after it.
    parts: Vec<Part>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Part {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    change: Option<Change>,
    /// By method and path: milliseconds after the change, and the answer from then on.
    asked: BTreeMap<String, Vec<(u64, Answer)>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Change {
    key: String,
    #[serde(default)]
    body: Value,
    answer: Answer,
}

/// Whether a request only asks.
pub(crate) fn asks(key: &str) -> bool {
    key.starts_with("GET ") && !key.contains("/exec?")
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap()
}

#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    tape: Tape,
    since: Instant,
}

impl Recorder {
    pub(crate) fn new(path: PathBuf) -> Self {
        let tape = Tape { version: String::new(), parts: vec![Part::default()] };
        Self { path, tape, since: Instant::now() }
    }

    pub(crate) fn version(&mut self, version: String) {
        self.tape.version = version;
    }

    pub(crate) fn change(&mut self, key: String, body: Value, answer: &Answer) {
        let change = Some(Change { key, body: steady(body), answer: short(answer) });
        self.tape.parts.push(Part { change, asked: BTreeMap::new() });
        self.since = Instant::now();
    }

    pub(crate) fn asked(&mut self, key: String, answer: &Answer) {
        let (at, answer) = (millis(self.since), short(answer));
        let answers = self.tape.parts.last_mut().unwrap().asked.entry(key).or_default();
        if answers.last().is_none_or(|(_, last)| *last != answer) {
            answers.push((at, answer));
        }
    }

    pub(crate) fn save(&self) {
        std::fs::write(&self.path, serde_json::to_vec(&self.tape).unwrap()).unwrap();
    }
}

/// What of an answer nobody reads: mostly what a request has said before.
const UNREAD: [&str; 12] = [
    "affinity",
    "containers",
    "data",
    "managedFields",
    "resources",
    "resourceVersion",
    "securityContext",
    "template",
    "tolerations",
    "topologySpreadConstraints",
    "volumeMounts",
    "volumes",
];

/// Leaves out what nobody reads.
pub(crate) fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|name, _| !UNREAD.contains(&name.as_str()));
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

fn short(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    strip(&mut answer.body);
    answer
}

/// A body without the times that are in it, and without our own script: that nobody runs here.
fn steady(body: Value) -> Value {
    let field = |(name, value): (String, Value)| {
        let value = if name == "run.sh" { Value::String(String::new()) } else { steady(value) };
        (name, value)
    };
    match body {
        Value::Object(map) => map.into_iter().map(field).collect(),
        Value::Array(list) => list.into_iter().map(steady).collect(),
        Value::String(text) => {
            // From 2001 to 2033.
            let is_time = |digits: &str| digits.len() == 13 && digits.starts_with('1');
            let mut out = String::new();
            let mut digits = String::new();
            for c in text.chars().chain(['\0']) {
                if c.is_ascii_digit() {
                    digits.push(c);
                    continue;
                }
                out.push_str(if is_time(&digits) { "TIME" } else { &digits });
                digits.clear();
                out.push(c);
            }
            out.pop();
            out.into()
        }
        other => other,
    }
}

#[derive(Debug)]
pub(crate) struct Player {
    tape: Tape,
    at: usize,
    since: Instant,
    /// The first thing that was not as recorded.
    pub(crate) failed: Option<String>,
}

impl Player {
    pub(crate) fn open(path: &Path) -> Self {
        let bytes = std::fs::read(path)
            .unwrap_or_else(|error| panic!("{}: {error}: record it", path.display()));
        let tape = serde_json::from_slice(&bytes).unwrap();
        Self { tape, at: 0, since: Instant::now(), failed: None }
    }

    fn fail(&mut self, what: String) -> Answer {
        let body = Value::String(what.clone());
        self.failed.get_or_insert(what);
        Answer { status: 500, body }
    }

    pub(crate) fn change(&mut self, key: &str, body: Value) -> Answer {
        let body = steady(body);
        let next = self.tape.parts.get(self.at + 1).and_then(|part| part.change.as_ref());
        match next {
            Some(next) if next.key == key && next.body == body => {
                let answer = next.answer.clone();
                self.at += 1;
                self.since = Instant::now();
                answer
            }
            Some(next) => {
                let wanted = format!("{} {}", next.key, next.body);
                self.fail(format!("change {}: {key} {body}\nwas recorded as {wanted}", self.at + 1))
            }
            None => self.fail(format!("{key} {body} comes after all that was recorded")),
        }
    }

    pub(crate) fn asked(&mut self, key: &str) -> Answer {
        // A cluster takes longer to answer than a tape. What follows an end must not come before it.
        let is_log = key.contains("/log?");
        let now = millis(self.since) + if is_log { 300 } else { 0 };
        let (past, future) = self.tape.parts.split_at(self.at + 1);
        if is_log && !past[self.at].asked.contains_key(key) {
            // Whoever asks sooner than when it was recorded has seen more than was known before. A log only grows.
            let next = future.iter().find_map(|part| part.asked.get(key));
            if let Some((_, answer)) = next.and_then(|answers| answers.first()) {
                return answer.clone();
            }
        }
        // Not asked after this change: nothing is known but what was before.
        let known = past.iter().rev().find_map(|part| part.asked.get(key));
        let Some(answers) = known else {
            return self.fail(format!("{key} was never asked before change {}", self.at + 1));
        };
        let here = past[self.at].asked.contains_key(key);
        let answer = if here {
            answers.iter().rev().find(|(at, _)| *at <= now).or(answers.first())
        } else {
            answers.last()
        };
        answer.unwrap().1.clone()
    }

    /// What was recorded and has not come.
    pub(crate) fn left(&self) -> usize {
        self.tape.parts.len() - 1 - self.at
    }
}
