//! What an evaluation dataset is.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use falaj_base::{Error, Resource, Result, code, hex};
use falaj_mlflow::Place;
use falaj_mlflow::error::{invalid, too_long};
use falaj_store::db::Value;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::shape::Shape;

/// The longest name and the longest key of a tag, as in MLflow.
const MAX_NAME: usize = 255;
/// The longest value of a tag, as in MLflow.
const MAX_TAG_VALUE: usize = 5000;
/// Who did something, where a client says so in a tag.
pub(super) const USER_TAG: &str = "mlflow.user";

/// `d-` and 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DatasetId(String);

impl DatasetId {
    pub(super) fn new() -> Self {
        Self(format!("d-{}", Uuid::now_v7().simple()))
    }

    /// A text that cannot be an id is the id of nothing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("d-")?;
        let fits = digits.len() == 32
            && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        fits.then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DatasetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&DatasetId> for Value {
    fn from(id: &DatasetId) -> Self {
        Self::Text(id.0.clone())
    }
}

/// A dataset without its records. This is also how it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Dataset {
    pub(crate) id: DatasetId,
    pub(crate) name: String,
    pub(crate) tags: BTreeMap<String, String>,
    /// In milliseconds.
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) created_by: Option<String>,
    pub(crate) updated_by: Option<String>,
    /// What its records have in them, once it has any.
    pub(crate) shape: Option<Shape>,
    /// How many records it has, and what they measure.
    pub(crate) records: usize,
    pub(crate) size: usize,
}

impl Dataset {
    pub(super) fn new(name: String, tags: BTreeMap<String, String>, now: i64) -> Result<Self> {
        check_name(&name)?;
        let by = tags.get(USER_TAG).cloned();
        Ok(Self {
            id: DatasetId::new(),
            name,
            tags,
            created_at: now,
            updated_at: now,
            created_by: by.clone(),
            updated_by: by,
            shape: None,
            records: 0,
            size: 0,
        })
    }

    /// Eight digits that differ whenever the dataset does.
    pub(crate) fn digest(&self) -> String {
        let text = format!("{}:{}", self.name, self.updated_at);
        let mut digits = hex(digest(&SHA256, text.as_bytes()).as_ref());
        digits.truncate(8);
        digits
    }

    /// What is authorised when something is done with it.
    pub(crate) fn resource(&self, project: &Place) -> Resource {
        let name = format!("{}/{}", project.id, self.id);
        Resource::new("evaluation_dataset", name, project.scope())
            .with(project.attributes())
            .shown_as(&self.id)
    }

    /// What events say of it: nothing of what its records ask or expect.
    pub(super) fn shown(&self) -> serde_json::Value {
        json!({ "dataset_id": self.id, "name": self.name, "records": self.records })
    }
}

pub(super) fn no_dataset(id: &str) -> Error {
    let id: String = id.chars().take(64).collect();
    Error::new(&code::NOT_FOUND, format!("Evaluation dataset with id '{id}' not found"))
}

fn check_name(name: &str) -> Result<()> {
    if name.chars().count() > MAX_NAME {
        return Err(too_long("name", MAX_NAME));
    }
    if name.trim().is_empty() || name.chars().any(char::is_control) {
        let why = "a name has a visible character and no control characters";
        return Err(invalid("name", &json!(name), why));
    }
    Ok(())
}

/// Reads tags as clients send them: a JSON object in a text. A number is taken for its digits, and
/// nothing for a tag that is not meant.
pub(super) fn tags(text: &str, most: usize) -> Result<BTreeMap<String, String>> {
    let sent: BTreeMap<String, serde_json::Value> = serde_json::from_str(text)
        .map_err(|cause| invalid("tags", &json!(text), &format!("not a JSON object: {cause}")))?;
    check_count(sent.len(), most)?;
    let mut tags = BTreeMap::new();
    for (key, value) in sent {
        let value = match value {
            serde_json::Value::Null => continue,
            serde_json::Value::String(text) => text,
            serde_json::Value::Number(number) => number.to_string(),
            serde_json::Value::Bool(flag) => flag.to_string(),
            other => return Err(invalid("tags", &other, "the value of a tag is a text")),
        };
        if key.is_empty() || key.chars().count() > MAX_NAME {
            let why = format!("the key of a tag has 1 to {MAX_NAME} characters");
            return Err(invalid("tags", &json!(key), &why));
        }
        if value.chars().count() > MAX_TAG_VALUE {
            return Err(too_long("tags", MAX_TAG_VALUE));
        }
        tags.insert(key, value);
    }
    Ok(tags)
}

pub(super) fn check_count(count: usize, most: usize) -> Result<()> {
    if count <= most {
        return Ok(());
    }
    let why = format!("a dataset has at most {most} tags (`traces.max_tags`)");
    Err(invalid("tags", &json!(count), &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        let new = DatasetId::new();
        assert_eq!(DatasetId::parse(new.as_str()), Some(new));
        for bad in ["", "d-", "d-12", &format!("d-{}", "G".repeat(32)), &"d".repeat(34)] {
            assert!(DatasetId::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn tags_are_texts() {
        let read = tags(r#"{"a": "x", "n": 3, "f": true, "none": null}"#, 4).unwrap();
        let expected = [("a", "x"), ("f", "true"), ("n", "3")];
        assert!(read.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(expected));
        let long = format!("{{\"k\": \"{}\"}}", "x".repeat(5001));
        for bad in ["", "[]", "{", r#"{"": "x"}"#, r#"{"a": []}"#, &long] {
            assert!(tags(bad, 4).is_err(), "{bad}");
        }
        assert!(tags(r#"{"a": 1, "b": 2}"#, 1).is_err());
    }

    #[test]
    fn names_are_seen() {
        for bad in ["", " ", "a\0b", "a\nb", &"x".repeat(256)] {
            assert!(Dataset::new(bad.to_owned(), BTreeMap::new(), 1).is_err(), "{bad:?}");
        }
        let one = Dataset::new("naïve".to_owned(), BTreeMap::new(), 1).unwrap();
        let later = Dataset { updated_at: 2, ..one.clone() };
        assert_eq!(one.digest().len(), 8);
        assert_ne!(one.digest(), later.digest());
    }
}
