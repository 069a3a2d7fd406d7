//! SQL's `LIKE`, compiled: `%` is any run of characters, `_` is one, nothing escapes them.
//!
//! Time is linear in the text. The pattern falls into pieces at each `%`; the first and the last are
//! anchored, each one between is looked for to the right of the one before, and taking the leftmost
//! place is always right because every piece has a fixed number of characters. A piece without `_` is
//! a substring search; one with `_` runs as a bit-parallel automaton, never as a backtracking one.

use std::borrow::Cow;
use std::collections::HashMap;

use falaj_base::Result;

use super::error::refuse;

/// How many words of 64 characters a floating piece with `_` may have.
const MAX_WORDS: usize = 16;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Like {
    pattern: String,
    case_insensitive: bool,
    /// What the text begins with.
    head: Vec<Unit>,
    /// What follows somewhere, in this order; `None` if the pattern has no `%`.
    rest: Option<Rest>,
}

#[derive(Clone, Debug)]
struct Rest {
    floating: Vec<Piece>,
    /// What the text ends with.
    tail: Vec<Unit>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Char(char),
    Any,
}

#[derive(Clone, Debug)]
enum Piece {
    Literal(String),
    Automaton(Automaton),
}

impl Like {
    /// Compiles a pattern. `ILIKE` is the case-insensitive one.
    pub fn new(pattern: &str, case_insensitive: bool) -> Result<Self> {
        let units = |piece: &str| -> Vec<Unit> {
            let fold = |c| if case_insensitive { fold(c) } else { c };
            piece.chars().map(|c| if c == '_' { Unit::Any } else { Unit::Char(fold(c)) }).collect()
        };
        let (head, rest) = match pattern.split_once('%') {
            None => (units(pattern), None),
            Some((head, rest)) => {
                let (middle, tail) = rest.rsplit_once('%').unwrap_or(("", rest));
                let floating = middle
                    .split('%')
                    .filter(|piece| !piece.is_empty())
                    .map(|piece| Piece::new(&units(piece)))
                    .collect::<Result<_>>()?;
                (units(head), Some(Rest { floating, tail: units(tail) }))
            }
        };
        Ok(Self { pattern: pattern.to_owned(), case_insensitive, head, rest })
    }

    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    #[must_use]
    pub fn is_case_insensitive(&self) -> bool {
        self.case_insensitive
    }

    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let text: Cow<'_, str> = if self.case_insensitive {
            text.chars().map(fold).collect::<String>().into()
        } else {
            text.into()
        };
        let Some(text) = after(&text, &self.head) else { return false };
        let Some(rest) = &self.rest else { return text.is_empty() };
        let Some(mut text) = before(text, &rest.tail) else { return false };
        rest.floating.iter().all(|piece| match piece.end(text) {
            Some(end) => {
                text = &text[end..];
                true
            }
            None => false,
        })
    }
}

impl PartialEq for Like {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.case_insensitive == other.case_insensitive
    }
}

/// One character for one, so that `_` counts the same with and without case.
fn fold(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    // Through upper case, so that a final sigma is a sigma.
    let upper = single(c.to_uppercase()).unwrap_or(c);
    single(upper.to_lowercase()).unwrap_or(c)
}

fn single(mut chars: impl Iterator<Item = char>) -> Option<char> {
    let first = chars.next();
    first.filter(|_| chars.next().is_none())
}

impl Unit {
    fn takes(self, c: char) -> bool {
        self == Self::Any || self == Self::Char(c)
    }
}

/// What remains of a text that begins with these.
fn after<'a>(text: &'a str, head: &[Unit]) -> Option<&'a str> {
    let mut chars = text.chars();
    head.iter().all(|unit| chars.next().is_some_and(|c| unit.takes(c))).then_some(chars.as_str())
}

/// What remains of a text that ends with these.
fn before<'a>(text: &'a str, tail: &[Unit]) -> Option<&'a str> {
    let mut chars = text.chars();
    let mut units = tail.iter().rev();
    units.all(|unit| chars.next_back().is_some_and(|c| unit.takes(c))).then_some(chars.as_str())
}

impl Piece {
    fn new(units: &[Unit]) -> Result<Self> {
        let literal: Option<String> = units
            .iter()
            .map(|unit| match unit {
                Unit::Char(c) => Some(*c),
                Unit::Any => None,
            })
            .collect();
        match literal {
            Some(text) => Ok(Self::Literal(text)),
            None => Automaton::new(units).map(Self::Automaton),
        }
    }

    /// Where the leftmost occurrence ends.
    fn end(&self, text: &str) -> Option<usize> {
        match self {
            Self::Literal(literal) => text.find(literal.as_str()).map(|at| at + literal.len()),
            Self::Automaton(automaton) => automaton.end(text),
        }
    }
}

/// Shift-And: bit `i` of the state says that the last `i + 1` characters read are the first
/// `i + 1` of the piece.
#[derive(Clone, Debug)]
struct Automaton {
    /// Where `_` stands: the mask of every character the piece does not name.
    any: Box<[u64]>,
    masks: HashMap<char, Box<[u64]>>,
    /// The bit that is set once the whole piece was read.
    last: (usize, u64),
}

