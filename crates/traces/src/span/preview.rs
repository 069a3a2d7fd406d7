//! A glance at what was asked and answered: the last message of a chat, or the beginning of
//! whatever it is.

use serde_json::Value;

/// The longest preview, in characters.
pub const LONGEST: usize = 1000;

/// The preview of inputs or outputs, given as JSON text. `role` is whose message is wanted.
#[must_use]
pub fn preview(json: &str, role: &str) -> String {
    let said = serde_json::from_str::<Value>(json).ok().and_then(|value| {
        let messages = messages(&value, 0)?;
        text_of(wanted(&messages, role)?)
    });
    cut(said.as_deref().filter(|said| !said.is_empty()).unwrap_or(json))
}

/// The text, or its beginning and three dots. It is only to be looked at: a character that a
/// database would not keep is replaced.
#[must_use]
pub fn cut(text: &str) -> String {
    let shown = text.chars().map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c });
    if text.chars().nth(LONGEST).is_none() {
        return shown.collect();
    }
    let mut short: String = shown.take(LONGEST - 3).collect();
    short.push_str("...");
    short
}

/// The messages of a chat, in any of the shapes that the usual APIs have had.
fn messages(value: &Value, depth: usize) -> Option<Vec<&Value>> {
    let fields = value.as_object()?;
    let list = |name: &str| fields.get(name)?.as_array().filter(|list| !list.is_empty());
    if let Some(list) = list("messages") {
        return Some(list.iter().filter(|item| is_message(item)).collect());
    }
    let choice = list("choices").and_then(|choices| choices.first()?.get("message"));
    if let Some(message) = choice.filter(|message| is_message(message)) {
        return Some(vec![message]);
    }
    if let Some(list) = list("input").or_else(|| list("output")) {
        return Some(list.iter().filter(|item| is_message(item)).collect());
    }
    fields.get("request").filter(|_| depth < 4).and_then(|inner| messages(inner, depth + 1))
}

fn is_message(item: &Value) -> bool {
    item.get("role").is_some() && item.get("content").is_some()
}

fn wanted<'a>(messages: &[&'a Value], role: &str) -> Option<&'a Value> {
    let of_role = messages.iter().rev().find(|message| message["role"] == role);
    of_role.or(messages.last()).copied()
}

fn text_of(message: &Value) -> Option<String> {
    match &message["content"] {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts.iter().find_map(|part| match part {
            Value::String(text) => Some(text.clone()),
            part if part["type"] == "text" || part["type"] == "output_text" => {
                part["text"].as_str().map(str::to_owned)
            }
            _ => None,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_of_the_right_one_is_shown() {
        for (json, shown) in [
            (r#"{"x": 1}"#, r#"{"x": 1}"#),
            ("not json", "not json"),
            (
                r#"{"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}]}"#,
                "a",
            ),
            (r#"{"messages": [{"role": "system", "content": "s"}]}"#, "s"),
            (r#"{"messages": []}"#, r#"{"messages": []}"#),
            (r#"{"choices": [{"message": {"role": "assistant", "content": "hi"}}]}"#, "hi"),
            (
                r#"{"request": {"input": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]}}"#,
                "q",
            ),
        ] {
            assert_eq!(preview(json, "user"), shown, "{json}");
        }
        let long = "é".repeat(2000);
        let short = preview(&long, "user");
        assert_eq!(short.chars().count(), LONGEST);
        assert!(short.ends_with("..."));
    }
}
