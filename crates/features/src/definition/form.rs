//! What decides the numbers: the part of a definition that a version freezes.
//!
//! A form holds everything by value. A view's form has its entities' keys and its source in it, so
//! a change of either is a change of the view, and an old version can be read without them.
//!
//! Must hold: the bytes of a form never change for the same decisions, since their SHA-256 is how a
//! version is known. A field is only ever added with a default that is left out when written.

use aws_lc_rs::digest::{SHA256, digest};
use falaj_base::{Error, Name, Result, Timestamp, hex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spec::Column;
use crate::name::FeatureName;
use crate::reference::Reference;
use crate::stream::StreamForm;
use crate::transform::demand::Demand;
use crate::transform::form::{InputForm, TransformForm};

/// What is written before a form when it is hashed.
const FORMAT: &[u8] = b"falaj.feature/1\n";

/// Which kind of definition.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Noun {
    Entity,
    Source,
    View,
    Service,
}

impl Noun {
    pub const ALL: [Self; 4] = [Self::Entity, Self::Source, Self::View, Self::Service];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Entity => "entity",
            Self::Source => "source",
            Self::View => "view",
            Self::Service => "service",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|noun| noun.as_str() == text);
        found.ok_or_else(|| Error::internal(format!("a definition of the kind {text}")))
    }

    /// The field of a request that holds such definitions.
    pub(crate) const fn field(self) -> &'static str {
        match self {
            Self::Entity => "entities",
            Self::Source => "sources",
            Self::View => "views",
            Self::Service => "services",
        }
    }
}

impl std::fmt::Display for Noun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a version freezes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(clippy::large_enum_variant, reason = "most of them are views")]
pub enum Form {
    Entity(EntityForm),
    Source(SourceForm),
    View(ViewForm),
    Service(ServiceForm),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EntityForm {
    pub name: FeatureName,
    pub join_keys: Vec<Column>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceForm {
    pub name: FeatureName,
    #[serde(flatten)]
    pub origin: Origin,
}

impl SourceForm {
    /// Whether its rows, or those from before, are read from a database.
    #[must_use]
    pub fn is_a_database(&self) -> bool {
        let before = self.origin.batch().is_some_and(Self::is_a_database);
        matches!(self.origin, Origin::Postgres { .. }) || before
    }
}

/// Where rows come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Origin {
    /// Parquet files below one of the configured roots.
    Files { path: String },
    /// A Parquet file among the objects of the project.
    Object { object: String },
    /// A Delta table below one of the configured roots; the latest version, if none is fixed.
    Delta {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timestamp: Option<Timestamp>,
    },
    /// An Iceberg table below one of the configured roots; the current snapshot, if none is fixed.
    Iceberg {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snapshot: Option<i64>,
        #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
        reference: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timestamp: Option<Timestamp>,
    },
    /// Rows of one of the configured databases.
    Postgres {
        database: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        query: Option<String>,
    },
    /// Rows pushed here, after those of another source.
    Push {
        // A source of the same shape; a schema that names itself cannot be flattened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<serde_json::Value>")]
        batch: Option<Box<SourceForm>>,
    },
    /// Records of a topic of Kafka or a stream of NATS, after the rows of another source.
    Stream(StreamForm),
    /// A version of a dataset; the latest when it is read, if none is named.
    Dataset {
        dataset: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<String>,
    },
    /// What comes with a request, and other features: a view on demand has no rows.
    Request,
}

impl Origin {
    /// The source with the rows from before those that are pushed or streamed.
    #[must_use]
    pub fn batch(&self) -> Option<&SourceForm> {
        match self {
            Self::Push { batch } | Self::Stream(StreamForm { batch, .. }) => batch.as_deref(),
            _ => None,
        }
    }

    /// Whether its rows come into the log one after the other.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        matches!(self, Self::Push { .. } | Self::Stream(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ViewForm {
    pub name: FeatureName,
    pub entities: Vec<EntityForm>,
    pub source: SourceForm,
    pub fields: Vec<Column>,
    pub event_time: FeatureName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_time: Option<FeatureName>,
    /// How long after its event a row still answers, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_us: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classification: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
    /// How its features are made, if they are not the columns of its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<TransformForm>,
}

impl ViewForm {
    /// The columns of its rows as they come and are kept, beside keys and times.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        self.transform.as_ref().map_or(&self.fields, |transform| &transform.columns)
    }

    /// Whether it is computed when it is asked for, and has no rows.
    #[must_use]
    pub fn is_on_demand(&self) -> bool {
        self.source.origin == Origin::Request
    }

    /// Whether its features are aggregates over time.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.transform.as_ref().is_some_and(|transform| !transform.aggregates.is_empty())
    }

    /// What it is computed from on demand.
    #[must_use]
    pub fn inputs(&self) -> &[InputForm] {
        self.transform.as_ref().map_or(&[], |transform| &transform.inputs)
    }

    pub(crate) fn demand(&self) -> Result<Demand> {
        Demand::of(self)
    }

    /// The join keys of all its entities, in order, each once.
    #[must_use]
    pub fn keys(&self) -> Vec<&Column> {
        let mut keys: Vec<&Column> = Vec::new();
        for key in self.entities.iter().flat_map(|entity| &entity.join_keys) {
            if !keys.iter().any(|known| known.name == key.name) {
                keys.push(key);
            }
        }
        keys
    }

    #[must_use]
    pub fn field(&self, name: &FeatureName) -> Option<&Column> {
        self.fields.iter().find(|field| field.name == *name)
    }

    /// Whether the rows of another version are rows of this one too: all that decides them is the
    /// same. How long they answer and how they are classified decides nothing about them.
    #[must_use]
    pub fn has_rows_of(&self, other: &Self) -> bool {
        let bare = |form: &Self| {
            let mut form = Self { ttl_us: None, classification: None, ..form.clone() };
            let columns = form.transform.iter_mut().flat_map(|transform| &mut transform.columns);
            for column in form.fields.iter_mut().chain(columns) {
                column.classification = None;
            }
            form
        };
        bare(self) == bare(other)
    }

    /// Whether rows can be pushed to it.
    #[must_use]
    pub fn takes_pushes(&self) -> bool {
        matches!(self.source.origin, Origin::Push { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceForm {
    pub name: FeatureName,
    /// As they were asked for.
    pub features: Vec<Reference>,
    /// As they were found, view by view.
    pub picks: Vec<Pick>,
}

/// The features of one version of one view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pick {
    pub view: FeatureName,
    pub version: i64,
    /// The SHA-256 of the view's version.
    pub hash: String,
    pub features: Vec<FeatureName>,
}

impl Form {
    #[must_use]
    pub fn noun(&self) -> Noun {
        match self {
            Self::Entity(_) => Noun::Entity,
            Self::Source(_) => Noun::Source,
            Self::View(_) => Noun::View,
            Self::Service(_) => Noun::Service,
        }
    }

    #[must_use]
    pub fn name(&self) -> &FeatureName {
        match self {
            Self::Entity(form) => &form.name,
            Self::Source(form) => &form.name,
            Self::View(form) => &form.name,
            Self::Service(form) => &form.name,
        }
    }

    /// The bytes that the hash is of, and that are kept.
    pub fn canonical(&self) -> Result<String> {
        serde_json::to_string(self).map_err(Error::internal)
    }

    /// The SHA-256 of what is decided, in hex.
    pub fn hash(&self) -> Result<String> {
        let mut bytes = FORMAT.to_vec();
        bytes.extend_from_slice(self.canonical()?.as_bytes());
        Ok(hex(digest(&SHA256, &bytes).as_ref()))
    }
}
