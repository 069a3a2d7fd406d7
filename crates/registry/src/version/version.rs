//! What a version is.

use falaj_base::Result;
use falaj_mlflow::error::refused;
use serde_json::json;

use super::stage::Stage;
use crate::access::shown;
use crate::model::RegisteredId;

#[derive(Clone, Debug)]
pub struct Version {
    pub(crate) model: RegisteredId,
    /// The model's name.
    pub name: String,
    pub number: i64,
    /// Absent once an update left it out.
    pub description: Option<String>,
    pub stage: Stage,
    /// Where it was registered from, as its maker wrote it.
    pub source: String,
    /// Where clients fetch its files.
    pub location: String,
    /// Where its files lie among the project's artifacts, if this server keeps them.
    pub files: Option<String>,
    pub run_id: Option<String>,
    pub run_link: String,
    pub logged_model: Option<String>,
    /// Who registered it.
    pub created_by: String,
    pub created_at: i64,
    pub updated_at: i64,
    pub tags: Vec<(String, String)>,
    pub aliases: Vec<String>,
}

impl Version {
    /// The model it is a version of, under whatever name.
    #[must_use]
    pub fn model(&self) -> RegisteredId {
        self.model
    }

    /// What events and the audit log say of it.
    pub(crate) fn shown(&self) -> serde_json::Value {
        json!({
            "name": self.name,
            "version": self.number.to_string(),
            "stage": self.stage.as_str(),
            "source": self.source,
            "run_id": self.run_id.as_deref().filter(|run| !run.is_empty()),
            "model_id": self.logged_model,
        })
    }
}

/// Reads a version's number.
pub(crate) fn parse_number(text: &str) -> Result<i64> {
    text.trim().parse().map_err(|_| {
        let text = format!("Parameter 'version' must be an integer, got '{}'.", shown(text));
        refused(text).at("version")
    })
}
