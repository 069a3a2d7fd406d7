//! What can be told: an entity and what happened to it.

use falaj_base::Result;
use falaj_mlflow::error::{invalid, missing, refused};
use serde_json::{Value, json};

/// One kind of event. The names are MLflow's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    RegisteredModelCreated,
    ModelVersionCreated,
    ModelVersionTagSet,
    ModelVersionTagDeleted,
    ModelVersionAliasCreated,
    ModelVersionAliasDeleted,
    PromptCreated,
    PromptVersionCreated,
    PromptTagSet,
    PromptTagDeleted,
    PromptVersionTagSet,
    PromptVersionTagDeleted,
    PromptAliasCreated,
    PromptAliasDeleted,
    /// Taken for the sake of clients; there are no such budgets here.
    BudgetPolicyExceeded,
}

/// Entities and actions by their numbers in the protocol.
const ENTITIES: [&str; 11] = [
    "ENTITY_UNSPECIFIED",
    "REGISTERED_MODEL",
    "MODEL_VERSION",
    "MODEL_VERSION_TAG",
    "MODEL_VERSION_ALIAS",
    "PROMPT",
    "PROMPT_VERSION",
    "PROMPT_TAG",
    "PROMPT_VERSION_TAG",
    "PROMPT_ALIAS",
    "BUDGET_POLICY",
];
const ACTIONS: [&str; 6] =
    ["ACTION_UNSPECIFIED", "CREATED", "UPDATED", "DELETED", "SET", "EXCEEDED"];

impl Event {
    pub const ALL: [Self; 15] = [
        Self::RegisteredModelCreated,
        Self::ModelVersionCreated,
        Self::ModelVersionTagSet,
        Self::ModelVersionTagDeleted,
        Self::ModelVersionAliasCreated,
        Self::ModelVersionAliasDeleted,
        Self::PromptCreated,
        Self::PromptVersionCreated,
        Self::PromptTagSet,
        Self::PromptTagDeleted,
        Self::PromptVersionTagSet,
        Self::PromptVersionTagDeleted,
        Self::PromptAliasCreated,
        Self::PromptAliasDeleted,
        Self::BudgetPolicyExceeded,
    ];

