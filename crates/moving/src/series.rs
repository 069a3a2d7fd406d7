//! The points of metrics on their way through: in order, each once, and never all in memory. A run
//! can have more of them than a machine has room for.
//!
//! ```text
//! points in any order → Sorter → Sorted    in memory while there is room, else in a nameless file
//! ```
//!
//! Must hold: what is held in memory at once is bounded by [`ROOM`] and [`PART`], however many points
//! a run or one of its metrics has.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use falaj_base::{SetDigest, digest};

use crate::error::{Error, Result};
use crate::record::Point;

/// How many points are kept in memory by one spool.
const ROOM: usize = 500_000;
/// How many points of one metric are sorted at once.
const PART: usize = 250_000;
/// How many points of each part are read back at once.
const BLOCK: usize = 2_000;
/// The bytes of a point in the file.
const BYTES: usize = 24;

/// Where points go that there is no room for.
#[derive(Debug)]
pub struct Spool {
    room: usize,
    part: usize,
    file: Option<Arc<File>>,
    end: u64,
}

impl Default for Spool {
    fn default() -> Self {
        Self { room: ROOM, part: PART, file: None, end: 0 }
    }
}

impl Spool {
    /// Says how many points are still held in memory; what was put there besides is done with.
    pub fn hold_only(&mut self, points: usize) {
        self.room = ROOM.saturating_sub(points);
        if self.file.as_ref().is_some_and(|file| Arc::strong_count(file) == 1) {
            self.end = 0;
        }
    }

    fn write(&mut self, points: &[Point]) -> Result<Part> {
        let failed = |cause: std::io::Error| Error::writing("a file for points", cause);
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self.file.insert(Arc::new(tempfile::tempfile().map_err(failed)?)).clone(),
        };
        let at = self.end;
        for some in points.chunks(BLOCK) {
            let bytes: Vec<u8> = some.iter().flat_map(bytes_of).collect();
            file.write_all_at(&bytes, self.end).map_err(failed)?;
            self.end += bytes.len() as u64;
        }
        Ok(Part::Filed { file, at, count: points.len() })
    }
}

fn bytes_of(point: &Point) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&point.timestamp.to_le_bytes());
    bytes[8..16].copy_from_slice(&point.step.to_le_bytes());
    bytes[16..].copy_from_slice(&point.value.to_le_bytes());
    bytes
}

fn point_of(bytes: &[u8]) -> Point {
    let eight = |at: usize| bytes[at..at + 8].try_into().unwrap_or_default();
    Point {
        timestamp: i64::from_le_bytes(eight(0)),
        step: i64::from_le_bytes(eight(8)),
        value: f64::from_le_bytes(eight(16)),
    }
}

/// What comes first of two points; equal only if they are the same.
type Order = (i64, i64, u64);

fn order(point: &Point) -> Order {
    (point.timestamp, point.step, point.value.to_bits())
}

/// Some points of one metric, in order.
#[derive(Debug)]
enum Part {
    Held(Vec<Point>),
    Filed { file: Arc<File>, at: u64, count: usize },
}

impl Part {
    /// The points from one on, as many as are read at once.
    fn block(&self, from: usize) -> Result<Vec<Point>> {
        match self {
            Self::Held(points) => Ok(points[from..points.len().min(from + BLOCK)].to_vec()),
            Self::Filed { file, at, count } => {
                let mut bytes = vec![0; (count - from).min(BLOCK) * BYTES];
                file.read_exact_at(&mut bytes, at + (from * BYTES) as u64).map_err(|cause| {
                    Error::Read { what: "a file for points".to_owned(), cause: cause.to_string() }
                })?;
                Ok(bytes.chunks_exact(BYTES).map(point_of).collect())
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Held(points) => points.len(),
            Self::Filed { count, .. } => *count,
        }
    }
}

/// Takes the points of one metric as they come.
#[derive(Debug)]
pub struct Sorter {
    key: String,
    points: Vec<Point>,
    parts: Vec<Part>,
}

impl Sorter {
    #[must_use]
    pub fn new(key: String) -> Self {
        Self { key, points: Vec::new(), parts: Vec::new() }
    }

    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn push(&mut self, mut point: Point, spool: &mut Spool) -> Result<()> {
        point.value = digest::plain_value(point.value);
        self.points.push(point);
        if self.points.len() >= spool.part {
            self.sort();
            self.parts.push(spool.write(&self.points)?);
            self.points.clear();
        }
        Ok(())
    }

