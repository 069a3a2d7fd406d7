//! Batches of records, as Kafka keeps them since its version 0.11.
//!
//! Must hold:
//! - A batch that is damaged, compressed in an unknown way or too large is told as one record that
//!   cannot be read, so that whoever reads can go on behind it.
//! - Records are parts of what their batch unpacked to, and keep all of that in memory. So it is what
//!   was unpacked that is bounded, over all batches of a fetch.
//! - Records of transactions that were given up are passed over.

use std::collections::HashSet;

use bytes::Bytes;

use super::codec::{Refused, inflate};
use super::wire::{Input, Malformed};
use crate::record::{Body, Bounds, Record};

/// Bytes before the part that the checksum is of.
const BEFORE: usize = 8 + 4 + 4 + 1 + 4;
const CODEC: i16 = 0b111;
const BY_BROKER: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;
/// What a control record's key ends with: the transaction was given up.
const ABORT: i16 = 0;

/// A transaction that was given up, of which records are from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aborted {
    pub(super) producer: i64,
    pub(super) first: i64,
}

/// How much is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Most {
    /// Bytes of one record.
    pub(super) record: usize,
    /// Bytes of all batches of a fetch, unpacked.
    pub(super) inflated: usize,
}

/// What a fetch brought, being taken apart.
#[derive(Debug)]
pub(super) struct Unpacking {
    from: i64,
    bounds: Bounds,
    most: Most,
    /// How much may still be unpacked.
    left: usize,
    /// Whether the next batch has to wait for another fetch.
    enough: bool,
    aborted: Vec<Aborted>,
    /// Producers whose records do not count now.
    given_up: HashSet<i64>,
    bytes: usize,
    pub(super) records: Vec<Record>,
    /// Where to go on.
    pub(super) next: i64,
}

/// Where a batch stands, and how it is to be read.
struct Head {
    base: i64,
    last: i64,
    attributes: i16,
    first_at: i64,
    last_at: i64,
    producer: i64,
    count: i32,
}

impl Unpacking {
    pub(super) fn new(from: i64, bounds: Bounds, most: Most, aborted: Vec<Aborted>) -> Self {
        Self {
            from,
            bounds,
            most,
            left: most.inflated,
            enough: false,
            aborted,
            given_up: HashSet::new(),
            bytes: 0,
            records: Vec::new(),
            next: from,
        }
    }

    /// Takes batches until there is enough. One that is cut short at the end is left for the next
    /// fetch.
    pub(super) fn all(&mut self, bytes: Bytes) -> Result<(), Malformed> {
        let mut input = Input(bytes);
        while input.left() >= 12 && !self.is_full() {
            let whole = input.0.clone();
            let base = input.i64()?;
            let length = usize::try_from(input.i32()?).map_err(|_| Malformed)?;
            if length > input.left() {
                break;
            }
            input.take(length)?;
            self.batch(base, whole.slice(..12 + length));
        }
        Ok(())
    }

    /// Tells the first batch as too large, if it is and its end did not come.
    pub(super) fn pass_over(&mut self, bytes: &Bytes, most: usize) -> Result<bool, Malformed> {
        let mut input = Input(bytes.clone());
        let (base, length) = (input.i64()?, input.i32()?);
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let known = bytes.len() >= BEFORE + 6 && bytes.get(16) == Some(&2);
        if length <= most || length <= input.left() || !known {
            return Ok(false);
        }
        let why = Body::too_large("the batch of records", length, most);
        self.unreadable(base, last_offset(base, bytes), why);
        Ok(true)
    }

    fn is_full(&self) -> bool {
        self.enough || self.records.len() >= self.bounds.records || self.bytes >= self.bounds.bytes
    }

    fn batch(&mut self, base: i64, whole: Bytes) {
        // Where it ends is told by the batch itself, damaged or not: reading must go on.
        let last = last_offset(base, &whole);
        if last < self.from {
            return;
        }
        match head(base, &whole) {
            Ok((head, records)) => self.records_of(&head, records),
            Err(why) => self.unreadable(base, last, Body::Unreadable(why)),
        }
    }

