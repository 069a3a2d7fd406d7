//! What a registered model is.

use falaj_base::Result;
use falaj_mlflow::error::{invalid, missing, refused};
use serde_json::json;

use super::id::RegisteredId;
use crate::tag::too_long;
use crate::version::Version;

/// The longest name, in characters.
const MAX_NAME: usize = 256;

#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) id: RegisteredId,
    pub name: String,
    pub description: String,
    /// The greatest version number ever given.
    pub last_version: i64,
    pub created_at: i64,
    pub updated_at: i64,
    pub tags: Vec<(String, String)>,
    pub aliases: Vec<(String, i64)>,
    /// The newest version of each stage.
    pub latest: Vec<Version>,
}

impl Model {
    /// What events and the audit log say of it.
    pub(crate) fn shown(&self) -> serde_json::Value {
        json!({ "name": self.name, "description": self.description })
    }
}

/// Checks the name of a model. Clients make parts of URIs and paths of it.
pub(crate) fn check_name(field: &str, name: &str) -> Result<()> {
    if name.trim().is_empty() {
        return Err(missing(field));
    }
    if name.chars().count() > MAX_NAME {
        return Err(too_long(field, MAX_NAME));
    }
    if name.contains(['/', ':']) {
        let text = format!("Invalid model name '{name}'. Names cannot contain '/' or ':'.");
        return Err(refused(text).at(field));
    }
    if name == "." || name.starts_with("..") {
        let why = "names may be treated as files in certain cases, and must not resolve to other \
                   names when treated as such";
        return Err(invalid(field, &json!(name), why));
    }
    if name.chars().any(char::is_control) {
        return Err(invalid(field, &json!(name), "names cannot contain control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let long = "n".repeat(256);
        for good in ["a", "My model 2", "a.b", ".hidden", "نموذج", "a@b", "100%", &long] {
            assert!(check_name("name", good).is_ok(), "{good}");
        }
        let long = "n".repeat(257);
        for bad in ["", "  ", ".", "..", "..a", "a/b", "a:b", "a\nb", "a\0b", &long] {
            assert!(check_name("name", bad).is_err(), "{bad:?}");
        }
    }
}
