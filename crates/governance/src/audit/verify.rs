//! The offline check: an export, a checkpoint and a public key in; the extent of what is proven,
//! or the first bad entry, out. No server, no database, and memory that does not grow with the
//! log.
//!
//! What is believed: the key, and through its signature the checkpoint. Everything in the export
//! is suspect. A segment's hashes are first tied to the signed root; then each entry is compared
//! with its own hash, which is how a single bad entry is found by number.

use std::io::{BufRead, Read as _};

use falaj_base::Timestamp;
use serde::{Deserialize, Serialize};

use super::checkpoint::{Checkpoint, VerifierKey};
use super::export::{Item, Line, MAX_LINE, Segment, VERSION};
use super::merkle::{Frontier, Hash};

pub use fault::{Fault, Problem};

mod fault;
#[cfg(test)]
mod tests;

/// What an export was shown to contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub origin: String,
    /// How many entries the checkpoint covers, and the root over them.
    pub size: u64,
    pub root: Hash,
    /// How many entries the export shows; the others it covers by hash alone.
    pub entries: u64,
    pub omitted: u64,
    /// Entries after the checkpoint's last one, proven by a later checkpoint in the export.
    pub beyond: u64,
    /// The earliest and latest time of the entries shown.
    pub first_at: Option<Timestamp>,
    pub last_at: Option<Timestamp>,
}

/// Checks `export` against a signed `checkpoint` and the log's public `key`, both as text.
pub fn verify(export: impl BufRead, checkpoint: &str, key: &str) -> Result<Verified, Fault> {
    let key: VerifierKey = key.parse()?;
    let goal = key.open(checkpoint)?;
    let verified = Verified {
        origin: goal.origin.clone(),
        size: goal.size,
        root: goal.root,
        entries: 0,
        omitted: 0,
        beyond: 0,
        first_at: None,
        last_at: None,
    };
    let reader = Reader { source: export, line: Vec::new(), number: 0 };
    let tree = Frontier::default();
    let mut walk = Walk { reader, key, goal, tree, unsigned: None, verified };
    if walk.goal.size == 0 && walk.goal.root != Hash::of_nothing() {
        return Err(walk.mismatch(Hash::of_nothing()));
    }
    while let Some(segment) = walk.next_segment()? {
        walk.segment(&segment)?;
    }
    walk.finish()
}

/// The same from bytes in memory: whatever they are, this answers and does not panic.
pub fn verify_bytes(export: &[u8], checkpoint: &[u8], key: &[u8]) -> Result<Verified, Fault> {
    let text = |bytes, what| {
        std::str::from_utf8(bytes)
            .map_err(|_| Fault::new(Problem::Malformed, None, format!("the {what} is not text")))
    };
    verify(export, text(checkpoint, "checkpoint")?, text(key, "public key")?)
}

struct Reader<R> {
    source: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads the next line into the buffer; false at the end of the export.
    fn advance(&mut self) -> Result<bool, Fault> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.source).take(MAX_LINE as u64 + 1);
        limited.read_until(b'\n', &mut self.line)?;
        if self.line.len() > MAX_LINE {
            let text = format!("line {} is longer than {MAX_LINE} bytes", self.number);
            return Err(Fault::new(Problem::Malformed, None, text));
        }
        Ok(!self.line.is_empty())
    }

    fn unreadable(&self, index: u64) -> Fault {
        let text = format!("line {}, where it should stand, cannot be read", self.number);
        Fault::new(Problem::Altered, Some(index), text)
    }
}

struct Walk<R> {
    reader: Reader<R>,
    key: VerifierKey,
    goal: Checkpoint,
    tree: Frontier,
    /// Where a segment without a checkpoint began. Only the last may lack one.
    unsigned: Option<u64>,
    verified: Verified,
}

