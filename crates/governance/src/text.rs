//! Free text from callers: bounded, and without the control characters that forge log lines.

use falaj_base::{Error, Result};

/// Checks a text of `min` to `max` characters.
pub(crate) fn bounded(field: &str, text: String, min: usize, max: usize) -> Result<String> {
    let length = text.chars().count();
    let clean = !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t');
    if clean && (min..=max).contains(&length) {
        Ok(text)
    } else {
        let allowed = format!("{min} to {max} characters, none of them a control character");
        Err(Error::invalid(field, text, allowed))
    }
}

/// Checks a text that may be absent.
pub(crate) fn optional(field: &str, text: Option<String>, max: usize) -> Result<Option<String>> {
    text.map(|text| bounded(field, text, 0, max)).transpose()
}

/// Checks free labels: at most 64, with keys of 1 to 128 and values of up to 512 characters.
pub(crate) fn tags(
    tags: std::collections::BTreeMap<String, String>,
) -> Result<std::collections::BTreeMap<String, String>> {
    const MOST: usize = 64;
    if tags.len() > MOST {
        return Err(Error::invalid("tags", tags.len(), format!("at most {MOST} tags")));
    }
    tags.into_iter()
        .map(|(key, value)| {
            let value = bounded(&format!("tags.{key}"), value, 0, 512)?;
            Ok((bounded("tags", key, 1, 128)?, value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_bounded_in_characters_and_free_of_controls() {
        assert!(bounded("basis", "é".repeat(4), 1, 4).is_ok());
        for bad in ["", "ééééé", "a\u{0}b", "a\u{1b}[2J", "a\rb"] {
            assert!(bounded("basis", bad.to_owned(), 1, 4).is_err(), "{bad:?}");
        }
    }
}
