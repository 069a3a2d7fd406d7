//! Rows as they are stored: when they were so, since when that is known, and the values.
//!
//! ```text
//! version        1 byte
//! stamp         28 bytes that sort like what they mean: event, known, log, row
//! nulls          1 bit for each field
//! slots          a value of fixed size, or where in the tail a value ends (4 bytes)
//! tail           texts, bytes and lists, one after the other
//! ```
//! Numbers are little end first, but for those of the stamp. A list of texts or bytes begins with
//! their number and the end of each, a list of anything else is its elements side by side.
//!
//! Must hold:
//! - Of two rows of a key the one with the greater [`Stamp`] stays, wherever and whenever they meet.
//! - Bytes that are not a row of the layout lead to an error, never further.
//! - Frozen in a test: rows outlive the process.

use falaj_base::{Error, Result, code};

use crate::key::{from_sortable, sortable};
use crate::value::{Kind, Moments, Scalar, Value, json};

const VERSION: u8 = 1;
const STAMP: usize = 28;
/// Where the null bits begin.
const HEAD: usize = 1 + STAMP;

/// Which of several rows of a key stays: the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// When it was so, in microseconds since 1970.
    pub event: i64,
    /// Since when that is known, in the same unit.
    pub known: i64,
    /// Where it stands in the log, or in the table it comes from.
    pub log: u64,
    /// Which row of the batch it is.
    pub row: u32,
}

impl Stamp {
    fn bytes(self) -> [u8; STAMP] {
        let mut bytes = [0; STAMP];
        bytes[..8].copy_from_slice(&sortable(self.event));
        bytes[8..16].copy_from_slice(&sortable(self.known));
        bytes[16..24].copy_from_slice(&self.log.to_be_bytes());
        bytes[24..].copy_from_slice(&self.row.to_be_bytes());
        bytes
    }

    fn read(row: &[u8]) -> Option<Self> {
        if row.first() != Some(&VERSION) {
            return None;
        }
        Some(Self {
            event: from_sortable(array(row, 1)?),
            known: from_sortable(array(row, 9)?),
            log: u64::from_be_bytes(array(row, 17)?),
            row: u32::from_be_bytes(array(row, 25)?),
        })
    }
}

/// The bytes of a row that decide which row stays: they sort as stamps do.
#[must_use]
pub fn rank(row: &[u8]) -> Option<&[u8]> {
    (row.first() == Some(&VERSION)).then(|| row.get(1..HEAD)).flatten()
}

