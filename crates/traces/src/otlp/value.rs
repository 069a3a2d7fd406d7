//! Values of attributes as text: JSON as Python's `json.dumps` writes it, which is what MLflow
//! keeps and what its filters look at.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::message::{Any, AnyValue, ArrayValue, KeyValue, KeyValueList};

/// The value as JSON text.
#[must_use]
pub fn dumped(value: Option<&Any>) -> String {
    let mut text = String::new();
    write_any(&mut text, value);
    text
}

fn write_any(out: &mut String, value: Option<&Any>) {
    match value {
        None => out.push_str("null"),
        Some(Any::Text(text)) => quote(out, text),
        Some(Any::Flag(flag)) => out.push_str(if *flag { "true" } else { "false" }),
        Some(Any::Int(number)) => out.push_str(&number.to_string()),
        Some(Any::Double(number)) => write_double(out, *number),
        Some(Any::Bytes(bytes)) => quote(out, &STANDARD.encode(bytes)),
        Some(Any::List(list)) => {
            out.push('[');
            for (at, item) in list.values.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write_any(out, item.value.as_ref());
            }
            out.push(']');
        }
        Some(Any::Map(map)) => write_map(out, &map.values, write_any),
    }
}

/// The pairs as an object; a key that comes twice keeps its last value.
pub fn write_map(out: &mut String, pairs: &[KeyValue], write: impl Fn(&mut String, Option<&Any>)) {
    out.push('{');
    let mut first = true;
    for (at, pair) in pairs.iter().enumerate() {
        // Objects with many keys are not looked through: a reader takes the last value anyway.
        if pairs.len() <= 256 && pairs[at + 1..].iter().any(|later| later.key == pair.key) {
            continue;
        }
        if !first {
            out.push_str(", ");
        }
        first = false;
        quote(out, &pair.key);
        out.push_str(": ");
        write(out, pair.value());
    }
    out.push('}');
}

fn write_double(out: &mut String, number: f64) {
    if number.is_nan() {
        out.push_str("NaN");
    } else if number.is_infinite() {
        out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        out.push_str(&Value::from(number).to_string());
    }
}

/// A text in quotes.
pub fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                let escaped = format!("\\u{:04x}", u32::from(c));
                out.push_str(&escaped);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// What a filter compares with: a text as it is, anything else as JSON.
#[must_use]
pub fn compared(value: &Any) -> String {
    match value {
        Any::Text(text) => text.clone(),
        other => dumped(Some(other)),
    }
}

/// The value in protobuf's JSON: `{"string_value": "x"}`.
#[must_use]
pub fn typed(value: Option<&Any>) -> Value {
    match value {
        None => json!({}),
        Some(Any::Text(text)) => json!({ "string_value": text }),
        Some(Any::Flag(flag)) => json!({ "bool_value": flag }),
        Some(Any::Int(number)) => json!({ "int_value": number }),
        Some(Any::Double(number)) if number.is_finite() => json!({ "double_value": number }),
        Some(Any::Double(number)) => {
            let mut text = String::new();
            write_double(&mut text, *number);
            json!({ "double_value": text })
        }
        Some(Any::Bytes(bytes)) => json!({ "bytes_value": STANDARD.encode(bytes) }),
        Some(Any::List(list)) => {
            let values = list.values.iter().map(|item| typed(item.value.as_ref()));
            json!({ "array_value": listed(values.collect()) })
        }
        Some(Any::Map(map)) => json!({ "kvlist_value": listed(typed_pairs(&map.values)) }),
    }
}

fn listed(values: Vec<Value>) -> Value {
    if values.is_empty() { json!({}) } else { json!({ "values": values }) }
}

#[must_use]
pub fn typed_pairs(pairs: &[KeyValue]) -> Vec<Value> {
    let pair = |pair: &KeyValue| json!({ "key": pair.key, "value": typed(pair.value()) });
    pairs.iter().map(pair).collect()
}

/// Plain JSON; a number that JSON cannot hold is a text.
#[must_use]
pub fn plain(value: Option<&Any>) -> Value {
    match value {
        None => Value::Null,
        Some(Any::Text(text)) => Value::from(text.as_str()),
        Some(Any::Flag(flag)) => Value::from(*flag),
        Some(Any::Int(number)) => Value::from(*number),
        Some(Any::Double(number)) if number.is_finite() => Value::from(*number),
        Some(Any::Double(number)) => {
            let mut text = String::new();
            write_double(&mut text, *number);
            Value::from(text)
        }
        Some(Any::Bytes(bytes)) => Value::from(STANDARD.encode(bytes)),
        Some(Any::List(list)) => {
            list.values.iter().map(|item| plain(item.value.as_ref())).collect()
        }
        Some(Any::Map(map)) => {
            let pairs = map.values.iter().map(|pair| (pair.key.clone(), plain(pair.value())));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
    }
}

/// The other way round.
#[must_use]
pub fn any(value: &Value) -> AnyValue {
    let value = match value {
        Value::Null => None,
        Value::Bool(flag) => Some(Any::Flag(*flag)),
        Value::Number(number) => Some(match number.as_i64() {
            Some(whole) => Any::Int(whole),
            None => Any::Double(number.as_f64().unwrap_or_default()),
        }),
        Value::String(text) => Some(Any::Text(text.clone())),
        Value::Array(items) => {
            Some(Any::List(ArrayValue { values: items.iter().map(any).collect() }))
        }
        Value::Object(fields) => {
            let pair = |(key, value): (&String, &Value)| KeyValue {
                key: key.clone(),
                value: Some(any(value)),
            };
            Some(Any::Map(KeyValueList { values: fields.iter().map(pair).collect() }))
        }
    };
    AnyValue { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_python_writes_them() {
        let value = any(&json!({"q": [1, 2.5, null, true], "s": "a\"\n\u{1}é"}));
        let text = dumped(value.value.as_ref());
        assert_eq!(text, "{\"q\": [1, 2.5, null, true], \"s\": \"a\\\"\\n\\u0001é\"}");
        assert_eq!(dumped(Some(&Any::Double(f64::NAN))), "NaN");
        assert_eq!(dumped(Some(&Any::Double(1.0))), "1.0");
        assert_eq!(dumped(Some(&Any::Bytes(vec![0, 255]))), "\"AP8=\"");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, plain(value.value.as_ref()));
    }

    #[test]
    fn a_key_given_twice_keeps_its_last_value() {
        let pairs = [KeyValue::text("a", "1"), KeyValue::text("b", "2"), KeyValue::text("a", "3")];
        let mut text = String::new();
        write_map(&mut text, &pairs, write_any);
        assert_eq!(text, "{\"b\": \"2\", \"a\": \"3\"}");
    }
}