    /// Tells a batch as one record that cannot be read. Its records are passed over, each of which may
    /// have been a good one: the reason says how many those are.
    fn unreadable(&mut self, base: i64, last: i64, body: Body) {
        let offset = base.max(self.from);
        let body = match body {
            Body::Unreadable(why) if last > offset => {
                Body::Unreadable(format!("{why}; the offsets {offset} to {last} are passed over"))
            }
            body => body,
        };
        self.records.push(Record { offset, at: None, key: None, body });
        self.next = self.next.max(last.max(offset).saturating_add(1));
    }

    fn records_of(&mut self, head: &Head, packed: Bytes) {
        while let Some(place) = self.aborted.iter().position(|it| it.first <= head.last) {
            self.given_up.insert(self.aborted.swap_remove(place).producer);
        }
        let skipped =
            head.attributes & TRANSACTIONAL != 0 && self.given_up.contains(&head.producer);
        if skipped && head.attributes & CONTROL == 0 {
            self.next = self.next.max(head.last.saturating_add(1));
            return;
        }
        let codec = head.attributes & CODEC;
        let mut records = match inflate(codec, packed, self.left) {
            Ok(records) => Input(records),
            Err(Refused::TooLarge) if self.left < self.most.inflated => {
                // It may be fine by itself.
                self.enough = true;
                return;
            }
            Err(Refused::TooLarge) => {
                let most = self.most.inflated;
                let why = format!("too large: its batch takes more than {most} bytes unpacked");
                return self.unreadable(head.base, head.last, Body::Unreadable(why));
            }
            Err(Refused::Broken(why)) => {
                return self.unreadable(head.base, head.last, Body::Unreadable(why));
            }
        };
        if codec != 0 {
            self.left = self.left.saturating_sub(records.left());
        }
        if head.attributes & CONTROL != 0 {
            if matches!(control(&mut records), Ok(ABORT)) {
                self.given_up.remove(&head.producer);
            }
            self.next = self.next.max(head.last.saturating_add(1));
            return;
        }
        for _ in 0..head.count {
            if self.is_full() {
                return;
            }
            let Ok(mut record) = record(head, &mut records) else {
                let why = "a record of its batch is cut short or has lengths that cannot be";
                let why = Body::Unreadable(why.to_owned());
                return self.unreadable(self.next.max(head.base), head.last, why);
            };
            if record.offset < self.next {
                continue;
            }
            self.next = record.offset.saturating_add(1);
            let value = match &record.body {
                Body::Value(value) => value.len(),
                Body::Nothing | Body::Unreadable(_) => 0,
            };
            let size = value + record.key.as_ref().map_or(0, Bytes::len);
            if size > self.most.record {
                record.body = Body::too_large("it", size, self.most.record);
                record.key = None;
            }
            self.bytes += size;
            self.records.push(record);
        }
        self.next = self.next.max(head.last.saturating_add(1));
    }
}

/// The offset of a batch's last record. What the old formats say there is the offset of one.
fn last_offset(base: i64, whole: &Bytes) -> i64 {
    let at = BEFORE + 2;
    match whole.get(16) {
        Some(2) if whole.len() >= at + 4 => {
            let delta =
                i32::from_be_bytes([whole[at], whole[at + 1], whole[at + 2], whole[at + 3]]);
            base.saturating_add(i64::from(delta.max(0)))
        }
        _ => base,
    }
}

fn head(base: i64, whole: &Bytes) -> Result<(Head, Bytes), String> {
    let mut input = Input(whole.slice(12..));
    let short = |_: Malformed| "its batch is cut short".to_owned();
    input.i32().map_err(short)?;
    let magic = input.i8().map_err(short)?;
    if magic != 2 {
        return Err(format!("its batch has the old format {magic}: from before Kafka 0.11"));
    }
    let sum = input.u32().map_err(short)?;
    if sum != crc32c(&input.0) {
        return Err("its batch is damaged: the checksum differs".to_owned());
    }
    let read = |input: &mut Input| -> Result<Head, Malformed> {
        let (attributes, delta) = (input.i16()?, input.i32()?);
        let (first_at, last_at) = (input.i64()?, input.i64()?);
        let producer = input.i64()?;
        input.i16()?;
        input.i32()?;
        let last = base.saturating_add(i64::from(delta.max(0)));
        Ok(Head { base, last, attributes, first_at, last_at, producer, count: input.i32()? })
    };
    let head = read(&mut input).map_err(short)?;
    Ok((head, input.0))
}