    fn sort(&mut self) {
        self.points.sort_unstable_by_key(order);
        self.points.dedup_by_key(|point| order(point));
    }

    pub fn finish(mut self, spool: &mut Spool) -> Result<Sorted> {
        self.sort();
        let last = std::mem::take(&mut self.points);
        if last.len() <= spool.room {
            spool.room -= last.len();
            self.parts.push(Part::Held(last));
        } else {
            self.parts.push(spool.write(&last)?);
        }
        let mut sorted = Sorted { key: self.key, parts: self.parts, digest: SetDigest::default() };
        let name = digest::text(&sorted.key);
        let mut sum = SetDigest::default();
        for point in sorted.points() {
            let point = point?;
            sum.add_point(name, point.timestamp, point.step, point.value);
        }
        sorted.digest = sum;
        Ok(sorted)
    }
}

/// The points of one metric of one run, in order and each once.
#[derive(Debug)]
pub struct Sorted {
    key: String,
    parts: Vec<Part>,
    digest: SetDigest,
}

impl Sorted {
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    #[must_use]
    pub fn digest(&self) -> SetDigest {
        self.digest
    }

    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.digest.count()).unwrap_or(usize::MAX)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many points it holds in memory.
    #[must_use]
    pub fn held(&self) -> usize {
        let held = |part: &Part| if matches!(part, Part::Held(_)) { part.len() } else { 0 };
        self.parts.iter().map(held).sum()
    }

    pub fn points(&self) -> impl Iterator<Item = Result<Point>> + use<'_> {
        Merged {
            parts: self.parts.iter().map(Reader::new).collect(),
            heads: BinaryHeap::new(),
            begun: false,
            last: None,
        }
    }

    /// From which point on a server lacks them that says this of what it has. Points are mostly added
    /// at the end, so what it has is mostly a beginning; if not, it lacks all of them.
    pub fn lacking(&self, there: &str) -> Result<usize> {
        let had = crate::digest::count(there).min(self.len());
        let (mut sum, name) = (SetDigest::default(), digest::text(&self.key));
        for point in self.points().take(had) {
            let point = point?;
            sum.add_point(name, point.timestamp, point.step, point.value);
        }
        Ok(if sum.to_string() == there { had } else { 0 })
    }
}

/// One part, block by block.
struct Reader<'a> {
    part: &'a Part,
    next: usize,
    block: std::vec::IntoIter<Point>,
}

impl<'a> Reader<'a> {
    fn new(part: &'a Part) -> Self {
        Self { part, next: 0, block: Vec::new().into_iter() }
    }

    fn take(&mut self) -> Result<Option<Point>> {
        if let Some(point) = self.block.next() {
            return Ok(Some(point));
        }
        if self.next >= self.part.len() {
            return Ok(None);
        }
        let block = self.part.block(self.next)?;
        self.next += block.len();
        self.block = block.into_iter();
        Ok(self.block.next())
    }
}

/// All parts in one order.
struct Merged<'a> {
    parts: Vec<Reader<'a>>,
    heads: BinaryHeap<Reverse<(Order, usize)>>,
    begun: bool,
    last: Option<Order>,
}