impl<R: BufRead> Walk<R> {
    fn next_segment(&mut self) -> Result<Option<Segment>, Fault> {
        let next = self.tree.size();
        if !self.reader.advance()? {
            return Ok(None);
        }
        match Line::parse(&self.reader.line) {
            None => Err(self.reader.unreadable(next)),
            Some(Line::Segment(segment)) if segment.version != VERSION => {
                let text = format!("the export has format version {}", segment.version);
                Err(Fault::new(Problem::Malformed, None, text))
            }
            Some(Line::Segment(segment)) if segment.from < next => Err(duplicated(segment.from)),
            Some(Line::Segment(segment)) if segment.from > next => Err(self.absent(next)),
            Some(Line::Segment(segment)) => Ok(Some(segment)),
            Some(Line::Entry { index, .. }) if index < next => Err(duplicated(index)),
            Some(Line::Entry { index, .. }) if next >= self.goal.size => {
                let text = "no signed checkpoint covers it".to_owned();
                Err(Fault::new(Problem::Uncovered, Some(index), text))
            }
            Some(Line::Entry { .. }) => {
                let text = "the segment line that covers it is gone".to_owned();
                Err(Fault::new(Problem::Missing, Some(next), text))
            }
        }
    }

    /// Ties the segment to the signed roots, then its entries to the segment. A segment that
    /// fails the first is still searched for an entry at odds with it: that names the culprit.
    fn segment(&mut self, segment: &Segment) -> Result<(), Fault> {
        let tied = self.tie(segment)?;
        let mut index = segment.from;
        for item in &segment.items {
            match item {
                Item::Leaf(hash) => {
                    self.entry(index, *hash, segment)?;
                    index += 1;
                    self.verified.entries += 1;
                }
                Item::Skip { skip, .. } => {
                    index += skip;
                    self.verified.omitted += skip;
                }
            }
        }
        self.verified.beyond = index.saturating_sub(self.goal.size);
        tied
    }

    /// Extends the tree by a segment. The outer error is a segment that makes no sense; the inner
    /// one a segment that contradicts a signature.
    fn tie(&mut self, segment: &Segment) -> Result<Result<(), Fault>, Fault> {
        let nonsense = |text: &str| {
            let text = format!("its segment line is inconsistent: {text}");
            Fault::new(Problem::Altered, Some(segment.from), text)
        };
        if let Some(from) = self.unsigned {
            return Err(unsigned(from));
        }
        let mut tied = Ok(());
        for item in &segment.items {
            match item {
                Item::Leaf(hash) if self.tree.append_subtree(0, *hash) => {}
                Item::Skip { skip, nodes } if *skip > 0 => {
                    let start = self.tree.size();
                    if !self.tree.append_span(*skip, nodes) {
                        return Err(nonsense("the hashes do not fit the entries left out"));
                    }
                    if start < self.goal.size && self.goal.size < self.tree.size() {
                        let text = "the checkpoint ends among entries that this export leaves \
                                    out; export again up to the checkpoint's size"
                            .to_owned();
                        return Err(Fault::new(Problem::Uncovered, Some(self.goal.size), text));
                    }
                }
                _ => return Err(nonsense("an item stands for no entry")),
            }
            if self.tree.size() == self.goal.size && self.tree.root() != self.goal.root {
                tied = Err(self.mismatch(self.tree.root()));
            }
        }
        if self.tree.size() != segment.to || segment.to == segment.from {
            return Err(nonsense("its items do not add up"));
        }
        tied = tied.and(self.check_note(segment));
        Ok(tied)
    }

    fn check_note(&mut self, segment: &Segment) -> Result<(), Fault> {
        let Some(note) = &segment.note else {
            self.unsigned = Some(segment.from);
            // Short of the checkpoint, the end of the export decides: cut off, or stripped.
            return if segment.to > self.goal.size { Err(unsigned(segment.from)) } else { Ok(()) };
        };
        let signed = self.key.open(note).map_err(|error| {
            let text = format!(
                "in the segment of entries {} to {}: {error}",
                segment.from,
                segment.to - 1
            );
            Fault::new(Problem::BadSignature, Some(segment.from), text)
        })?;
        if (signed.size, signed.root) == (segment.to, self.tree.root()) {
            return Ok(());
        }
        let text = format!(
            "entries {} to {} and their hashes were rewritten: the root signed after them differs",
            segment.from,
            segment.to - 1
        );
        Err(Fault::new(Problem::Rewritten, Some(segment.from), text))
    }