fn record(head: &Head, input: &mut Input) -> Result<Record, Malformed> {
    let length = usize::try_from(input.varint()?).map_err(|_| Malformed)?;
    let mut input = Input(input.take(length)?);
    input.i8()?;
    let at = head.first_at.saturating_add(input.varint()?);
    let offset = head.base.checked_add(input.varint()?).ok_or(Malformed)?;
    let (key, value) = (input.varbytes()?, input.varbytes()?);
    let at = if head.attributes & BY_BROKER != 0 { head.last_at } else { at };
    let at = (at >= 0).then(|| at.checked_mul(1000)).flatten();
    Ok(Record { offset, at, key, body: value.map_or(Body::Nothing, Body::Value) })
}

/// What a control record says.
fn control(input: &mut Input) -> Result<i16, Malformed> {
    let length = usize::try_from(input.varint()?).map_err(|_| Malformed)?;
    let mut input = Input(input.take(length)?);
    input.i8()?;
    input.varint()?;
    input.varint()?;
    let mut key = Input(input.varbytes()?.ok_or(Malformed)?);
    key.i16()?;
    key.i16()
}

/// The checksum of Castagnoli, eight bytes at a time.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let first = sum ^ u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        sum = TABLES[7][(first & 0xff) as usize]
            ^ TABLES[6][(first >> 8 & 0xff) as usize]
            ^ TABLES[5][(first >> 16 & 0xff) as usize]
            ^ TABLES[4][(first >> 24) as usize]
            ^ TABLES[3][usize::from(chunk[4])]
            ^ TABLES[2][usize::from(chunk[5])]
            ^ TABLES[1][usize::from(chunk[6])]
            ^ TABLES[0][usize::from(chunk[7])];
    }
    for byte in chunks.remainder() {
        sum = sum >> 8 ^ TABLES[0][((sum ^ u32::from(*byte)) & 0xff) as usize];
    }
    !sum
}

static TABLES: [[u32; 256]; 8] = tables();

