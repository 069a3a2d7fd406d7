//! What a webhook is.

use falaj_base::Result;
use falaj_mlflow::error::{invalid, refused};
use serde_json::Value;

use super::event::Event;
use crate::access::shown;

/// The longest name, in characters.
const MAX_NAME: usize = 63;

/// A webhook without its secret.
#[derive(Clone, Debug)]
pub struct Webhook {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    pub url: String,
    pub events: Vec<Event>,
    pub active: bool,
    pub created_at: i64,
    pub updated_at: i64,
}

impl Webhook {
    /// What events and the audit log say of it. The URL may be a secret of its own.
    pub(super) fn shown(&self) -> Value {
        serde_json::json!({
            "id": self.id,
            "name": self.name,
            "events": self.events.iter().map(|event| event.text()).collect::<Vec<_>>(),
            "status": self.status(),
        })
    }

    #[must_use]
    pub const fn status(&self) -> &'static str {
        if self.active { "ACTIVE" } else { "DISABLED" }
    }
}

/// Checks the name of a webhook.
pub(super) fn check_name(name: &str) -> Result<()> {
    let is_edge = |c: char| c.is_ascii_alphanumeric();
    let is_inner = |c: char| is_edge(c) || "._-".contains(c);
    let fits = name.chars().count() <= MAX_NAME
        && name.starts_with(is_edge)
        && name.ends_with(is_edge)
        && name.chars().all(is_inner);
    if fits {
        return Ok(());
    }
    Err(refused(format!(
        "Webhook name '{}' is invalid. It must start and end with a letter or digit, be less than \
         63 characters long, and contain only letters, digits, dots (.), underscores (_), and \
         hyphens (-).",
        shown(name)
    ))
    .at("name"))
}

/// Reads a status by its name or number: whether it is active.
pub(super) fn read_status(status: &Value) -> Result<bool> {
    match (status.as_str(), status.as_u64()) {
        (Some("ACTIVE"), _) | (_, Some(1)) => Ok(true),
        (Some("DISABLED"), _) | (_, Some(2)) => Ok(false),
        _ => Err(invalid("status", status, "allowed: ACTIVE, DISABLED")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_states() {
        let long = "x".repeat(63);
        for good in ["a", "my-hook_2.x", &long] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let long = "x".repeat(64);
        for bad in ["", "-a", "a-", "a b", "ä", &long] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!(read_status(&json!("ACTIVE")).unwrap() && !read_status(&json!(2)).unwrap());
        assert!(read_status(&json!("active")).is_err());
    }
}
