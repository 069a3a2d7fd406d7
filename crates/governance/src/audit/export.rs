//! The export format: JSON lines that can be checked without the server.
//!
//! ```text
//! {"segment":{"version":1,"from":0,"to":1024,"items":["<leaf hash>",…],"note":"<checkpoint>"}}
//! {"index":0,"entry":{…}}
//! {"index":1,"entry":{…}}
//! …
//! {"segment":{"version":1,"from":1024,…}}
//! ```
//!
//! A segment line comes before the entries it covers. It carries the hash of each, and a
//! checkpoint signed when the log had just that size; so once the segment has been checked, each
//! entry is compared with a hash that is already proven, and the first bad one is known exactly.
//! Whoever rewrites entries *and* hashes cannot rewrite the signature.
//!
//! An entry that the export leaves out (another tenant's, or not matching the filter) is part of
//! a `{"skip":n,"nodes":[…]}` item: its position is kept, its content is not shown.
//!
//! Must hold: the text of an entry is copied as it is stored, byte for byte, and an export starts
//! at entry 0. Not here: reading the rows (`stream`), checking (`verify`).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::merkle::{Hash, Span};

/// The version this code writes; a reader refuses others.
pub const VERSION: u32 = 1;
/// Segments end at multiples of this, where the sealer leaves a signed checkpoint.
pub const SEGMENT: u64 = 1024;
/// The longest line. A full segment takes some 50 kB, an entry a few hundred bytes.
pub const MAX_LINE: usize = 1 << 20;

/// One stretch of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    pub version: u32,
    pub from: u64,
    pub to: u64,
    pub items: Vec<Item>,
    /// The checkpoint at size `to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What stands at the next position of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Item {
    /// The hash of an entry that the export contains.
    Leaf(Hash),
    /// Entries left out, and the subtree roots that stand for them.
    Skip { skip: u64, nodes: Vec<Hash> },
}

/// One line, as read.
#[derive(Debug)]
pub enum Line<'a> {
    Segment(Segment),
    Entry { index: u64, entry: &'a RawValue },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnyLine<'a> {
    segment: Option<Segment>,
    index: Option<u64>,
    #[serde(borrow)]
    entry: Option<&'a RawValue>,
}

impl<'a> Line<'a> {
    /// Reads one line; none if it is not one of the two kinds.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        match serde_json::from_slice(line).ok()? {
            AnyLine { segment: Some(segment), index: None, entry: None } => {
                Some(Self::Segment(segment))
            }
            AnyLine { segment: None, index: Some(index), entry: Some(entry) } => {
                Some(Self::Entry { index, entry })
            }
            _ => None,
        }
    }
}

/// Writes an entry line. The entry's text is stored canonical JSON and is copied, never rebuilt.
pub fn write_entry(out: &mut Vec<u8>, index: u64, entry: &str) {
    out.extend_from_slice(format!("{{\"index\":{index},\"entry\":").as_bytes());
    out.extend_from_slice(entry.as_bytes());
    out.extend_from_slice(b"}\n");
}

/// Writes a segment line.
pub fn write_segment(out: &mut Vec<u8>, segment: &Segment) -> serde_json::Result<()> {
    #[derive(Serialize)]
    struct SegmentLine<'a> {
        segment: &'a Segment,
    }
    serde_json::to_writer(&mut *out, &SegmentLine { segment })?;
    out.push(b'\n');
    Ok(())
}

/// Cuts a log, read leaf by leaf, into segments.
#[derive(Debug)]
pub struct Segmenter {
    from: u64,
    next: u64,
    items: Vec<Item>,
    hidden: Span,
    shows: bool,
}

impl Default for Segmenter {
    fn default() -> Self {
        Self { from: 0, next: 0, items: Vec::new(), hidden: Span::starting_at(0), shows: false }
    }
}

impl Segmenter {
    /// The index of the leaf it expects next.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    pub fn push(&mut self, leaf: Hash, visible: bool) {
        self.next += 1;
        if visible {
            self.close_span();
            self.items.push(Item::Leaf(leaf));
            self.hidden = Span::starting_at(self.next);
            self.shows = true;
        } else {
            self.hidden.push(leaf);
        }
    }

    /// Whether to cut here. Stretches that show nothing run on: they stay one short item.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.shows && self.next.is_multiple_of(SEGMENT)
    }

    /// Whether there is anything since the last cut.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.from == self.next
    }

    /// Ends the segment; `note` is the checkpoint at this size, if there is one.
    pub fn cut(&mut self, note: Option<String>) -> Segment {
        self.close_span();
        let items = std::mem::take(&mut self.items);
        let segment = Segment { version: VERSION, from: self.from, to: self.next, items, note };
        self.from = self.next;
        self.hidden = Span::starting_at(self.next);
        self.shows = false;
        segment
    }

    fn close_span(&mut self) {
        if !self.hidden.is_empty() {
            let (skip, nodes) = (self.hidden.len(), self.hidden.nodes());
            self.items.push(Item::Skip { skip, nodes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_kinds_of_line_and_nothing_else() {
        let mut out = Vec::new();
        write_entry(&mut out, 7, r#"{"at":1.0}"#);
        let Some(Line::Entry { index: 7, entry }) = Line::parse(&out) else { panic!("{out:?}") };
        assert_eq!(entry.get(), r#"{"at":1.0}"#, "the text is kept, not the value");
        let segment = Segmenter::default().cut(Some("note".into()));
        let mut out = Vec::new();
        write_segment(&mut out, &segment).unwrap();
        assert!(matches!(Line::parse(&out), Some(Line::Segment(read)) if read == segment));
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"index":1}"#,
            r#"{"entry":{}}"#,
            r#"{"index":1,"entry":{},"more":1}"#,
            r#"{"index":1,"index":2,"entry":{}}"#,
            r#"{"index":-1,"entry":{}}"#,
            r#"{"index":1,"entry":{}} x"#,
            r#"{"index":1,"entry":{},"segment":{"version":1,"from":0,"to":0,"items":[]}}"#,
            r#"{"segment":{"version":1,"from":0,"to":1,"items":["AA=="]}}"#,
        ] {
            assert!(Line::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_segment_ends_at_a_multiple_unless_it_shows_nothing() {
        let mut segmenter = Segmenter::default();
        let leaf = Hash::leaf(b"");
        for _ in 0..3 * SEGMENT {
            segmenter.push(leaf, false);
            assert!(!segmenter.is_due());
        }
        segmenter.push(leaf, true);
        for _ in 1..SEGMENT {
            assert!(!segmenter.is_due());
            segmenter.push(leaf, false);
        }
        assert!(segmenter.is_due());
        let segment = segmenter.cut(None);
        assert_eq!((segment.from, segment.to), (0, 4 * SEGMENT));
        assert_eq!(segment.items.len(), 3);
        assert!(segmenter.is_empty() && !segmenter.is_due());
    }
}