/// Since when a row is known, in microseconds since 1970.
#[must_use]
pub fn known(row: &[u8]) -> Option<i64> {
    Stamp::read(row).map(|stamp| stamp.known)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Where each field of a view lies in its rows.
#[derive(Clone, Debug)]
pub struct Layout {
    fields: Box<[Field]>,
    /// Where the tail begins.
    tail: usize,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    kind: Kind,
    slot: usize,
    /// The slot that says where this field begins in the tail; none if it is the first there.
    before: Option<usize>,
}

/// The size of a value; none if it differs.
fn size(scalar: Scalar) -> Option<usize> {
    Some(match scalar {
        Scalar::Bool => 1,
        Scalar::Int32 | Scalar::Float32 | Scalar::Date => 4,
        Scalar::Int64 | Scalar::Float64 | Scalar::Timestamp => 8,
        Scalar::Decimal(_) => 16,
        Scalar::String | Scalar::Bytes => return None,
    })
}

impl Layout {
    #[must_use]
    pub fn new(kinds: &[Kind]) -> Self {
        let (mut slot, mut before) = (HEAD + kinds.len().div_ceil(8), None);
        let mut fields = Vec::with_capacity(kinds.len());
        for &kind in kinds {
            let fixed = match kind {
                Kind::One(scalar) => size(scalar),
                Kind::List(_) => None,
            };
            fields.push(Field { kind, slot, before });
            before = if fixed.is_none() { Some(slot) } else { before };
            slot += fixed.unwrap_or(4);
        }
        Self { fields: fields.into(), tail: slot }
    }

    #[must_use]
    pub fn kind(&self, field: usize) -> Option<Kind> {
        self.fields.get(field).map(|field| field.kind)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Packs a row. The values are of the fields' kinds, one for each.
    pub fn pack(&self, stamp: Stamp, values: &[Value]) -> Result<Box<[u8]>> {
        if values.len() != self.fields.len() {
            return Err(Error::internal("a row has another number of values than its view"));
        }
        let mut row = Vec::with_capacity(self.tail);
        let mut packing = self.begin(stamp, &mut row);
        for (field, value) in values.iter().enumerate() {
            packing.value(field, value)?;
        }
        Ok(row.into())
    }

    /// Begins a row behind what is there. Every field is then set once, in order.
    pub fn begin<'a>(&'a self, stamp: Stamp, out: &'a mut Vec<u8>) -> Packing<'a> {
        let start = out.len();
        out.resize(start + self.tail, 0);
        out[start] = VERSION;
        out[start + 1..start + HEAD].copy_from_slice(&stamp.bytes());
        Packing { layout: self, out, start }
    }

    /// A row as it is stored, to look at through this layout.
    pub fn open<'a>(&'a self, bytes: &'a [u8]) -> Result<Row<'a>> {
        let stamp = Stamp::read(bytes).filter(|_| bytes.len() >= self.tail).ok_or_else(damaged)?;
        Ok(Row { layout: self, bytes, stamp })
    }
}

/// A row that is being packed.
#[derive(Debug)]
pub struct Packing<'a> {
    layout: &'a Layout,
    out: &'a mut Vec<u8>,
    start: usize,
}

impl Packing<'_> {
    /// Sets a field whose values are of one size to what a value of it is as bytes, little end first.
    pub fn fixed<const N: usize>(&mut self, field: usize, bytes: [u8; N]) -> Result<()> {
        match self.layout.fields.get(field) {
            Some(&Field { kind: Kind::One(scalar), slot, .. }) if size(scalar) == Some(N) => {
                let at = self.start + slot;
                self.out[at..at + N].copy_from_slice(&bytes);
                Ok(())
            }
            _ => Err(another()),
        }
    }

    pub fn value(&mut self, field: usize, value: &Value) -> Result<()> {
        let kind = self.layout.kind(field).filter(|kind| value.is(*kind)).ok_or_else(another)?;
        match value {
            Value::Null => self.out[self.start + HEAD + field / 8] |= 1 << (field % 8),
            Value::Bool(value) => return self.fixed(field, [u8::from(*value)]),
            Value::Int32(value) | Value::Date(value) => {
                return self.fixed(field, value.to_le_bytes());
            }
            Value::Int64(value) | Value::Timestamp(value) => {
                return self.fixed(field, value.to_le_bytes());
            }
            Value::Float32(value) => return self.fixed(field, value.to_le_bytes()),
            Value::Float64(value) => return self.fixed(field, value.to_le_bytes()),
            Value::Decimal(value, _) => return self.fixed(field, value.to_le_bytes()),
            Value::String(text) => self.out.extend_from_slice(text.as_bytes()),
            Value::Bytes(bytes) => self.out.extend_from_slice(bytes),
            Value::List(items) => list(self.out, items)?,
        }
        // A value of no fixed size says where it ends in the tail, also if it is none.
        if !matches!(kind, Kind::One(scalar) if size(scalar).is_some()) {
            let end = short(self.out.len() - self.start - self.layout.tail)?;
            let at = self.start + self.layout.fields[field].slot;
            self.out[at..at + 4].copy_from_slice(&end);
        }
        Ok(())
    }
}

#[cold]
fn another() -> Error {
    Error::internal("a value is of another kind than its field")
}

fn short(size: usize) -> Result<[u8; 4]> {
    let size = u32::try_from(size).map_err(|_| {
        Error::new(&code::TOO_LARGE, "the texts, bytes and lists of a row are over 4 GiB")
    })?;
    Ok(size.to_le_bytes())
}

