//! Keys: which view, and which entity in it, as bytes that sort like what they mean.
//!
//! ```text
//! number of the view's version   4 bytes, big end first
//! each join key                  a mark of its kind, then
//!   whole number, moment         8 bytes, big end first, the sign turned round
//!   boolean                      1 byte
//!   text, bytes                  as they are but for zeros, which are followed by 255; 0 0 ends it
//! ```
//!
//! Must hold: two keys are equal only if view and every part are, and a list of parts sorts as its
//! first difference does. Whole numbers of both widths are the same number. Frozen in a test.

use falaj_base::{Error, Result};

use crate::value::{Scalar, Value};

/// The longest key, in bytes: long ones are slow to compare, and take room.
pub const MAX_BYTES: usize = 1024;

/// A key as it is stored.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(Box<[u8]>);

/// How many bytes of a key are compared at once; most keys are no longer.
const PREFIX: usize = 16;

/// The beginning of a key, as a number that sorts like it.
pub(crate) fn prefix(key: &[u8]) -> u128 {
    let mut first = [0; PREFIX];
    let length = key.len().min(PREFIX);
    first[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(first)
}

const BOOL: u8 = 1;
const WHOLE: u8 = 2;
const MOMENT: u8 = 3;
const TEXT: u8 = 4;
const BYTES: u8 = 5;

impl Key {
    /// The key of an entity; `names` are the join keys', for the refusal. Both are of one length.
    pub fn new<'a>(
        view: u32,
        parts: impl IntoIterator<Item = (&'a str, &'a Value)>,
    ) -> Result<Self> {
        let mut bytes = Vec::with_capacity(16);
        Self::write(&mut bytes, view, parts)?;
        Ok(Self(bytes.into()))
    }

    /// Writes such a key behind what is there.
    pub fn write<'a>(
        bytes: &mut Vec<u8>,
        view: u32,
        parts: impl IntoIterator<Item = (&'a str, &'a Value)>,
    ) -> Result<()> {
        let start = bytes.len();
        bytes.extend_from_slice(&view.to_be_bytes());
        for (name, part) in parts {
            if !write(bytes, part) {
                let allowed = "a whole number, text, bytes, a time or a boolean as a key";
                let shown = part.kind().map_or("null".to_owned(), |kind| kind.to_string());
                return Err(Error::invalid(name, shown, allowed));
            }
            if bytes.len() - start > MAX_BYTES {
                let allowed = format!("keys that take up at most {MAX_BYTES} bytes together");
                return Err(Error::invalid(name, "longer", allowed));
            }
        }
        Ok(())
    }

    /// The key of another row of the same entity, beside its own. Views are numbered with 31 bits,
    /// so it is nobody else's.
    #[must_use]
    pub fn beside(&self) -> Self {
        let mut bytes = self.0.clone();
        if let Some(first) = bytes.first_mut() {
            *first |= 0x80;
        }
        Self(bytes)
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

fn write(to: &mut Vec<u8>, part: &Value) -> bool {
    match part {
        Value::Bool(value) => to.extend_from_slice(&[BOOL, u8::from(*value)]),
        Value::Int32(value) => number(to, WHOLE, i64::from(*value)),
        Value::Int64(value) => number(to, WHOLE, *value),
        Value::Timestamp(value) => number(to, MOMENT, *value),
        Value::String(value) => run(to, TEXT, value.as_bytes()),
        Value::Bytes(value) => run(to, BYTES, value),
        Value::Null
        | Value::Float32(_)
        | Value::Float64(_)
        | Value::Date(_)
        | Value::Decimal(..)
        | Value::List(_) => return false,
    }
    true
}

fn number(to: &mut Vec<u8>, mark: u8, value: i64) {
    to.push(mark);
    to.extend_from_slice(&sortable(value));
}

fn run(to: &mut Vec<u8>, mark: u8, bytes: &[u8]) {
    to.push(mark);
    for &byte in bytes.iter().take(MAX_BYTES) {
        to.push(byte);
        if byte == 0 {
            to.push(255);
        }
    }
    // What is longer than a key may be is cut, and its key refused for its length.
    to.extend_from_slice(&[0, 0]);
}

/// A number as bytes that sort like it.
pub(crate) fn sortable(value: i64) -> [u8; 8] {
    (value.cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

/// The number that was written so.
pub(crate) fn from_sortable(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ (1 << 63)).cast_signed()
}

/// Some entities of a view: those whose join keys are these, where they are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    view: u32,
    /// Each join key as it is written, or any.
    parts: Box<[Option<Box<[u8]>>]>,
}

impl Pattern {
    /// The entities with these values, one for each join key in their order; any where there is
    /// none. `names` are for the refusal, as in [`Key::new`].
    pub fn new<'a>(
        view: u32,
        parts: impl IntoIterator<Item = (&'a str, Option<&'a Value>)>,
    ) -> Result<Self> {
        let one = |(name, part): (&'a str, Option<&'a Value>)| {
            let Some(part) = part else { return Ok(None) };
            let whole = Key::new(view, [(name, part)])?;
            Ok(Some(whole.bytes()[VIEW..].into()))
        };
        Ok(Self { view, parts: parts.into_iter().map(one).collect::<Result<_>>()? })
    }

    /// The rows that lie beside those of the same entities.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self { view: self.view | 1 << 31, parts: self.parts.clone() }
    }

    /// The only key that fits, if every part is named.
    #[must_use]
    pub fn exact(&self) -> Option<Key> {
        let mut bytes = self.view.to_be_bytes().to_vec();
        for part in &self.parts {
            bytes.extend_from_slice(part.as_ref()?);
        }
        Some(Key(bytes.into()))
    }

    /// What every key that fits begins with.
    #[must_use]
    pub fn beginning(&self) -> Vec<u8> {
        let mut bytes = self.view.to_be_bytes().to_vec();
        for part in self.parts.iter().map_while(Option::as_ref) {
            bytes.extend_from_slice(part);
        }
        bytes
    }

    /// Whether a key that is stored fits.
    #[must_use]
    pub fn fits(&self, key: &[u8]) -> bool {
        let Some(mut rest) = key.strip_prefix(&self.view.to_be_bytes()) else { return false };
        for part in &self.parts {
            let Some((found, behind)) = first_part(rest) else { return false };
            if part.as_ref().is_some_and(|part| **part != *found) {
                return false;
            }
            rest = behind;
        }
        rest.is_empty()
    }
}

