//! What a version is.

use std::str::FromStr;

use arrow_schema::Schema;
use aws_lc_rs::digest::{SHA256, digest};
use falaj_base::{BlobId, Error, Result, Timestamp, hex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::TagName;

/// The version of the manifest.
const FORMAT: u32 = 1;

/// How a version came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    Put,
    Append,
    Rollback,
    /// The version before, without rows that had to be erased.
    Erase,
}

impl Verb {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Append => "append",
            Self::Rollback => "rollback",
            Self::Erase => "erase",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let all = [Self::Put, Self::Append, Self::Rollback, Self::Erase];
        let found = all.into_iter().find(|verb| verb.as_str() == text);
        found.ok_or_else(|| Error::internal(format!("a version made by {text}")))
    }
}

/// A column of all files of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ColumnInfo {
    pub name: String,
    /// As Arrow calls it: `Int64`, `Utf8`, `Timestamp(µs, "UTC")`, …
    #[serde(rename = "type")]
    pub kind: String,
}

/// The columns of a file.
#[must_use]
pub fn columns_of(schema: &Schema) -> Vec<ColumnInfo> {
    let one = |field: &arrow_schema::FieldRef| ColumnInfo {
        name: field.name().clone(),
        kind: field.data_type().to_string(),
    };
    schema.fields().iter().map(one).collect()
}

/// Refuses a file whose columns are not those of another.
pub(crate) fn same_columns(field: &str, found: &[ColumnInfo], wanted: &[ColumnInfo]) -> Result<()> {
    for column in wanted {
        let there = found.iter().find(|it| it.name == column.name);
        let kind = there.map_or("absent", |it| it.kind.as_str());
        if kind != column.kind {
            let value = format!("the column {} is {kind}", column.name);
            return Err(Error::invalid(
                field,
                value,
                format!("{}, as in the other files", column.kind),
            ));
        }
    }
    let more = found.iter().find(|it| wanted.iter().all(|column| column.name != it.name));
    more.map_or(Ok(()), |more| {
        let value = format!("the column {}", more.name);
        Err(Error::invalid(field, value, "the columns of the other files, and no more"))
    })
}

/// What a version was made of, beside files that were sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    /// `version` of this dataset, `training-set`, or `erasure`.
    pub kind: String,
    pub id: String,
    /// The digest of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// A version as it is shown.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Version {
    pub version: i64,
    pub made_by: Verb,
    /// The SHA-256 of its manifest: equal for equal contents.
    pub digest: String,
    /// The version before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<i64>,
    pub rows: u64,
    /// Bytes of its files.
    pub size: u64,
    pub files: u64,
    pub columns: Vec<ColumnInfo>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<TagName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub created_at: Timestamp,
    pub created_by: String,
    /// When its files were removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Timestamp>,
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) statistics: BlobId,
}

/// A file of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VersionFile {
    pub sha256: String,
    pub rows: u64,
    pub size: u64,
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) columns: Vec<ColumnInfo>,
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) blob: BlobId,
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) statistics: BlobId,
}

impl VersionFile {
    #[must_use]
    pub fn blob(&self) -> BlobId {
        self.blob
    }
}

/// What a version holds. Its bytes are frozen: digests are made of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Manifest {
    pub format: u32,
    pub columns: Vec<ColumnInfo>,
    pub files: Vec<VersionFile>,
    pub rows: u64,
}

impl Manifest {
    /// Of some files, which must have the same columns.
    #[must_use]
    pub fn new(columns: Vec<ColumnInfo>, files: Vec<VersionFile>) -> Self {
        let rows = files.iter().map(|file| file.rows).sum();
        Self { format: FORMAT, columns, files, rows }
    }

    pub fn digest(&self) -> Result<String> {
        let text = serde_json::to_vec(self).map_err(Error::internal)?;
        Ok(hex(digest(&SHA256, &text).as_ref()))
    }

    pub(crate) fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

/// Which version is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Which {
    #[default]
    Latest,
    Number(i64),
    Tag(TagName),
    /// The latest of that time.
    At(Timestamp),
}

/// A number, a tag, or `latest`.
impl FromStr for Which {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            let allowed = "a number from 1 on, a tag, or `latest`";
            let number = text.parse().ok().filter(|number| *number > 0);
            return number
                .map(Self::Number)
                .ok_or_else(|| Error::invalid("version", text, allowed));
        }
        TagName::new(text)
            .map(Self::Tag)
            .map_err(|_| Error::invalid("version", text, "a number from 1 on, a tag, or `latest`"))
    }
}

impl Which {
    /// At most one of these.
    pub fn of(version: Option<i64>, tag: Option<String>, at: Option<Timestamp>) -> Result<Self> {
        match (version, tag, at) {
            (None, None, None) => Ok(Self::Latest),
            (Some(number), None, None) if number > 0 => Ok(Self::Number(number)),
            (Some(number), None, None) => {
                Err(Error::invalid("version", number, "a number from 1 on"))
            }
            (None, Some(tag), None) => TagName::new(tag).map(Self::Tag),
            (None, None, Some(at)) => Ok(Self::At(at)),
            _ => Err(Error::invalid("version", "several", "one of `version`, `tag` and `at`")),
        }
    }
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Number(number) => number.fmt(f),
            Self::Tag(tag) => tag.fmt(f),
            Self::At(at) => write!(f, "of {at}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, kind: &str) -> ColumnInfo {
        ColumnInfo { name: name.to_owned(), kind: kind.to_owned() }
    }

    #[test]
    fn the_digest_is_frozen() {
        let file = VersionFile {
            sha256: "ab".repeat(32),
            rows: 3,
            size: 100,
            columns: Vec::new(),
            blob: BlobId::new(),
            statistics: BlobId::new(),
        };
        let manifest = Manifest::new(vec![column("id", "Int64")], vec![file]);
        let text = serde_json::to_string(&manifest).unwrap();
        let expected = format!(
            "{{\"format\":1,\"columns\":[{{\"name\":\"id\",\"type\":\"Int64\"}}],\"files\":\
             [{{\"sha256\":\"{}\",\"rows\":3,\"size\":100}}],\"rows\":3}}",
            "ab".repeat(32)
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn versions_are_named_in_one_way() {
        for (text, which) in [
            ("latest", Some(Which::Latest)),
            ("7", Some(Which::Number(7))),
            ("gold", Some(Which::Tag(TagName::new("gold").unwrap()))),
            ("0", None),
            ("99999999999999999999", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Which>().ok(), which, "{text}");
        }
        assert!(Which::of(Some(1), Some("a".to_owned()), None).is_err());
    }

    #[test]
    fn columns_are_the_same_or_the_difference_is_named() {
        let wanted = [column("a", "Int64"), column("b", "Utf8")];
        let other_order = [column("b", "Utf8"), column("a", "Int64")];
        same_columns("files[1]", &other_order, &wanted).unwrap();
        for (found, words) in [
            (vec![column("a", "Int64")], "b is absent"),
            (vec![column("a", "Int32"), column("b", "Utf8")], "a is Int32"),
            (vec![column("a", "Int64"), column("b", "Utf8"), column("c", "Utf8")], "column c"),
        ] {
            let error = same_columns("files[1]", &found, &wanted).unwrap_err();
            assert!(error.message().contains(words), "{error}");
            assert_eq!(error.field(), Some("files[1]"));
        }
    }
}
