//! What is asked for: definitions as their author writes them, in TOML or JSON.
//!
//! Strict: an unknown field is refused, and every name and type is checked while it is read.

use std::collections::BTreeMap;

use falaj_base::{Error, HumanDuration, Name, Result, code};
use falaj_online::value::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::FeatureName;
use crate::reference::Reference;

/// Any number of definitions, applied together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Definitions {
    /// What features are about: a driver, a card, a pair of both.
    #[serde(alias = "entity", skip_serializing_if = "Vec::is_empty")]
    pub entities: Vec<Entity>,
    /// Where rows come from.
    #[serde(alias = "source", skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// Features that come from one source, about the same entities.
    #[serde(alias = "view", skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<View>,
    /// Features that a model is given together.
    #[serde(alias = "service", skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
}

/// What people say of a definition. It decides nothing, and is changed in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct About {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Structs that carry the three fields of [`About`] among their own: a flattened struct would not
/// notice unknown fields.
macro_rules! about {
    ($($(#[$doc:meta])* $name:ident { $($fields:tt)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            pub name: FeatureName,
            $($fields)*
            /// Who answers for it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub owner: Option<String>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub description: Option<String>,
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            pub tags: BTreeMap<String, String>,
        }

        impl $name {
            /// What people say of it.
            #[must_use]
            pub fn about(&self) -> About {
                About {
                    owner: self.owner.clone(),
                    description: self.description.clone(),
                    tags: self.tags.clone(),
                }
            }
        }
    )*};
}

about! {
    /// What features are about, and the columns that tell one from another.
    Entity {
        #[schemars(length(min = 1))]
        pub join_keys: Vec<Column>,
    }

    /// Where rows come from.
    Source {
        pub kind: SourceKind,
        /// Parquet files on the server's disk, below one of `features.source_roots`; `*` and `?`
        /// stand for parts of a file's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub path: Option<String>,
        /// A Parquet file among the objects of the project.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub object: Option<String>,
        /// Of a push source: the source with the rows from before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub batch: Option<FeatureName>,
    }

    /// Features that come from one source, about the same entities.
    View {
        #[schemars(length(min = 1))]
        pub entities: Vec<FeatureName>,
        pub source: FeatureName,
        #[schemars(length(min = 1))]
        pub schema: Vec<Column>,
        /// The column that tells when a row became true.
        #[serde(default = "event_timestamp")]
        pub event_time: FeatureName,
        /// The column that tells when a row became known; with its event, if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub known_time: Option<FeatureName>,
        /// How long after its event a row still answers; for ever if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ttl: Option<HumanDuration>,
        /// How sensitive it is, for policies: `public`, `internal`, `pii`, …
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub classification: Option<String>,
        /// The residency zone of its values; the project's, if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub zone: Option<Name>,
    }

    /// Features that a model is given together.
    Service {
        #[schemars(length(min = 1))]
        pub features: Vec<Reference>,
    }
}

/// A column: its name and what its values are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: FeatureName,
    #[serde(rename = "type")]
    pub kind: Kind,
}

/// Kinds of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Parquet files.
    Parquet,
    /// Rows that are pushed to this server.
    Push,
}

fn event_timestamp() -> FeatureName {
    #[allow(clippy::expect_used, reason = "a name that is written here")]
    FeatureName::new("event_timestamp").expect("a valid name")
}

impl Definitions {
    /// Reads TOML. What is wrong is named by its path.
    pub fn from_toml(text: &str) -> Result<Self> {
        let parsed = toml::Deserializer::parse(text).map_err(|error| {
            let why: String = error.to_string().chars().take(300).collect();
            Error::new(&code::MALFORMED_BODY, format!("the body is not TOML: {why}"))
        })?;
        serde_path_to_error::deserialize(parsed).map_err(|error| malformed(&error))
    }

    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            if error.inner().is_data() {
                return malformed(&error);
            }
            Error::new(&code::MALFORMED_BODY, format!("the body is not JSON: {}", error.inner()))
        })?;
        json.end().map_err(|error| Error::new(&code::MALFORMED_BODY, error.to_string()))?;
        Ok(read)
    }

    /// How many definitions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entities.len() + self.sources.len() + self.views.len() + self.services.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn malformed<E: std::error::Error>(error: &serde_path_to_error::Error<E>) -> Error {
    let path = error.path().to_string();
    let field = if path == "." { "body".to_owned() } else { path };
    let why = error.inner().to_string();
    // TOML's errors show the line as well; the path says it already.
    let why: String = why.trim().lines().last().unwrap_or_default().chars().take(300).collect();
    Error::new(&code::INVALID_INPUT, format!("`{field}`: {why}")).at(field)
}