/// How many bytes tell the view.
const VIEW: usize = 4;

/// The first part of what follows the view, and what follows that.
fn first_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = match *bytes.first()? {
        BOOL => 2,
        WHOLE | MOMENT => 9,
        TEXT | BYTES => {
            let mut at = 1;
            loop {
                match (bytes.get(at)?, bytes.get(at + 1)) {
                    (0, Some(0)) => break at + 2,
                    (0, _) => at += 2,
                    _ => at += 1,
                }
            }
        }
        _ => return None,
    };
    bytes.split_at_checked(length)
}

impl Scalar {
    /// Whether values of these kinds can be the same key.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        let whole = |scalar| matches!(scalar, Self::Int32 | Self::Int64);
        self == other || (whole(self) && whole(other))
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;
    use crate::value::tests::scalars;

    fn key(view: u32, parts: &[Value]) -> Key {
        Key::new(view, parts.iter().map(|part| ("k", part))).unwrap()
    }

    /// How keys should sort, told without their bytes.
    fn meaning(one: &Value, other: &Value) -> Ordering {
        match (one, other) {
            (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
            (Value::Int64(one), Value::Int64(other))
            | (Value::Timestamp(one), Value::Timestamp(other)) => one.cmp(other),
            (Value::Int32(one), Value::Int32(other)) => one.cmp(other),
            (Value::String(one), Value::String(other)) => one.as_bytes().cmp(other.as_bytes()),
            (Value::Bytes(one), Value::Bytes(other)) => one.cmp(other),
            _ => unreachable!("of one kind"),
        }
    }

    fn lists() -> impl Strategy<Value = (Vec<Value>, Vec<Value>)> {
        let scalar = proptest::sample::select(
            Scalar::ALL.into_iter().filter(|scalar| scalar.is_key()).collect::<Vec<_>>(),
        );
        proptest::collection::vec(scalar, 1..4).prop_flat_map(|scalars_of| {
            let list = scalars_of.iter().map(|scalar| scalars(*scalar)).collect::<Vec<_>>();
            (list.clone(), list)
        })
    }

    proptest! {
        #[test]
        fn keys_sort_like_what_they_mean(
            (one, other) in lists(), view in 0_u32..3, other_view in 0_u32..3
        ) {
            let parts = one.iter().zip(&other).map(|(one, other)| meaning(one, other));
            let expected = parts.fold(view.cmp(&other_view), Ordering::then);
            let found = key(view, &one).cmp(&key(other_view, &other));
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn parts_do_not_run_together() {
        let text = |text: &str| Value::String(text.to_owned());
        let bytes = |bytes: &[u8]| Value::Bytes(bytes.to_vec());
        let keys = [
            key(1, &[text("1"), text("11")]),
            key(1, &[text("11"), text("1")]),
            key(1, &[text("111"), text("")]),
            key(1, &[text("\0"), text("")]),
            key(1, &[text(""), text("\0")]),
            key(1, &[bytes(b"1"), text("11")]),
            key(1, &[text("1")]),
            key(1, &[Value::Int64(1)]),
            key(1, &[Value::Bool(true)]),
            key(1, &[Value::Timestamp(1)]),
            key(2, &[Value::Int64(1)]),
        ];
        for (place, one) in keys.iter().enumerate() {
            assert!(keys[place + 1..].iter().all(|other| one != other), "{one:?}");
        }
        assert_eq!(key(1, &[Value::Int32(-5)]), key(1, &[Value::Int64(-5)]));
    }

    #[test]
    fn what_cannot_be_a_key_is_refused_by_name() {
        let long = Value::String("x".repeat(2000));
        for part in [Value::Null, Value::Float64(1.0), Value::List(vec![]), long] {
            let refused = Key::new(1, [("driver", &part)]).unwrap_err();
            assert_eq!(refused.field(), Some("driver"), "{part:?}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_fits_what_has_the_parts_it_names(
            (one, other) in lists(), named in proptest::collection::vec(any::<bool>(), 4),
            view in 0_u32..2, other_view in 0_u32..2,
        ) {
            let parts = one.iter().zip(&named).map(|(part, named)| ("k", named.then_some(part)));
            let pattern = Pattern::new(view, parts.clone()).unwrap();
            let alike = |candidate: &[Value]| {
                let pairs = parts.clone().zip(candidate);
                let mut same = pairs.map(|((_, part), is)| part.is_none_or(|part| part == is));
                same.all(|same| same)
            };
            for (view_of, values) in [(view, &one), (other_view, &other)] {
                let key = key(view_of, values);
                let expected = view_of == view && alike(values);
                prop_assert_eq!(pattern.fits(key.bytes()), expected);
                prop_assert!(!expected || key.bytes().starts_with(&pattern.beginning()));
            }
            let whole = named[..one.len()].iter().all(|named| *named);
            prop_assert_eq!(pattern.exact(), whole.then(|| key(view, &one)));
        }
    }

    #[test]
    fn frozen() {
        let parts = [
            Value::Int64(-2),
            Value::String("a\0b".to_owned()),
            Value::Bytes(vec![255]),
            Value::Bool(true),
            Value::Timestamp(1),
        ];
        let expected = [
            &[0, 0, 1, 2][..],
            &[2, 0x7f, 255, 255, 255, 255, 255, 255, 254],
            &[4, b'a', 0, 255, b'b', 0, 0],
            &[5, 255, 0, 0],
            &[1, 1],
            &[3, 0x80, 0, 0, 0, 0, 0, 0, 1],
        ]
        .concat();
        assert_eq!(key(258, &parts).bytes(), expected);
    }
}
