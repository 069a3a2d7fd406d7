//! Finding the spans in a request without reading them.
//!
//! A message of two bytes becomes a struct of hundreds, so a small request could ask for much
//! memory. Here the parts of a message are only counted and pointed at; what is then read is known
//! to be few enough.

/// Not a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// How deep messages nest; the reader that comes after has about the same limit.
const MAX_DEPTH: usize = 96;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// The fields of one message: the number of each, and its content if it is a piece of bytes.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    #[must_use]
    pub fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn step(&mut self) -> Result<(u64, Option<&'a [u8]>), Malformed> {
        let key = self.varint()?;
        let number = key >> 3;
        if number == 0 || number > u64::from(u32::MAX >> 3) {
            return Err(Malformed);
        }
        let content = match key & 7 {
            VARINT => {
                self.varint()?;
                None
            }
            FIXED64 => self.take(8).map(|_| None)?,
            FIXED32 => self.take(4).map(|_| None)?,
            BYTES => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Some(self.take(length)?)
            }
            // Groups are of another age.
            _ => return Err(Malformed),
        };
        Ok((number, content))
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Malformed)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Option<&'a [u8]>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        Some(step)
    }
}

/// The content of every field of this number.
pub fn each<'a>(
    message: &'a [u8],
    number: u64,
    mut visit: impl FnMut(&'a [u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    for field in Fields::of(message) {
        match field? {
            (found, Some(content)) if found == number => visit(content)?,
            (found, None) if found == number => return Err(Malformed),
            _ => {}
        }
    }
    Ok(())
}

/// How many attributes, events, links and nested values a span has, counted up to `limit`.
pub fn parts_of_span(span: &[u8], limit: usize) -> Result<usize, Malformed> {
    let mut count = 0;
    for (number, attributes) in [(9, None), (11, Some(3)), (13, Some(4))] {
        each(span, number, |part| {
            count += 1;
            match attributes {
                None => count_pair(part, &mut count, limit, 0),
                Some(number) => each(part, number, |pair| {
                    count += 1;
                    count_pair(pair, &mut count, limit, 0)
                }),
            }
        })?;
    }
    Ok(count)
}

/// How many attributes and nested values a resource has, counted up to `limit`.
pub fn parts_of_resource(resource: &[u8], limit: usize) -> Result<usize, Malformed> {
    let mut count = 0;
    each(resource, 1, |pair| {
        count += 1;
        count_pair(pair, &mut count, limit, 0)
    })?;
    Ok(count)
}

fn count_pair(pair: &[u8], count: &mut usize, limit: usize, depth: usize) -> Result<(), Malformed> {
    if *count > limit {
        return Ok(());
    }
    each(pair, 2, |value| count_value(value, count, limit, depth + 1))
}

fn count_value(
    value: &[u8],
    count: &mut usize,
    limit: usize,
    depth: usize,
) -> Result<(), Malformed> {
    if depth > MAX_DEPTH {
        return Err(Malformed);
    }
    each(value, 5, |list| {
        each(list, 1, |item| {
            *count += 1;
            if *count > limit { Ok(()) } else { count_value(item, count, limit, depth + 2) }
        })
    })?;
    each(value, 6, |map| {
        each(map, 1, |pair| {
            *count += 1;
            count_pair(pair, count, limit, depth + 2)
        })
    })
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::message::{Any, AnyValue, ArrayValue, KeyValue, Span};
    use super::*;

    fn nested(depth: usize) -> AnyValue {
        (0..depth).fold(AnyValue { value: Some(Any::Flag(true)) }, |inner, _| AnyValue {
            value: Some(Any::List(ArrayValue { values: vec![inner] })),
        })
    }

    #[test]
    fn parts_are_counted_without_being_read() {
        let mut span = Span { attributes: vec![KeyValue::text("a", "b"); 7], ..Span::default() };
        span.attributes.push(KeyValue { key: "deep".into(), value: Some(nested(10)) });
        assert_eq!(parts_of_span(&span.encode_to_vec(), 1000), Ok(18));
        // Two bytes each, and nothing in them.
        let empty: Vec<u8> = std::iter::repeat_n([0x4a, 0x00], 5000).flatten().collect();
        assert_eq!(parts_of_span(&empty, 10_000), Ok(5000));
    }

    #[test]
    fn what_nests_too_deep_or_breaks_off_is_malformed() {
        let deep = KeyValue { key: String::new(), value: Some(nested(200)) };
        let span = Span { attributes: vec![deep], ..Span::default() }.encode_to_vec();
        assert_eq!(parts_of_span(&span, 1000), Err(Malformed));
        for bytes in [&[0x4a][..], &[0x4a, 5, 1], &[0xff; 11], &[0x4b], &[0x00], &[0x48, 1]] {
            assert_eq!(parts_of_span(bytes, 10), Err(Malformed), "{bytes:?}");
        }
    }
}