impl Merged<'_> {
    fn advance(&mut self, part: usize) -> Result<()> {
        if let Some(point) = self.parts[part].take()? {
            self.heads.push(Reverse((order(&point), part)));
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Option<Point>> {
        if !std::mem::replace(&mut self.begun, true) {
            for part in 0..self.parts.len() {
                self.advance(part)?;
            }
        }
        while let Some(Reverse((first, part))) = self.heads.pop() {
            self.advance(part)?;
            if self.last != Some(first) {
                self.last = Some(first);
                let (timestamp, step, bits) = first;
                return Ok(Some(Point { timestamp, step, value: f64::from_bits(bits) }));
            }
        }
        Ok(None)
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<Point>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: i64) -> Point {
        Point { timestamp: step, step, value: 0.5 }
    }

    fn sorted(steps: &[i64], spool: &mut Spool) -> Sorted {
        let mut sorter = Sorter::new("k".to_owned());
        for step in steps {
            sorter.push(point(*step), spool).unwrap();
        }
        sorter.finish(spool).unwrap()
    }

    fn steps(of: &Sorted) -> Vec<i64> {
        of.points().map(|point| point.unwrap().step).collect()
    }

    #[test]
    fn in_order_and_each_once_however_little_room_there_is() {
        // As if shuffled, each twice, and far apart.
        let given: Vec<i64> = (0..20_000_i64).map(|at| at * 7919 % 10_000).collect();
        let wanted: Vec<i64> = (0..10_000).collect();
        let mut digests = Vec::new();
        for (room, part) in [(1 << 20, 1 << 20), (1 << 20, 300), (0, 1 << 20), (0, 300), (10, 7)] {
            let mut spool = Spool { room, part, ..Spool::default() };
            let all = sorted(&given, &mut spool);
            assert_eq!(steps(&all), wanted, "{room} {part}");
            assert_eq!(steps(&all), wanted, "a second time");
            assert_eq!((all.len(), all.held() <= room), (10_000, true));
            digests.push(all.digest());
            // Beside each other in one file.
            let more = sorted(&[3, 1, 2], &mut spool);
            assert_eq!((steps(&more), steps(&all)), (vec![1, 2, 3], wanted.clone()));
        }
        assert!(digests.windows(2).all(|two| two[0] == two[1]));
    }

    #[test]
    fn values_are_those_that_databases_keep() {
        let mut spool = Spool::default();
        let mut sorter = Sorter::new("k".to_owned());
        for value in [0.0, -0.0, f64::INFINITY, f64::MAX, f64::NAN, -f64::NAN] {
            sorter.push(Point { timestamp: 1, step: 1, value }, &mut spool).unwrap();
        }
        assert_eq!(sorter.finish(&mut spool).unwrap().len(), 3);
    }

    #[test]
    fn room_that_is_given_back_is_used_again() {
        let mut spool = Spool { room: 2, part: 10, ..Spool::default() };
        let (held, filed) = (sorted(&[1, 2], &mut spool), sorted(&[3], &mut spool));
        assert_eq!((held.held(), filed.held()), (2, 0));
        drop(filed);
        spool.hold_only(held.held());
        assert_eq!(spool.end, 0, "nothing of the file is needed");
        assert_eq!(sorted(&[4], &mut spool).held(), 1);
        spool.hold_only(ROOM);
        let filed = sorted(&[5], &mut spool);
        spool.hold_only(ROOM);
        assert_eq!((spool.end, steps(&filed)), (BYTES as u64, vec![5]), "it is still needed");
    }

    #[test]
    fn only_what_is_lacking_is_sent() {
        let mut spool = Spool::default();
        let ours = sorted(&[1, 2, 3], &mut spool);
        for (there, from) in [
            (&[][..], 0),
            (&[1, 2], 2),
            (&[1, 2, 3], 3),
            (&[1, 3], 0),
            (&[9], 0),
            (&[1, 2, 3, 4], 0),
        ] {
            let said = sorted(there, &mut spool).digest().to_string();
            assert_eq!(ours.lacking(&said).unwrap(), from, "{there:?}");
        }
    }
}