fn list(row: &mut Vec<u8>, items: &[Value]) -> Result<()> {
    if let Some(Value::String(_) | Value::Bytes(_)) = items.first() {
        row.extend_from_slice(&short(items.len())?);
        let bytes = |item: &Value| match item {
            Value::String(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        let mut end = 0;
        for item in items {
            end += bytes(item);
            row.extend_from_slice(&short(end)?);
        }
    }
    for item in items {
        match item {
            Value::Bool(value) => row.push(u8::from(*value)),
            Value::Int32(value) | Value::Date(value) => {
                row.extend_from_slice(&value.to_le_bytes());
            }
            Value::Decimal(value, _) => row.extend_from_slice(&value.to_le_bytes()),
            Value::Int64(value) | Value::Timestamp(value) => {
                row.extend_from_slice(&value.to_le_bytes());
            }
            Value::Float32(value) => row.extend_from_slice(&value.to_le_bytes()),
            Value::Float64(value) => row.extend_from_slice(&value.to_le_bytes()),
            Value::String(text) => row.extend_from_slice(text.as_bytes()),
            Value::Bytes(bytes) => row.extend_from_slice(bytes),
            Value::Null | Value::List(_) => {}
        }
    }
    Ok(())
}

#[cold]
fn damaged() -> Error {
    Error::new(&code::INTEGRITY, "a stored row of features is damaged")
}

/// A stored row.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    layout: &'a Layout,
    bytes: &'a [u8],
    stamp: Stamp,
}

/// What lies in a row for a field.
enum Part<'a> {
    Fixed(Scalar, &'a [u8]),
    Run(Kind, &'a [u8]),
}

impl<'a> Row<'a> {
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    #[must_use]
    pub fn is_null(&self, field: usize) -> bool {
        let bits = self.bytes.get(HEAD + field / 8).copied().unwrap_or(255);
        bits & (1 << (field % 8)) != 0
    }

    fn part(&self, field: usize) -> Option<Part<'a>> {
        let Field { kind, slot, before } = *self.layout.fields.get(field)?;
        if let Kind::One(scalar) = kind
            && let Some(size) = size(scalar)
        {
            return Some(Part::Fixed(scalar, self.bytes.get(slot..slot + size)?));
        }
        let tail = self.bytes.get(self.layout.tail..)?;
        let end = |slot: usize| Some(u32::from_le_bytes(array(self.bytes, slot)?) as usize);
        let start = before.map_or(Some(0), end)?;
        Some(Part::Run(kind, tail.get(start..end(slot)?)?))
    }

    /// The value of a field.
    pub fn value(&self, field: usize) -> Result<Value> {
        if self.is_null(field) {
            return Ok(Value::Null);
        }
        let value = match self.part(field).ok_or_else(damaged)? {
            Part::Fixed(scalar, bytes) | Part::Run(Kind::One(scalar), bytes) => one(scalar, bytes),
            Part::Run(Kind::List(scalar), bytes) => items(scalar, bytes)
                .and_then(|items| items.into_iter().map(|item| one(scalar, item)).collect())
                .map(Value::List),
        };
        value.ok_or_else(damaged)
    }

    /// Writes the value of a field as JSON, without making a [`Value`] of it.
    pub fn write_json(&self, field: usize, out: &mut Vec<u8>, moments: Moments) -> Result<()> {
        if self.is_null(field) {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        let written = match self.part(field).ok_or_else(damaged)? {
            Part::Fixed(scalar, bytes) | Part::Run(Kind::One(scalar), bytes) => {
                write(out, scalar, bytes, moments)
            }
            Part::Run(Kind::List(scalar), bytes) => items(scalar, bytes).and_then(|items| {
                out.push(b'[');
                for (place, item) in items.into_iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    write(out, scalar, item, moments)?;
                }
                out.push(b']');
                Some(())
            }),
        };
        written.ok_or_else(damaged)
    }
}

/// The elements of a list as they lie there.
fn items(scalar: Scalar, bytes: &[u8]) -> Option<Vec<&[u8]>> {
    if let Some(size) = size(scalar) {
        let whole = bytes.len().is_multiple_of(size);
        return whole.then(|| bytes.chunks_exact(size).collect());
    }
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let count = u32::from_le_bytes(array(bytes, 0)?) as usize;
    let ends = bytes.get(4..count.checked_mul(4)?.checked_add(4)?)?;
    let data = &bytes[4 + ends.len()..];
    let mut start = 0;
    let item = |end: &[u8]| {
        let end = u32::from_le_bytes(end.try_into().ok()?) as usize;
        data.get(std::mem::replace(&mut start, end)..end)
    };
    ends.chunks_exact(4).map(item).collect()
}

fn one(scalar: Scalar, bytes: &[u8]) -> Option<Value> {
    Some(match scalar {
        Scalar::Bool => Value::Bool(*bytes.first()? != 0),
        Scalar::Int32 => Value::Int32(i32::from_le_bytes(bytes.try_into().ok()?)),
        Scalar::Int64 => Value::Int64(i64::from_le_bytes(bytes.try_into().ok()?)),
        Scalar::Float32 => Value::Float32(f32::from_le_bytes(bytes.try_into().ok()?)),
        Scalar::Float64 => Value::Float64(f64::from_le_bytes(bytes.try_into().ok()?)),
        Scalar::String => Value::String(std::str::from_utf8(bytes).ok()?.to_owned()),
        Scalar::Bytes => Value::Bytes(bytes.to_vec()),
        Scalar::Timestamp => Value::Timestamp(i64::from_le_bytes(bytes.try_into().ok()?)),
        Scalar::Date => Value::Date(i32::from_le_bytes(bytes.try_into().ok()?)),
        Scalar::Decimal(of) => Value::Decimal(i128::from_le_bytes(bytes.try_into().ok()?), of),
    })
}

fn write(out: &mut Vec<u8>, scalar: Scalar, bytes: &[u8], moments: Moments) -> Option<()> {
    match scalar {
        Scalar::Bool => json::boolean(out, *bytes.first()? != 0),
        Scalar::Int32 => {
            json::whole(out, i64::from(i32::from_le_bytes(bytes.try_into().ok()?)));
        }
        Scalar::Int64 => json::whole(out, i64::from_le_bytes(bytes.try_into().ok()?)),
        Scalar::Float32 => json::float32(out, f32::from_le_bytes(bytes.try_into().ok()?)),
        Scalar::Float64 => json::float64(out, f64::from_le_bytes(bytes.try_into().ok()?)),
        Scalar::String => json::text(out, std::str::from_utf8(bytes).ok()?),
        Scalar::Bytes => json::bytes(out, bytes),
        Scalar::Timestamp => {
            json::timestamp(out, i64::from_le_bytes(bytes.try_into().ok()?), moments);
        }
        Scalar::Date => json::date(out, i32::from_le_bytes(bytes.try_into().ok()?)),
        Scalar::Decimal(of) => {
            json::decimal(out, i128::from_le_bytes(bytes.try_into().ok()?), of);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::value::tests::{kinds, values};

    fn stamps() -> impl Strategy<Value = Stamp> {
        (any::<i64>(), any::<i64>(), any::<u64>(), any::<u32>())
            .prop_map(|(event, known, log, row)| Stamp { event, known, log, row })
    }

    fn rows() -> impl Strategy<Value = (Vec<Kind>, Vec<Value>)> {
        proptest::collection::vec(kinds(), 0..20).prop_flat_map(|kinds| {
            let row = kinds.iter().map(|kind| values(*kind)).collect::<Vec<_>>();
            (Just(kinds), row)
        })
    }

    proptest! {
        #[test]
        fn what_is_packed_is_found_again((kinds, values) in rows(), stamp in stamps()) {
            let layout = Layout::new(&kinds);
            let packed = layout.pack(stamp, &values).unwrap();
            let row = layout.open(&packed).unwrap();
            prop_assert_eq!(row.stamp(), stamp);
            for (place, value) in values.iter().enumerate() {
                prop_assert_eq!(&row.value(place).unwrap(), value);
                prop_assert_eq!(row.is_null(place), *value == Value::Null);
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                row.write_json(place, &mut ours, Moments::Text).unwrap();
                value.write_json(&mut theirs, Moments::Text);
                prop_assert_eq!(ours, theirs);
            }
        }

        #[test]
        fn damage_is_an_error_and_no_more(
            (kinds, values) in rows(), cut in 0_usize..400, flip in 0_usize..400, bits in 1_u8..
        ) {
            let layout = Layout::new(&kinds);
            let mut packed = layout.pack(Stamp::default(), &values).unwrap().into_vec();
            let length = packed.len();
            packed[flip % length] ^= bits;
            packed.truncate(length - cut % length);
            if let Ok(row) = layout.open(&packed) {
                for place in 0..=kinds.len() {
                    let _ = row.value(place);
                    let _ = row.write_json(place, &mut Vec::new(), Moments::Seconds);
                }
            }
        }

        #[test]
        fn ranks_sort_like_stamps(one in stamps(), other in stamps(), same in 0_u8..4) {
            let mut other = other;
            if same > 0 { other.event = one.event; }
            if same > 1 { other.known = one.known; }
            if same > 2 { other.log = one.log; }
            let layout = Layout::new(&[]);
            let packed = [one, other].map(|stamp| layout.pack(stamp, &[]).unwrap());
            prop_assert_eq!(rank(&packed[0]).cmp(&rank(&packed[1])), one.cmp(&other));
        }
    }

    #[test]
    fn a_value_of_another_kind_is_not_packed() {
        let layout = Layout::new(&[Kind::One(Scalar::Int64)]);
        assert!(layout.pack(Stamp::default(), &[Value::Bool(true)]).is_err());
        assert!(layout.pack(Stamp::default(), &[]).is_err());
    }

    #[test]
    fn days_and_decimals_are_frozen() {
        let of = crate::Decimal::new(10, 2).unwrap();
        let kinds = [Kind::One(Scalar::Date), Kind::One(Scalar::Decimal(of))];
        let values = [Value::Date(-2), Value::Decimal(-1250, of)];
        let packed = Layout::new(&kinds).pack(Stamp::default(), &values).unwrap();
        let expected = [&[254, 255, 255, 255][..], &(-1250_i128).to_le_bytes()].concat();
        assert_eq!(&packed[HEAD + 1..], expected);
    }

    #[test]
    fn frozen() {
        let one = Kind::One;
        let kinds = [
            one(Scalar::Bool),
            one(Scalar::Int32),
            one(Scalar::String),
            one(Scalar::Float64),
            Kind::List(Scalar::Bytes),
            Kind::List(Scalar::Int32),
            one(Scalar::Int64),
        ];
        let values = [
            Value::Bool(true),
            Value::Int32(-2),
            Value::String("ab".to_owned()),
            Value::Float64(1.0),
            Value::List(vec![Value::Bytes(vec![7]), Value::Bytes(vec![])]),
            Value::List(vec![Value::Int32(3)]),
            Value::Null,
        ];
        let stamp = Stamp { event: 1, known: -1, log: 5, row: 9 };
        let packed = Layout::new(&kinds).pack(stamp, &values).unwrap();
        let expected = [
            &[1][..],
            &[0x80, 0, 0, 0, 0, 0, 0, 1],
            &[0x7f, 255, 255, 255, 255, 255, 255, 255],
            &[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 9],
            &[0b100_0000],
            &[1],
            &[254, 255, 255, 255],
            &[2, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
            &[15, 0, 0, 0],
            &[19, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0],
            b"ab",
            &[2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7],
            &[3, 0, 0, 0],
        ]
        .concat();
        assert_eq!(&packed[..], expected);
    }
}
