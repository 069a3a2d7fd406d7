//! Telling webhooks of a change, in the change's own transaction.

use falaj_base::{Error, ProjectId, Result};
use falaj_store::db::Tx;
use serde_json::{Value, json};
use uuid::Uuid;

use super::config::Room;
use super::delivery::envelope;
use super::event::Event;
use super::store;
use crate::model::RegisteredId;
use crate::model::store as models;
use crate::tag::IS_PROMPT;

/// What happened to a model, a version, a tag or an alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Created,
    VersionCreated,
    TagSet,
    TagDeleted,
    VersionTagSet,
    VersionTagDeleted,
    AliasSet,
    AliasDeleted,
}

impl Told {
    /// A prompt is a model to us, but another thing to those who are told. Of a model's own tags
    /// nobody is told, as in MLflow.
    const fn event(self, prompt: bool) -> Option<Event> {
        Some(match (self, prompt) {
            (Self::Created, false) => Event::RegisteredModelCreated,
            (Self::Created, true) => Event::PromptCreated,
            (Self::VersionCreated, false) => Event::ModelVersionCreated,
            (Self::VersionCreated, true) => Event::PromptVersionCreated,
            (Self::TagSet, true) => Event::PromptTagSet,
            (Self::TagDeleted, true) => Event::PromptTagDeleted,
            (Self::TagSet | Self::TagDeleted, false) => return None,
            (Self::VersionTagSet, false) => Event::ModelVersionTagSet,
            (Self::VersionTagSet, true) => Event::PromptVersionTagSet,
            (Self::VersionTagDeleted, false) => Event::ModelVersionTagDeleted,
            (Self::VersionTagDeleted, true) => Event::PromptVersionTagDeleted,
            (Self::AliasSet, false) => Event::ModelVersionAliasCreated,
            (Self::AliasSet, true) => Event::PromptAliasCreated,
            (Self::AliasDeleted, false) => Event::ModelVersionAliasDeleted,
            (Self::AliasDeleted, true) => Event::PromptAliasDeleted,
        })
    }
}

/// Queues what happened for every webhook of the project that wants to know. The data is made only
/// if there is one; there is so much room for each.
pub(crate) fn tell(
    tx: &mut Tx<'_>,
    (project, model): (ProjectId, RegisteredId),
    told: Told,
    room: Room,
    data: impl FnOnce(bool) -> Value,
) -> Result<()> {
    let prompt = models::tag(tx, model, IS_PROMPT)?;
    let prompt = prompt.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let Some(event) = told.event(prompt) else { return Ok(()) };
    if store::wanting(tx, project, event)?.is_empty() {
        return Ok(());
    }
    // Those that are there now stay until this is queued.
    tx.lock_shared(&store::lock(project))?;
    let wanting = store::wanting(tx, project, event)?;
    let payload = envelope(event, &data(prompt), tx.now());
    let payload = serde_json::to_string(&payload).map_err(Error::internal)?;
    for webhook in wanting {
        if !room.holds(store::waiting(tx, &webhook)?, &payload) {
            tracing::warn!(webhook, "too much waits for this webhook; it is not told");
            continue;
        }
        store::queue(tx, (&Uuid::now_v7().to_string(), &webhook), event, &payload)?;
    }
    Ok(())
}

/// The data of a new model; of a new prompt without the tags that make it one.
pub(crate) fn created(
    name: &str,
    description: &str,
    tags: &[(String, String)],
    prompt: bool,
) -> Value {
    let without: &[&str] = if prompt { &[IS_PROMPT, PROMPT_TYPE] } else { &[] };
    json!({ "name": name, "tags": told_tags(tags, without), "description": description })
}

const PROMPT_TYPE: &str = "_mlflow_prompt_type";
const PROMPT_TEXT: &str = "mlflow.prompt.text";

/// The data of a new version.
pub(crate) fn version_created(version: &crate::version::Version, prompt: bool) -> Value {
    let description = version.description.as_deref().filter(|text| !text.is_empty());
    let number = version.number.to_string();
    if prompt {
        let template = version.tags.iter().find(|(key, _)| key == PROMPT_TEXT);
        return json!({
            "name": version.name,
            "version": number,
            "template": template.map(|(_, text)| text),
            "tags": told_tags(&version.tags, &[IS_PROMPT, PROMPT_TYPE, PROMPT_TEXT]),
            "description": description,
        });
    }
    json!({
        "name": version.name,
        "version": number,
        "source": version.source,
        "run_id": version.run_id.as_deref().filter(|run| !run.is_empty()),
        "tags": told_tags(&version.tags, &[]),
        "description": description,
    })
}

fn told_tags(tags: &[(String, String)], without: &[&str]) -> Value {
    tags.iter()
        .filter(|(key, _)| !without.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), Value::from(value.as_str())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
