//! What libraries say in the events of a span rather than in its attributes.

use serde_json::{Value, json};

use super::said::{Said, opened, says_something, unpacked};
use super::special::{Claude, shown};
use crate::otlp::message::{Any, Event};
use crate::otlp::value::any;

pub(super) fn inputs(events: &[Event]) -> Option<Any> {
    named(events, "gen_ai.content.prompt", "gen_ai.prompt").or_else(|| {
        messages(events, |event| match event.name.as_str() {
            "gen_ai.system.message" => Some("system".into()),
            "gen_ai.user.message" => Some("user".into()),
            "gen_ai.assistant.message" => Some("assistant".into()),
            _ => None,
        })
    })
}

pub(super) fn outputs(events: &[Event], said: &Said<'_>) -> Option<Any> {
    named(events, "gen_ai.content.completion", "gen_ai.completion")
        .or_else(|| {
            messages(events, |event| {
                let role = Said(&event.attributes).get("role");
                (event.name == "gen_ai.choice")
                    .then(|| role.map_or_else(|| "assistant".into(), opened))
            })
        })
        .or_else(|| {
            if Claude::of(said) != Some(Claude::Tool) {
                return None;
            }
            let mut told = events.iter().filter(|event| event.name == "tool.output");
            told.find_map(|event| {
                let said = Said(&event.attributes);
                ["output", "content", "diff"].iter().find_map(|key| shown(&said, key))
            })
        })
}

/// One attribute of the first event of this name that has it.
fn named(events: &[Event], name: &str, key: &str) -> Option<Any> {
    events
        .iter()
        .filter(|event| event.name == name)
        .find_map(|event| Said(&event.attributes).get(key).filter(|value| says_something(value)))
        .map(unpacked)
}

/// The contents of those events that have a role, as a conversation.
fn messages(events: &[Event], role: impl Fn(&Event) -> Option<Value>) -> Option<Any> {
    let said = events.iter().filter_map(|event| {
        let role = role(event)?;
        let content = Said(&event.attributes).get("content").filter(|text| says_something(text))?;
        Some(json!({ "role": role, "content": opened(content) }))
    });
    let said: Vec<Value> = said.collect();
    if said.is_empty() { None } else { any(&Value::Array(said)).value }
}
