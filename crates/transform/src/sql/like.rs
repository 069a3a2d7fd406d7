//! `LIKE`: `_` is one character, `%` any number of them.

use falaj_base::{Error, Result};

/// The longest pattern, in characters: what is looked for costs its length for each character that is
/// looked at.
const MAX_PATTERN: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Char(char),
    One,
    Any,
}

/// A pattern that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    parts: Vec<Part>,
    /// Whether capitals are told apart.
    exact: bool,
}

impl Pattern {
    pub(super) fn read(text: &str, escape: Option<char>, exact: bool) -> Result<Self> {
        let (mut parts, mut chars) = (Vec::new(), text.chars());
        while let Some(char) = chars.next() {
            let part = match char {
                char if Some(char) == escape => {
                    let Some(next) = chars.next() else {
                        let allowed = "a character behind the one that escapes";
                        return Err(Error::invalid("sql", text, allowed));
                    };
                    Part::Char(next)
                }
                '%' => Part::Any,
                '_' => Part::One,
                char => Part::Char(char),
            };
            if !(part == Part::Any && parts.last() == Some(&Part::Any)) {
                parts.push(part);
            }
        }
        if parts.len() > MAX_PATTERN {
            let allowed = format!("patterns of at most {MAX_PATTERN} characters");
            return Err(Error::invalid("sql", super::parse::shortened(text), allowed));
        }
        Ok(Self { parts, exact })
    }

    fn fits(&self, wanted: char, found: char) -> bool {
        wanted == found || (!self.exact && wanted.to_lowercase().eq(found.to_lowercase()))
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut part, mut at) = (0, 0);
        // Where the last `%` stood, and what it has swallowed so far.
        let mut any: Option<(usize, usize)> = None;
        while at < text.len() {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    any = Some((part, at));
                    part += 1;
                    continue;
                }
                Some(Part::One) => {
                    (part, at) = (part + 1, at + 1);
                    continue;
                }
                Some(Part::Char(wanted)) if self.fits(*wanted, text[at]) => {
                    (part, at) = (part + 1, at + 1);
                    continue;
                }
                _ => {}
            }
            let Some((place, swallowed)) = any else { return false };
            any = Some((place, swallowed + 1));
            (part, at) = (place + 1, swallowed + 1);
        }
        self.parts[part..].iter().all(|part| *part == Part::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_texts_match() {
        let table = [
            ("a%", "abc", true),
            ("a%", "ba", false),
            ("%b%", "abc", true),
            ("_b_", "abc", true),
            ("_b_", "ab", false),
            ("%", "", true),
            ("", "", true),
            ("", "a", false),
            ("a%b%c", "axbxbxc", true),
            ("a\\%", "a%", true),
            ("a\\%", "ab", false),
            ("é_", "éa", true),
        ];
        for (pattern, text, expected) in table {
            let found = Pattern::read(pattern, Some('\\'), true).unwrap().matches(text);
            assert_eq!(found, expected, "{pattern} {text}");
        }
        assert!(Pattern::read("A%", None, false).unwrap().matches("abc"));
        assert!(Pattern::read("x\\", Some('\\'), true).is_err());
        assert!(Pattern::read(&"a".repeat(300), None, true).is_err());
    }
}
