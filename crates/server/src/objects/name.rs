//! The name of an object: a relative path in which nothing is special.

use std::fmt;
use std::str::FromStr;

use falaj_base::{Error, Result};

/// The longest name, in bytes.
const MAX_LEN: usize = 1024;

const ALLOWED: &str = "1 to 1024 bytes: parts between single slashes, none of them empty, `.` or \
                       `..`, without backslashes, control characters and drive letters";

/// A valid object name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectName(String);

impl ObjectName {
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let parts_fit = text.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if text.len() <= MAX_LEN && parts_fit && !text.contains(is_unsafe) && !has_drive(&text) {
            Ok(Self(text))
        } else {
            Err(Error::invalid("name", text, ALLOWED))
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part, for the file name of a download.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

/// `C:` at the beginning makes a path absolute on some systems.
fn has_drive(text: &str) -> bool {
    matches!(text.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic())
}

/// Characters that a file system, a terminal or a reader could take for something else: control
/// characters, backslashes, line separators, and marks that reorder text.
fn is_unsafe(c: char) -> bool {
    c == '\\'
        || c.is_control()
        || matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
                | '\u{200e}' | '\u{200f}' | '\u{feff}'
        )
}

/// The first text that sorts after everything that begins with `prefix`; none if there is none.
#[must_use]
pub(super) fn after_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // The range of characters has a gap, the surrogates, which this steps over.
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ObjectName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_plain_relative_paths_are_names() {
        let long = "x".repeat(1024);
        for good in
            ["a", "a/b", "models/resnet 50.onnx", "نموذج/1", "a..b", "...", ".hidden", &long]
        {
            assert!(ObjectName::new(good).is_ok(), "{good:?}");
        }
        let too_long = "x".repeat(1025);
        for bad in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/../b",
            "a/./b",
            "../a",
            "a/..",
            "a\\b",
            "..\\a",
            "a\nb",
            "a\0b",
            "a\u{7f}b",
            "a\u{85}b",
            "a\u{202e}b",
            "a\u{2028}b",
            &too_long,
        ] {
            assert!(ObjectName::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(ObjectName::new("a/b/c.txt").unwrap().file_name(), "c.txt");
    }

    #[test]
    fn the_end_of_a_prefix() {
        for (prefix, end) in [
            ("a", Some("b")),
            ("models/", Some("models0")),
            ("", None),
            ("\u{10ffff}", None),
            ("a\u{10ffff}", Some("b")),
            ("\u{d7ff}", Some("\u{e000}")),
        ] {
            assert_eq!(after_prefix(prefix).as_deref(), end, "{prefix:?}");
        }
    }

    proptest! {
        #[test]
        fn a_prefix_ends_after_everything_that_begins_with_it(prefix in ".{1,5}", rest in ".{0,5}") {
            if let Some(end) = after_prefix(&prefix) {
                let longer = prefix.clone() + &rest;
                prop_assert!(longer.as_bytes() < end.as_bytes());
                prop_assert!(!end.starts_with(&prefix));
            }
        }
    }
}
