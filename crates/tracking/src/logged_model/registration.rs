//! What a logged model knows of the registry: the versions made from it, in a tag that clients read.

use falaj_base::Result;
use falaj_store::db::Tx;
use serde_json::Value;

use super::id::ModelId;
use super::store;

/// Where clients look for them.
const TAG: &str = "mlflow.modelVersions";

/// Notes that a version of a registered model was made from this one, as part of the caller's
/// transaction, which has authorised and records it.
pub fn note_registration(tx: &mut Tx<'_>, model: ModelId, name: &str, version: i64) -> Result<()> {
    tx.lock(&format!("logged-model/{model}"))?;
    let noted = store::tag(tx, model, TAG)?;
    // The tag is the client's as well: what is not such a list gives way.
    let mut all: Vec<Value> =
        noted.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let new = serde_json::json!({ "name": name, "version": version });
    if !all.contains(&new) {
        all.push(new);
    }
    store::set_tag(tx, model, TAG, &spaced(&all))
}

/// The list as Python writes it: some clients compare the text.
fn spaced(versions: &[Value]) -> String {
    let one = |version: &Value| match version.as_object() {
        Some(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}: {value}", Value::from(key.as_str())))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        None => version.to_string(),
    };
    format!("[{}]", versions.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_python_writes_it() {
        let list = [serde_json::json!({ "name": "a \"b\"", "version": 1 }), Value::Null];
        assert_eq!(spaced(&list), r#"[{"name": "a \"b\"", "version": 1}, null]"#);
        assert_eq!(spaced(&[]), "[]");
    }
}
