//! What is asked for: definitions as their author writes them, in TOML or JSON.
//!
//! Strict: an unknown field is refused, and every name and type is checked while it is read.

use std::collections::BTreeMap;

use falaj_base::{Error, HumanDuration, Name, Result, Timestamp, code};
use falaj_online::value::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::FeatureName;
use crate::reference::Reference;
use crate::stream::{FieldPath, Format, OnBad, OnGap, Reading, StartAt};
use crate::transform::form::Share;
use crate::transform::spec::{Aggregate, Input, ViewKind};

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
    /// Of a stream source: how it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// Of a view: how old its latest event may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freshness: Option<HumanDuration>,
    /// Of a view: how often its latest values are compared with its history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckEvery>,
}

/// How often the latest values of a view are compared with its history, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckEvery {
    pub every: HumanDuration,
    /// How many entities, taken at random; 1000 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub sample: Option<usize>,
    /// The share of values that may differ; none may if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub threshold: Option<Share>,
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
                    ..About::default()
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
        /// Parquet files below one of `features.source_roots`; `*` and `?` stand for parts of a
        /// file's name. Of a Delta or Iceberg table: its folder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub path: Option<String>,
        /// Of a Delta table: its version; the latest if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub version: Option<i64>,
        /// Of a table: as it was at this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timestamp: Option<Timestamp>,
        /// Of an Iceberg table: the id of a snapshot; the current one if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub snapshot: Option<i64>,
        /// Of an Iceberg table: a branch or a tag.
        #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
        pub reference: Option<String>,
        /// Of an Iceberg table: its metadata, from the table's folder on, such as
        /// `metadata/v3.metadata.json`; the newest if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub metadata: Option<String>,
        /// Of a PostgreSQL source: one of `features.databases`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub database: Option<String>,
        /// Of a PostgreSQL source: `name` or `schema.name`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub table: Option<String>,
        /// Of a PostgreSQL source, in place of a table: one `SELECT`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub query: Option<String>,
        /// Of a dataset source: its name. `version` is one of its versions; the latest when it is
        /// read, if neither that nor a tag is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub dataset: Option<String>,
        /// Of a dataset source: a tag, in place of a version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tag: Option<String>,
        /// A Parquet file among the objects of the project.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub object: Option<String>,
        /// Of a push or stream source: the source with the rows from before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub batch: Option<FeatureName>,
        /// Of a stream source: one of `features.streams`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub stream: Option<Name>,
        /// The topic of Kafka, or the stream of NATS.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub topic: Option<String>,
        /// The subjects of a NATS stream that count, such as `rides.>`; all if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub subject: Option<String>,
        /// How records are written; JSON if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub format: Option<Format>,
        /// Where in a record columns are found that are not under their own name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub fields: BTreeMap<FeatureName, FieldPath>,
        /// What becomes of a record that is no row; `refuse` if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on_bad: Option<OnBad>,
        /// What is done where records were gone before they were read; `stop` if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on_gap: Option<OnGap>,
        /// Where a partition is begun: `earliest`, `latest` or a time; `earliest` if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub start: Option<StartAt>,
    }

    /// Features that come from one source, about the same entities.
    View {
        /// What its features are about; of a view on demand they follow from its inputs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub entities: Vec<FeatureName>,
        /// Where its rows come from; a view on demand has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub source: Option<FeatureName>,
        /// Its features. With `sql` their types, if they are not to follow from it; not with
        /// `aggregates`, which tell their own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub schema: Vec<Column>,
        /// Whether its features lie in rows, or are computed when they are asked for.
        #[serde(default, skip_serializing_if = "ViewKind::is_rows")]
        pub kind: ViewKind,
        /// With `sql` or `aggregates`: the columns of the source's rows, beside keys and times.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub columns: Vec<Column>,
        /// `SELECT expression AS name, … FROM source [WHERE condition]` over the rows of the
        /// source; of a view on demand, `FROM inputs`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub sql: Option<String>,
        /// Features over windows of time.
        #[serde(default, alias = "aggregate", skip_serializing_if = "Vec::is_empty")]
        pub aggregates: Vec<Aggregate>,
        /// Of a view on demand: what it is computed from.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub inputs: Vec<Input>,
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
        /// How old its latest event may be; others are told if it is older. It decides nothing, and
        /// is changed in place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub freshness: Option<HumanDuration>,
        /// How often its latest values are compared with its history; others are told if they
        /// differ. It decides nothing, and is changed in place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub check: Option<CheckEvery>,
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
    /// How sensitive it is, for policies, if that is more than its view is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classification: Option<String>,
}

impl Column {
    #[must_use]
    pub fn new(name: FeatureName, kind: Kind) -> Self {
        Self { name, kind, classification: None }
    }
}

/// Kinds of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Parquet files.
    Parquet,
    /// Rows that are pushed to this server.
    Push,
    /// A Delta table.
    Delta,
    /// An Iceberg table.
    Iceberg,
    /// A table or a query of a PostgreSQL database.
    Postgres,
    /// Records of a topic of Kafka or a stream of NATS.
    Stream,
    /// A version of a dataset.
    Dataset,
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
