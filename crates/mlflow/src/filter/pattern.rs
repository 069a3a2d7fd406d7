//! A regular expression of a filter (`RLIKE`), in an engine that never backtracks.

use falaj_base::Result;
use regex::{Regex, RegexBuilder};

use super::error::{echo, refuse};

/// What one compiled expression, and its cache while it runs, may take.
const SIZE_LIMIT: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Found anywhere in a text, unless it anchors itself.
    pub fn new(text: &str) -> Result<Self> {
        RegexBuilder::new(text)
            .size_limit(SIZE_LIMIT)
            .dfa_size_limit(SIZE_LIMIT)
            .nest_limit(64)
            .build()
            .map(Self)
            .map_err(|_| {
                refuse(format!(
                    "Invalid regular expression '{}': it has a mistake, needs back references or \
                     look-around, or is too large",
                    echo(text)
                ))
            })
    }

    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_found_anywhere() {
        let pattern = Pattern::new("v[0-9]+").expect("a pattern");
        assert!(pattern.matches("model-v12"));
        assert!(!pattern.matches("model"));
    }

    #[test]
    fn a_pattern_that_cannot_run_in_linear_time_or_little_memory_is_refused() {
        for text in ["(", "(a)\\1", "(?=a)", "((a{1000}){1000}){1000}", &"(".repeat(1000)] {
            let error = Pattern::new(text).expect_err(text);
            assert!(error.message().starts_with("Invalid regular expression"));
        }
    }
}
