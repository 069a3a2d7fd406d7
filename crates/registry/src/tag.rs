//! Tags of models and versions, and texts that people write.

use std::collections::BTreeMap;

use falaj_base::Result;
use falaj_mlflow::error::{invalid, refused};
use falaj_mlflow::names::{MAX_KEY, check_key};
use serde_json::json;

use crate::config::RegistryConfig;

/// The tag that makes a registered model a prompt.
pub(crate) const IS_PROMPT: &str = "mlflow.prompt.is_prompt";

/// The tag of a version that holds the text of a prompt.
const PROMPT_TEXT: &str = "mlflow.prompt.text";

pub(crate) type Tags = Vec<(String, String)>;

impl RegistryConfig {
    /// Checks the tags of a new model or version. Of a key that stands twice the last counts.
    pub(crate) fn check_tags(&self, tags: Tags) -> Result<Tags> {
        if tags.len() > self.max_tags {
            let why = format!("a request has at most {} tags", self.max_tags);
            return Err(invalid("tags", &json!(tags.len()), &why));
        }
        let mut checked = BTreeMap::new();
        for (key, value) in tags {
            self.check_tag(&key, &value)?;
            checked.insert(key, value);
        }
        Ok(checked.into_iter().collect())
    }

    pub(crate) fn check_tag(&self, key: &str, value: &str) -> Result<()> {
        if key.chars().count() > MAX_KEY {
            return Err(too_long("key", MAX_KEY));
        }
        check_key("key", key)?;
        if key == PROMPT_TEXT && value.chars().count() > self.max_tag_value {
            let text =
                format!("Prompt text exceeds max length of {} characters.", self.max_tag_value);
            return Err(refused(text).at("value"));
        }
        check_text("value", value, self.max_tag_value)
    }
}

/// Checks a text that is kept as it is: no longer than allowed, and one that a database can hold.
pub(crate) fn check_text(field: &'static str, text: &str, most: usize) -> Result<()> {
    if text.len() > most && text.chars().count() > most {
        return Err(too_long(field, most));
    }
    if text.contains('\0') {
        return Err(refused(format!("'{field}' contains a NUL character")).at(field));
    }
    Ok(())
}

pub(crate) fn too_long(field: &str, most: usize) -> falaj_base::Error {
    refused(format!("'{field}' exceeds the maximum length of {most} characters")).at(field)
}

/// Whether these tags are those of a prompt.
pub(crate) fn is_prompt(tags: &[(String, String)]) -> bool {
    tags.iter().any(|(key, value)| key == IS_PROMPT && value.eq_ignore_ascii_case("true"))
}