#[allow(clippy::cast_possible_truncation, reason = "under 256")]
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::wire::Output;
    use super::*;

    const MOST: Most = Most { record: 1 << 16, inflated: 1 << 20 };
    const PLENTY: Bounds = Bounds { records: 1000, bytes: 1 << 20, wait: Duration::ZERO };

    #[allow(clippy::cast_possible_truncation, reason = "seven bits")]
    fn varint(out: &mut Vec<u8>, value: i64) {
        let mut left = ((value << 1) ^ (value >> 63)).cast_unsigned();
        while left >= 0x80 {
            out.push((left & 0x7f) as u8 | 0x80);
            left >>= 7;
        }
        out.push(left as u8);
    }

    struct Batch {
        base: i64,
        attributes: i16,
        producer: i64,
        bodies: Vec<(i64, Vec<u8>, Option<Vec<u8>>)>,
    }

    fn batch(base: i64, values: &[&str]) -> Batch {
        let one = |(place, value): (usize, &&str)| {
            (i64::try_from(place).unwrap(), Vec::new(), Some(value.as_bytes().to_vec()))
        };
        let bodies = values.iter().enumerate().map(one).collect();
        Batch { base, attributes: 0, producer: -1, bodies }
    }

    fn written(batch: &Batch) -> Vec<u8> {
        let mut records = Vec::new();
        for (delta, key, value) in &batch.bodies {
            let mut one = vec![0];
            varint(&mut one, *delta);
            varint(&mut one, *delta);
            varint(&mut one, i64::try_from(key.len()).unwrap());
            one.extend_from_slice(key);
            match value {
                Some(value) => {
                    varint(&mut one, i64::try_from(value.len()).unwrap());
                    one.extend_from_slice(value);
                }
                None => varint(&mut one, -1),
            }
            varint(&mut one, 0);
            varint(&mut records, i64::try_from(one.len()).unwrap());
            records.extend_from_slice(&one);
        }
        let last = batch.bodies.last().map_or(0, |it| i32::try_from(it.0).unwrap());
        let mut rest = Output::default();
        rest.i16(batch.attributes).i32(last).i64(1_000).i64(2_000).i64(batch.producer);
        rest.i16(0).i32(0).i32(i32::try_from(batch.bodies.len()).unwrap());
        let rest = [rest.0.to_vec(), records].concat();
        let mut whole = Output::default();
        whole.i64(batch.base).i32(i32::try_from(rest.len() + 9).unwrap()).i32(0).i8(2);
        let sum = crc32c(&rest).to_be_bytes().to_vec();
        [whole.0.to_vec(), sum, rest].concat()
    }

    fn unpacked(from: i64, bounds: Bounds, aborted: &[Aborted], bytes: &[u8]) -> Unpacking {
        let mut unpacking = Unpacking::new(from, bounds, MOST, aborted.to_vec());
        unpacking.all(Bytes::copy_from_slice(bytes)).unwrap();
        unpacking
    }

    fn shown(unpacking: &Unpacking) -> Vec<(i64, String)> {
        let show = |record: &Record| {
            let body = match &record.body {
                Body::Value(value) => String::from_utf8(value.to_vec()).unwrap(),
                Body::Nothing => "-".to_owned(),
                Body::Unreadable(_) => "!".to_owned(),
            };
            (record.offset, body)
        };
        unpacking.records.iter().map(show).collect()
    }

    fn expected(all: &[(i64, &str)]) -> Vec<(i64, String)> {
        all.iter().map(|(offset, body)| (*offset, (*body).to_owned())).collect()
    }

    #[test]
    fn the_checksum_is_that_of_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn reading_begins_within_a_batch_and_stops_where_it_is_enough() {
        let bytes = [written(&batch(10, &["a", "b", "c"])), written(&batch(13, &["d", "e"]))];
        let bytes = bytes.concat();
        let all = unpacked(11, PLENTY, &[], &bytes);
        assert_eq!(shown(&all), expected(&[(11, "b"), (12, "c"), (13, "d"), (14, "e")]));
        assert_eq!(all.next, 15);
        assert_eq!(all.records[0].at, Some(1_001_000));
        let few = unpacked(10, Bounds { records: 2, ..PLENTY }, &[], &bytes);
        assert_eq!((shown(&few), few.next), (expected(&[(10, "a"), (11, "b")]), 12));
        let short = unpacked(10, Bounds { bytes: 1, ..PLENTY }, &[], &bytes);
        assert_eq!((shown(&short), short.next), (expected(&[(10, "a")]), 11));
        let cut = unpacked(10, PLENTY, &[], &bytes[..bytes.len() - 1]);
        assert_eq!((cut.records.len(), cut.next), (3, 13));
        let none = unpacked(10, PLENTY, &[], &[]);
        assert_eq!((none.records.len(), none.next), (0, 10));
    }

    #[test]
    fn offsets_without_records_are_passed() {
        let mut compacted = batch(5, &["a"]);
        compacted.bodies = vec![(1, b"k".to_vec(), None), (4, Vec::new(), Some(b"z".to_vec()))];
        let all = unpacked(5, PLENTY, &[], &written(&compacted));
        assert_eq!((shown(&all), all.next), (expected(&[(6, "-"), (9, "z")]), 10));
        assert_eq!(all.records[0].key.as_deref(), Some(&b"k"[..]));
    }

    #[test]
    fn what_was_given_up_does_not_count() {
        let transactional = |base, values: &[&str]| {
            let mut one = batch(base, values);
            (one.attributes, one.producer) = (TRANSACTIONAL, 7);
            written(&one)
        };
        let marker = |base, kind: i16| {
            let mut one = batch(base, &[]);
            (one.attributes, one.producer) = (TRANSACTIONAL | CONTROL, 7);
            one.bodies = vec![(0, [[0, 0], kind.to_be_bytes()].concat(), Some(Vec::new()))];
            written(&one)
        };
        let bytes = [
            transactional(0, &["lost", "lost"]),
            written(&batch(2, &["kept"])),
            marker(3, ABORT),
            transactional(4, &["kept too"]),
            marker(5, 1),
        ];
        let aborted = [Aborted { producer: 7, first: 0 }];
        let all = unpacked(0, PLENTY, &aborted, &bytes.concat());
        assert_eq!((shown(&all), all.next), (expected(&[(2, "kept"), (4, "kept too")]), 6));
    }

    #[test]
    fn what_cannot_be_read_is_told_and_passed() {
        let good = written(&batch(3, &["d"]));
        let mut damaged = written(&batch(0, &["a", "b", "c"]));
        let end = damaged.len() - 1;
        damaged[end] ^= 1;
        let mut unknown = batch(0, &["a", "b", "c"]);
        unknown.attributes = 6;
        let mut old = written(&batch(0, &["a", "b", "c"]));
        old[16] = 1;
        for (bad, next) in [(damaged, 4), (written(&unknown), 4), (old, 4)] {
            let all = unpacked(0, PLENTY, &[], &[bad, good.clone()].concat());
            assert_eq!(shown(&all), expected(&[(0, "!"), (3, "d")]));
            assert_eq!(all.next, next);
        }
    }

    /// A batch whose records are packed with zstd.
    fn packed(base: i64, values: &[&str]) -> Vec<u8> {
        let plain = written(&batch(base, values));
        let at = BEFORE + 40;
        let records = zstd::encode_all(&plain[at..], 1).unwrap();
        let mut rest = [&plain[BEFORE..at], &records].concat();
        rest[1] |= 4;
        let length = i32::try_from(rest.len() + 9).unwrap().to_be_bytes();
        let sum = crc32c(&rest).to_be_bytes();
        [&plain[..8], &length, &plain[12..17], &sum, &rest].concat()
    }

    #[test]
    fn what_is_unpacked_is_bounded_over_all_batches() {
        let large = "x".repeat(60_000);
        let one: Vec<&str> = vec![&large; 10];
        // Each of them keeps 600 kB in memory for a few bytes of the fetch.
        let batches: Vec<u8> = (0..20).flat_map(|at| packed(at * 10, &one)).collect();
        assert!(batches.len() < 20_000);
        let first = unpacked(0, Bounds { bytes: usize::MAX, ..PLENTY }, &[], &batches);
        assert_eq!((first.records.len(), first.next), (10, 10));
        assert!(first.left < MOST.inflated);
        let again = unpacked(10, Bounds { bytes: usize::MAX, ..PLENTY }, &[], &batches);
        assert_eq!((again.records.len(), again.next), (10, 20));
        // One that is too large by itself is told and passed.
        let many: Vec<&str> = vec![&large; 20];
        let bytes = [packed(0, &many), packed(20, &["fine"])].concat();
        let all = unpacked(0, PLENTY, &[], &bytes);
        assert_eq!((shown(&all), all.next), (expected(&[(0, "!"), (20, "fine")]), 21));
    }

    #[test]
    fn a_record_or_a_batch_that_is_too_large_is_told_and_passed() {
        let large = "x".repeat(MOST.record + 1);
        let all = unpacked(0, PLENTY, &[], &written(&batch(0, &["a", &large, "c"])));
        assert_eq!((shown(&all), all.next), (expected(&[(0, "a"), (1, "!"), (2, "c")]), 3));
        let Body::Unreadable(why) = &all.records[1].body else { panic!("it was taken") };
        assert!(why.starts_with("too large") && why.contains("max_record"), "{why}");
        // Only the beginning of a batch came.
        let whole = written(&batch(7, &[&large, "b", "c"]));
        let mut cut = Unpacking::new(7, PLENTY, MOST, Vec::new());
        assert!(cut.pass_over(&whole[..100].to_vec().into(), 1000).unwrap());
        assert_eq!((shown(&cut), cut.next), (expected(&[(7, "!")]), 10));
        let Body::Unreadable(why) = &cut.records[0].body else { panic!("it was taken") };
        assert!(why.ends_with("the offsets 7 to 9 are passed over"), "{why}");
        let mut fine = Unpacking::new(7, PLENTY, MOST, Vec::new());
        assert!(!fine.pass_over(&whole[..100].to_vec().into(), 1 << 20).unwrap());
        assert_eq!((fine.records.len(), fine.next), (0, 7));
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(bytes: Vec<u8>, from: i64) {
            let mut unpacking = Unpacking::new(from, PLENTY, MOST, Vec::new());
            let read = unpacking.all(bytes.into());
            prop_assert!(unpacking.next >= from, "{read:?}");
        }

        #[test]
        fn a_flipped_bit_is_noticed(place in 17_usize..80, bit in 0_u32..8) {
            let mut bytes = written(&batch(0, &["some", "records", "of a batch"]));
            let place = place.min(bytes.len() - 1);
            bytes[place] ^= 1 << bit;
            let all = unpacked(0, PLENTY, &[], &bytes);
            prop_assert!(matches!(all.records[0].body, Body::Unreadable(_)));
        }
    }
}
