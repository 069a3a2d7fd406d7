//! What goes into a model and comes out, from the signature that MLflow stores with it.

use serde_json::Value;

/// The most columns that are listed; a wider table is counted.
const MAX_COLUMNS: usize = 1000;

/// The longest description of one column, in characters.
const MAX_TEXT: usize = 500;

/// One text per column of a schema, such as `alcohol: double` or `float32[-1, 28, 28]`.
///
/// `schema` is the JSON text under `inputs` or `outputs` of a model's signature. A text that is not
/// such a schema gives no columns: it is the model's own claim, and only repeated here.
#[must_use]
pub fn columns(schema: &str) -> Vec<String> {
    let Ok(Value::Array(columns)) = serde_json::from_str(schema) else { return Vec::new() };
    let mut texts: Vec<String> = columns.iter().take(MAX_COLUMNS).map(column).collect();
    if columns.len() > MAX_COLUMNS {
        texts.push(format!("and {} more", columns.len() - MAX_COLUMNS));
    }
    texts
}

fn column(column: &Value) -> String {
    let kind = kind(column);
    let mut text = match column["name"].as_str() {
        Some(name) => format!("{name}: {kind}"),
        None => kind,
    };
    if column["required"] == false || column["optional"] == true {
        text.push_str(" (optional)");
    }
    if text.chars().count() > MAX_TEXT {
        text = text.chars().take(MAX_TEXT).collect::<String>() + "…";
    }
    text
}

/// A type in words. Nesting is bounded by the depth that the JSON reader accepts.
fn kind(spec: &Value) -> String {
    match spec["type"].as_str() {
        Some("tensor") => {
            let spec = &spec["tensor-spec"];
            let shape: Vec<String> = spec["shape"]
                .as_array()
                .map(|sizes| sizes.iter().map(ToString::to_string).collect())
                .unwrap_or_default();
            format!("{}[{}]", spec["dtype"].as_str().unwrap_or("tensor"), shape.join(", "))
        }
        Some("array") => format!("array({})", kind(&spec["items"])),
        Some("map") => format!("map({})", kind(&spec["values"])),
        Some("object") => {
            let fields = spec["properties"].as_object();
            let fields = fields.into_iter().flatten();
            let fields: Vec<String> =
                fields.map(|(name, spec)| format!("{name}: {}", kind(spec))).collect();
            format!("object({})", fields.join(", "))
        }
        Some(simple) => simple.to_owned(),
        None => "any".to_owned(),
    }
}
