//! What an alias may be called.

use falaj_base::{Error, Result};
use falaj_mlflow::error::refused;

use crate::access::shown;
use crate::tag::too_long;

/// The longest name, in characters.
const MAX_ALIAS: usize = 255;

/// The alias that always points at the newest version; no one else sets it.
pub(super) const LATEST: &str = "latest";

/// Checks the name of an alias.
pub(super) fn check_alias(alias: &str) -> Result<()> {
    if alias.is_empty() {
        return Err(refused("Registered model alias name cannot be empty.").at("alias"));
    }
    if alias.chars().count() > MAX_ALIAS {
        return Err(too_long("Registered model alias name", MAX_ALIAS).at("alias"));
    }
    if !alias.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
        return Err(refused(format!(
            "Invalid alias name: '{}'. Names may only contain alphanumerics, underscores (_), and \
             dashes (-).",
            shown(alias)
        ))
        .at("alias"));
    }
    Ok(())
}

/// Checks that an alias can be set: some names mean something already.
pub(crate) fn check_free(alias: &str) -> Result<()> {
    check_alias(alias)?;
    if alias.eq_ignore_ascii_case(LATEST) {
        let text = "'latest' alias name (case insensitive) is reserved.";
        return Err(refused(text).at("alias"));
    }
    let digits = alias.strip_prefix(['v', 'V']).unwrap_or_default();
    if !digits.is_empty() && digits.chars().all(char::is_numeric) {
        return Err(refused(format!("Version alias name '{alias}' is reserved.")).at("alias"));
    }
    Ok(())
}

/// An alias is not there; the original calls that a bad value.
pub(crate) fn no_alias(alias: &str) -> Error {
    refused(format!("Registered model alias {} not found.", shown(alias))).at("alias")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let long = "x".repeat(255);
        for good in ["champion", "a-b_c", "Ünï", "v", "v1a", "vv1", "1", "latest2", &long] {
            assert!(check_free(good).is_ok(), "{good}");
        }
        let long = "x".repeat(256);
        for bad in ["", "a b", "a.b", "a/b", "a@b", "a\n", &long] {
            assert!(check_alias(bad).is_err(), "{bad:?}");
        }
        for taken in ["latest", "Latest", "v1", "V22"] {
            assert!(check_alias(taken).is_ok() && check_free(taken).is_err(), "{taken}");
        }
    }
}