    fn entry(&mut self, expected: u64, hash: Hash, segment: &Segment) -> Result<(), Fault> {
        if !self.reader.advance()? {
            return Err(truncated(expected, self.goal.size));
        }
        let (index, entry) = match Line::parse(&self.reader.line) {
            None => return Err(self.reader.unreadable(expected)),
            Some(Line::Segment(other)) if other.from < self.tree.size() => {
                return Err(duplicated(other.from));
            }
            Some(Line::Segment(_)) => return Err(self.absent(expected)),
            Some(Line::Entry { index, entry }) => (index, entry.get()),
        };
        let found = Hash::leaf(entry.as_bytes());
        if index == expected && found == hash {
            if let Ok(Stamped { at }) = serde_json::from_str(entry) {
                let Verified { first_at, last_at, .. } = &mut self.verified;
                *first_at = Some(first_at.map_or(at, |first| first.min(at)));
                *last_at = Some(last_at.map_or(at, |last| last.max(at)));
            }
            return Ok(());
        }
        if found == hash {
            let text = format!("its line calls it {index}");
            return Err(Fault::new(Problem::Altered, Some(expected), text));
        }
        if index == expected {
            let elsewhere = segment.items.contains(&Item::Leaf(found));
            let (problem, text) = if elsewhere {
                (Problem::Reordered, "another entry stands in its place")
            } else {
                (Problem::Altered, "its content does not match its hash")
            };
            return Err(Fault::new(problem, Some(expected), text.to_owned()));
        }
        Err(if index < expected { duplicated(index) } else { self.absent(expected) })
    }

    /// Tells an entry that stands further down from one that is gone.
    fn absent(&mut self, index: u64) -> Fault {
        let found = self.number_of_later_line(index);
        match found {
            Ok(Some(line)) => {
                let text = format!("it stands only at line {line}");
                Fault::new(Problem::Reordered, Some(index), text)
            }
            Ok(None) => Fault::new(Problem::Missing, Some(index), "it is gone".to_owned()),
            Err(fault) => fault,
        }
    }

    fn number_of_later_line(&mut self, wanted: u64) -> Result<Option<u64>, Fault> {
        while self.reader.advance()? {
            let at = match Line::parse(&self.reader.line) {
                Some(Line::Entry { index, .. }) => index,
                Some(Line::Segment(segment)) => segment.from,
                None => continue,
            };
            if at == wanted {
                return Ok(Some(self.reader.number));
            }
        }
        Ok(None)
    }

    fn mismatch(&self, root: Hash) -> Fault {
        let text = format!(
            "over {} entries the root is {root}, and the checkpoint signed {}",
            self.goal.size, self.goal.root
        );
        Fault::new(Problem::CheckpointMismatch, None, text)
    }

    fn finish(self) -> Result<Verified, Fault> {
        if self.tree.size() < self.goal.size {
            return Err(truncated(self.tree.size(), self.goal.size));
        }
        Ok(self.verified)
    }
}

/// The one field of an entry that the check itself looks at.
#[derive(Deserialize)]
struct Stamped {
    at: Timestamp,
}

fn duplicated(index: u64) -> Fault {
    Fault::new(Problem::Duplicated, Some(index), "it appears a second time".to_owned())
}

fn unsigned(from: u64) -> Fault {
    let text = "the checkpoint after its segment is gone".to_owned();
    Fault::new(Problem::Uncovered, Some(from), text)
}

fn truncated(index: u64, size: u64) -> Fault {
    let text = format!("the export ends before it; the checkpoint covers {size} entries");
    Fault::new(Problem::Truncated, Some(index), text)
}
