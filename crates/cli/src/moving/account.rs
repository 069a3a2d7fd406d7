//! What there was, what was sent, and what does not agree.

use std::time::Instant;

use serde_json::{Value, json};

use crate::exit::{Exit, Failure, Result};
use crate::output::progress::{Ticker, human};
use crate::output::{Column, Output};

/// How many differences and notes are shown of each.
const SHOWN: usize = 50;
/// How many refusals are: each is something to look after.
const REFUSED: usize = 1000;

/// What is counted, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Experiments,
    Runs,
    Params,
    Tags,
    Points,
    Datasets,
    LoggedModels,
    Models,
    Versions,
    Aliases,
    Traces,
    Files,
    Bytes,
}

const KINDS: [(Kind, &str); 13] = [
    (Kind::Experiments, "experiments"),
    (Kind::Runs, "runs"),
    (Kind::Params, "parameters"),
    (Kind::Tags, "run tags"),
    (Kind::Points, "metric points"),
    (Kind::Datasets, "dataset inputs"),
    (Kind::LoggedModels, "logged models"),
    (Kind::Models, "registered models"),
    (Kind::Versions, "model versions"),
    (Kind::Aliases, "aliases"),
    (Kind::Traces, "traces"),
    (Kind::Files, "artifact files"),
    (Kind::Bytes, "artifact bytes"),
];

/// The account of one move.
pub(crate) struct Account {
    found: [u64; KINDS.len()],
    sent: [u64; KINDS.len()],
    differences: Vec<String>,
    notes: Vec<String>,
    more_differences: u64,
    /// What the server, or this command, refused.
    refused: Vec<String>,
    more_refused: u64,
    /// What was refused in the round before.
    known_refused: Vec<String>,
    /// What had been sent when this round began.
    before: [u64; KINDS.len()],
    started: Instant,
    ticker: Ticker,
    output: Output,
}

const COLUMNS: &[Column] = &[("kind", "kind"), ("found", "found"), ("moved now", "moved")];

impl Account {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            found: [0; KINDS.len()],
            sent: [0; KINDS.len()],
            differences: Vec::new(),
            notes: Vec::new(),
            more_differences: 0,
            refused: Vec::new(),
            more_refused: 0,
            known_refused: Vec::new(),
            before: [0; KINDS.len()],
            started: Instant::now(),
            ticker: Ticker::new(output),
            output,
        }
    }

    /// So many more were found where they come from.
    pub(crate) fn found(&mut self, kind: Kind, count: usize) {
        self.found[kind as usize] += count as u64;
        self.tick();
    }

    /// So many more went over; the others were there already.
    pub(crate) fn sent(&mut self, kind: Kind, count: usize) {
        self.sent[kind as usize] += count as u64;
        self.tick();
    }

    pub(crate) fn differs(&mut self, what: String) {
        if self.differences.len() < SHOWN {
            self.differences.push(what);
        } else {
            self.more_differences += 1;
        }
    }

    /// Something was refused and left out, and the rest goes on.
    pub(crate) fn refused(&mut self, what: String) {
        if self.refused.len() < REFUSED {
            self.refused.push(what);
        } else {
            self.more_refused += 1;
        }
    }

    /// What was refused in this round and not in the one before.
    pub(crate) fn newly_refused(&self) -> Vec<String> {
        let new = self.refused.iter().filter(|one| !self.known_refused.contains(one));
        new.cloned().collect()
    }

    /// Begins anew with what is found; what was sent adds up, and what differed may do so no more.
    pub(crate) fn begin_round(&mut self) {
        self.found = [0; KINDS.len()];
        self.before = self.sent;
        self.differences.clear();
        self.more_differences = 0;
        self.known_refused = std::mem::take(&mut self.refused);
        self.more_refused = 0;
    }

    /// What this round has sent, in words; nothing if that is nothing.
    pub(crate) fn round(&self) -> Option<String> {
        let parts: Vec<String> = KINDS
            .iter()
            .filter_map(|(kind, name)| {
                let at = *kind as usize;
                let sent = self.sent[at] - self.before[at];
                (sent > 0).then(|| format!("{sent} {name}"))
            })
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Says something between two rounds.
    pub(crate) fn say(&self, text: &str) {
        self.output.say(text);
    }

    /// Compares two digests of the same thing, and tells whether they agree.
    pub(crate) fn compare(&mut self, what: &str, ours: &str, theirs: Option<&str>) -> bool {
        let same = theirs == Some(ours);
        if !same {
            let theirs = theirs.unwrap_or("nothing");
            self.differs(format!("{what}: {ours} was expected, {theirs} is there"));
        }
        same
    }

    /// Something that could not come along, said once at the end.
    pub(crate) fn note(&mut self, text: String) {
        if self.notes.len() < SHOWN && !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    fn tick(&mut self) {
        let line = || {
            let at = |kind: Kind| self.found[kind as usize];
            let seconds = self.started.elapsed().as_secs_f64().max(0.001);
            #[allow(clippy::cast_precision_loss, reason = "rates for people")]
            let rate = |count: u64| count as f64 / seconds;
            format!(
                "{} runs, {} points ({:.0}/s), {} files ({}/s), {seconds:.0} s",
                at(Kind::Runs),
                at(Kind::Points),
                rate(at(Kind::Points)),
                at(Kind::Files),
                human(rate(at(Kind::Bytes))),
            )
        };
        self.ticker.tick(line);
    }

    /// Prints the account; differences are a failure.
    pub(crate) fn close(mut self, verb: &str) -> Result<()> {
        self.ticker.clear();
        let rows: Vec<Value> = KINDS
            .iter()
            .map(|(kind, name)| {
                let at = *kind as usize;
                json!({ "kind": name, "found": self.found[at], "moved": self.sent[at] })
            })
            .collect();
        let seconds = self.started.elapsed().as_secs_f64();
        if self.output.is_json() {
            let all = json!({
                "kinds": rows,
                "differences": self.differences,
                "left_out": self.refused,
                "notes": self.notes,
                "seconds": seconds,
            });
            self.output.json(&all)?;
        } else {
            self.output.list(&rows, COLUMNS)?;
        }
        for note in &self.notes {
            self.output.say(&format!("note: {note}"));
        }
        for difference in &self.differences {
            self.output.say(&format!("differs: {difference}"));
        }
        for refused in &self.refused {
            self.output.say(&format!("left out: {refused}"));
        }
        if self.more_refused > 0 {
            self.output.say(&format!("left out: {} more", self.more_refused));
        }
        let count = self.differences.len() as u64 + self.more_differences;
        if count > 0 {
            return Err(Failure::new(
                Exit::Verification,
                format!("{count} things are not as they were where they come from"),
            )
            .hint("run the command again: what is missing is sent, what is there is left alone"));
        }
        let refused = self.refused.len() as u64 + self.more_refused;
        if refused > 0 {
            return Err(Failure::failed(format!("{refused} things were refused and left out"))
                .hint(
                    "run the command again when what is in their way is gone: the rest is there",
                ));
        }
        self.output.say(&format!("{verb} and verified in {seconds:.1} s"));
        Ok(())
    }
}