    /// The entity and the action, as payloads spell them.
    #[must_use]
    pub const fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::RegisteredModelCreated => ("registered_model", "created"),
            Self::ModelVersionCreated => ("model_version", "created"),
            Self::ModelVersionTagSet => ("model_version_tag", "set"),
            Self::ModelVersionTagDeleted => ("model_version_tag", "deleted"),
            Self::ModelVersionAliasCreated => ("model_version_alias", "created"),
            Self::ModelVersionAliasDeleted => ("model_version_alias", "deleted"),
            Self::PromptCreated => ("prompt", "created"),
            Self::PromptVersionCreated => ("prompt_version", "created"),
            Self::PromptTagSet => ("prompt_tag", "set"),
            Self::PromptTagDeleted => ("prompt_tag", "deleted"),
            Self::PromptVersionTagSet => ("prompt_version_tag", "set"),
            Self::PromptVersionTagDeleted => ("prompt_version_tag", "deleted"),
            Self::PromptAliasCreated => ("prompt_alias", "created"),
            Self::PromptAliasDeleted => ("prompt_alias", "deleted"),
            Self::BudgetPolicyExceeded => ("budget_policy", "exceeded"),
        }
    }

    /// As tables keep it: `model_version.created`.
    #[must_use]
    pub fn text(self) -> String {
        let (entity, action) = self.parts();
        format!("{entity}.{action}")
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.text() == text)
    }

    /// Reads an entity and an action by their names or numbers.
    pub(super) fn read(entity: Option<&Value>, action: Option<&Value>) -> Result<Self> {
        let entity = named("entity", entity, &ENTITIES)?.to_lowercase();
        let action = named("action", action, &ACTIONS)?.to_lowercase();
        let found = Self::ALL.into_iter().find(|event| event.parts() == (&entity, &action));
        found.ok_or_else(|| {
            let mut valid: Vec<&str> = Self::ALL
                .into_iter()
                .map(Self::parts)
                .filter(|(of, _)| *of == entity)
                .map(|(_, action)| action)
                .collect();
            valid.sort_unstable();
            let valid: Vec<String> = valid.iter().map(|action| format!("'{action}'")).collect();
            refused(format!(
                "Invalid action '{action}' for entity '{entity}'. Valid actions are: [{}]",
                valid.join(", ")
            ))
            .at("events")
        })
    }

    /// What is sent to try a webhook.
    pub(super) fn example(self) -> Value {
        let prompt = self.parts().0.starts_with("prompt");
        let name = if prompt { "example_prompt" } else { "example_model" };
        let tags = json!({ "example_key": "example_value" });
        match self {
            Self::RegisteredModelCreated => {
                json!({"name": name, "tags": tags, "description": "An example registered model"})
            }
            Self::ModelVersionCreated => json!({
                "name": name, "version": "1", "source": "models:/123",
                "run_id": "abcd1234abcd5678", "tags": tags,
                "description": "An example model version",
            }),
            Self::PromptCreated => {
                json!({"name": name, "tags": tags, "description": "An example prompt"})
            }
            Self::PromptVersionCreated => json!({
                "name": name, "version": "1", "template": "Hello {{name}}!", "tags": tags,
                "description": "An example prompt version",
            }),
            Self::ModelVersionTagSet | Self::PromptVersionTagSet => {
                json!({"name": name, "version": "1", "key": "example_key", "value": "example_value"})
            }
            Self::ModelVersionTagDeleted | Self::PromptVersionTagDeleted => {
                json!({"name": name, "version": "1", "key": "example_key"})
            }
            Self::PromptTagSet => {
                json!({"name": name, "key": "example_key", "value": "example_value"})
            }
            Self::PromptTagDeleted => json!({"name": name, "key": "example_key"}),
            Self::ModelVersionAliasCreated | Self::PromptAliasCreated => {
                json!({"name": name, "alias": "example_alias", "version": "1"})
            }
            Self::ModelVersionAliasDeleted | Self::PromptAliasDeleted => {
                json!({"name": name, "alias": "example_alias"})
            }
            Self::BudgetPolicyExceeded => json!({"name": "example_policy"}),
        }
    }
}

fn named(field: &str, value: Option<&Value>, names: &[&'static str]) -> Result<&'static str> {
    let value = value.filter(|value| !value.is_null()).ok_or_else(|| missing(field))?;
    let found = match value {
        Value::String(text) => names.iter().position(|name| name == text),
        value => value.as_u64().and_then(|number| usize::try_from(number).ok()),
    };
    let known = found.filter(|number| *number > 0).and_then(|number| names.get(number));
    known
        .copied()
        .ok_or_else(|| invalid(field, value, &format!("allowed: {}", names[1..].join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_one_text() {
        for event in Event::ALL {
            assert_eq!(Event::from_text(&event.text()), Some(event));
            let (entity, action) = event.parts();
            let read = Event::read(
                Some(&json!(entity.to_uppercase())),
                Some(&json!(action.to_uppercase())),
            );
            assert_eq!(read.unwrap(), event);
            assert!(event.example().is_object());
        }
        assert_eq!(
            Event::read(Some(&json!(2)), Some(&json!(1))).unwrap().text(),
            "model_version.created"
        );
        let wrong = Event::read(Some(&json!("MODEL_VERSION_TAG")), Some(&json!("CREATED")));
        let said = wrong.unwrap_err().message().to_owned();
        assert!(said.contains("Valid actions are: ['deleted', 'set']"), "{said}");
        for (entity, action) in
            [(json!("X"), json!(1)), (json!(0), json!(1)), (json!(1), Value::Null)]
        {
            assert!(Event::read(Some(&entity), Some(&action)).is_err());
        }
    }
}