impl Automaton {
    fn new(units: &[Unit]) -> Result<Self> {
        let words = units.len().div_ceil(64);
        if words > MAX_WORDS {
            return Err(refuse(format!(
                "Invalid LIKE pattern: more than {} characters between two '%', with '_' among them",
                MAX_WORDS * 64
            )));
        }
        let mut any = vec![0; words].into_boxed_slice();
        for (at, _) in units.iter().enumerate().filter(|(_, unit)| **unit == Unit::Any) {
            any[at / 64] |= 1 << (at % 64);
        }
        let mut masks: HashMap<char, Box<[u64]>> = HashMap::new();
        for (at, unit) in units.iter().enumerate() {
            if let Unit::Char(c) = unit {
                masks.entry(*c).or_insert_with(|| any.clone())[at / 64] |= 1 << (at % 64);
            }
        }
        let last = units.len().saturating_sub(1);
        Ok(Self { any, masks, last: (last / 64, 1 << (last % 64)) })
    }

    fn end(&self, text: &str) -> Option<usize> {
        let mut state = [0_u64; MAX_WORDS];
        for (at, c) in text.char_indices() {
            let mask = self.masks.get(&c).unwrap_or(&self.any);
            let mut carry = 1;
            for (word, mask) in state.iter_mut().zip(mask) {
                let out = *word >> 63;
                *word = ((*word << 1) | carry) & mask;
                carry = out;
            }
            if state[self.last.0] & self.last.1 != 0 {
                return Some(at + c.len_utf8());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, without any cleverness.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('%', rest)) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            Some(('_', rest)) => !text.is_empty() && naive(rest, &text[1..]),
            Some((c, rest)) => text.first() == Some(c) && naive(rest, &text[1..]),
        }
    }

    fn check(pattern: &str, text: &str, case_insensitive: bool) -> bool {
        Like::new(pattern, case_insensitive).expect("a pattern").matches(text)
    }

    #[test]
    fn patterns_and_what_they_match() {
        for (pattern, text, like, ilike) in [
            ("abc", "abc", true, true),
            ("abc", "ABC", false, true),
            ("abc", "abcd", false, false),
            ("", "", true, true),
            ("", "a", false, false),
            ("%", "", true, true),
            ("%%", "anything\nat all", true, true),
            ("_", "é", true, true),
            ("_", "", false, false),
            ("É%", "éa", false, true),
            ("%ΟΔΟΣ", "η οδος", false, true),
            ("straße", "STRASSE", false, false),
            ("a%a", "a", false, false),
            ("a%b%a", "aba", true, true),
            ("%C+W%", "jamie C+W bar", true, true),
            ("50\\%", "50\\ %", true, true),
            ("_e%", "test_for", true, true),
            ("%a_c%c", "xabcc", true, true),
            ("%[a-z]%", "b", false, false),
            ("nul\0%", "nul\0x", true, true),
        ] {
            assert_eq!(check(pattern, text, false), like, "{text:?} LIKE {pattern:?}");
            assert_eq!(check(pattern, text, true), ilike, "{text:?} ILIKE {pattern:?}");
        }
    }

    #[test]
    fn a_piece_longer_than_a_word_is_found() {
        let piece = format!("{}_{}", "a".repeat(70), "b".repeat(70));
        let text = format!("{}x{}", "a".repeat(300), "b".repeat(300));
        assert!(check(&format!("%{piece}%"), &text, false));
        assert!(!check(&format!("%{piece}c%"), &text, false));
        let longest = "_".repeat(MAX_WORDS * 64);
        assert!(check(&format!("%{longest}%"), &longest, false));
        assert!(!check(&format!("%{longest}%"), &longest[1..], false));
        assert!(Like::new(&format!("%{longest}_%"), false).is_err());
    }

    #[test]
    fn a_pattern_made_to_backtrack_does_not() {
        let text = "a".repeat(100_000);
        assert!(!check(&"%a_a".repeat(200), &format!("{text}b"), false));
        assert!(!check(&format!("%{}b%", "a_".repeat(500)), &text, true));
    }

    proptest! {
        #[test]
        fn it_is_the_naive_matcher(pattern in "[ab%_É]{0,8}", text in "[abAÉé]{0,12}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let folded = |text: &str| text.chars().map(fold).collect::<Vec<_>>();
            prop_assert_eq!(check(&pattern, &text, false), naive(&chars(&pattern), &chars(&text)));
            prop_assert_eq!(check(&pattern, &text, true), naive(&folded(&pattern), &folded(&text)));
        }

        #[test]
        fn a_text_is_like_itself(text in "[^%_]{0,40}") {
            prop_assert!(check(&text, &text, false));
            let (pattern, twice) = (format!("%{text}%"), text.repeat(2));
            prop_assert!(check(&pattern, &twice, true));
        }
    }
}
