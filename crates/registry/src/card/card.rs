//! What a card is.

use std::collections::BTreeMap;

use falaj_base::{Error, Result, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::RegistryConfig;

/// The longest name of a field, in characters.
const MAX_FIELD: usize = 64;

/// The card of a version. Fields have free names; a policy can require some of them, and a bill of
/// materials shows those it knows: `licence`, `task`, `architecture`, `architecture_family`,
/// `users`, `intended_use`, `limitations`, `tradeoffs` and `ethics`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Card {
    pub fields: BTreeMap<String, String>,
    /// The rest, as Markdown. It is stored and given back, never rendered.
    pub markdown: String,
    /// Grows with each change; 0 is a card that was never written.
    pub revision: i64,
    pub updated_at: Timestamp,
    /// Who wrote it last.
    pub updated_by: String,
}

/// A card as it is written.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCard {
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
    #[serde(default)]
    pub markdown: String,
    /// The revision it was made from: if another was written meanwhile, this one is refused.
    #[serde(default)]
    pub revision: Option<i64>,
}

impl NewCard {
    /// Refuses what is too much, or no name. A field without text is left out.
    pub(super) fn check(mut self, config: &RegistryConfig) -> Result<Self> {
        let limit = config.max_card_fields;
        if self.fields.len() > limit {
            let allowed = format!("up to {limit} fields (registry.max_card_fields)");
            return Err(Error::invalid("fields", self.fields.len(), allowed));
        }
        for (name, text) in &self.fields {
            check_field(name)?;
            check_length(&format!("fields.{name}"), text, config.max_description)?;
        }
        check_length("markdown", &self.markdown, config.max_description)?;
        self.fields.retain(|_, text| !text.trim().is_empty());
        Ok(self)
    }
}

/// Checks the name of a field.
pub(crate) fn check_field(name: &str) -> Result<()> {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || name.len() > MAX_FIELD || !name.chars().all(is_word) {
        let allowed = format!("1 to {MAX_FIELD} of a-z, 0-9 and _");
        return Err(Error::invalid("fields", name, allowed));
    }
    Ok(())
}

fn check_length(field: &str, text: &str, most: usize) -> Result<()> {
    let length = text.chars().count();
    if length > most {
        let allowed = format!("up to {most} characters (registry.max_description)");
        return Err(Error::invalid(field, format!("{length} characters"), allowed));
    }
    if text.contains('\0') {
        return Err(Error::invalid(field, "a text with NUL", "a text without NUL characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_checked() {
        let with = |name: &str, text: &str| NewCard {
            fields: [(name.to_owned(), text.to_owned())].into(),
            ..NewCard::default()
        };
        let config = RegistryConfig::default();
        assert_eq!(with("owner", "us").check(&config).unwrap().fields.len(), 1);
        assert_eq!(with("owner", " ").check(&config).unwrap().fields.len(), 0);
        let long = "x".repeat(65);
        for bad in ["", "Owner", "a b", "a.b", &long] {
            assert!(with(bad, "x").check(&config).is_err(), "{bad}");
        }
        assert!(with("a", &"x".repeat(config.max_description + 1)).check(&config).is_err());
        assert!(with("a", "x\0").check(&config).is_err());
        let many = (0..=config.max_card_fields).map(|n| (format!("f{n}"), "x".to_owned()));
        assert!(NewCard { fields: many.collect(), ..NewCard::default() }.check(&config).is_err());
    }
}
