//! The `Range` header: one range of bytes, or none.

use std::ops::Range;

/// What part of the content is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Whole,
    Part(Range<u64>),
    /// The header is a valid range that lies outside the content.
    Outside,
}

/// Reads the header. As the standard has it, one that is not understood is ignored, and so is a
/// list of several ranges: the whole content answers it rightly, if not cheaply.
#[must_use]
pub fn parse(header: Option<&str>, size: u64) -> Wanted {
    let Some(spec) = header.and_then(|text| text.trim().strip_prefix("bytes=")) else {
        return Wanted::Whole;
    };
    let Some((first, last)) = spec.trim().split_once('-') else { return Wanted::Whole };
    let range = match (number(first), number(last)) {
        (Number::Value(first), Number::Value(last)) if first <= last => {
            first..last.saturating_add(1).min(size)
        }
        (Number::Value(first), Number::Absent) => first..size,
        (Number::Absent, Number::Value(count)) => size.saturating_sub(count)..size,
        _ => return Wanted::Whole,
    };
    if range.start < range.end { Wanted::Part(range) } else { Wanted::Outside }
}

enum Number {
    Absent,
    Value(u64),
    Invalid,
}

fn number(text: &str) -> Number {
    if text.is_empty() {
        return Number::Absent;
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Number::Invalid;
    }
    // More digits than fit: larger than any size.
    Number::Value(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        let part = Wanted::Part;
        for (header, wanted) in [
            ("bytes=0-0", part(0..1)),
            ("bytes=0-99", part(0..100)),
            ("bytes=0-100", part(0..100)),
            ("bytes=10-", part(10..100)),
            ("bytes=-10", part(90..100)),
            ("bytes=-1000", part(0..100)),
            ("bytes=99-99999999999999999999999", part(99..100)),
            ("bytes=100-", Wanted::Outside),
            ("bytes=100-200", Wanted::Outside),
            ("bytes=-0", Wanted::Outside),
            ("bytes=5-4", Wanted::Whole),
            ("bytes=0-1,5-6", Wanted::Whole),
            ("bytes=", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("lines=1-2", Wanted::Whole),
            ("", Wanted::Whole),
        ] {
            assert_eq!(parse(Some(header), 100), wanted, "{header:?}");
        }
        assert_eq!(parse(None, 100), Wanted::Whole);
        assert_eq!(parse(Some("bytes=0-0"), 0), Wanted::Outside);
    }
}
