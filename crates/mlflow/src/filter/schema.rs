//! What each kind of thing can be searched by. The lists are the original's; so are the aliases.

use super::comparator::{
    self, Comparator, IDENTITY, ORDERED, REGEX_LIST, REGEX_NULL, TEXT, TEXT_LIST, TEXT_LIST_NULL,
    TEXT_NULL,
};

/// What can be searched and ordered by, for one kind of thing.
#[derive(Debug)]
pub struct Schema {
    pub(super) style: Style,
    /// What may stand before the first dot.
    pub(super) entities: &'static [(&'static str, Entity)],
    pub(super) attributes: &'static [Attribute],
    /// What an ordering may name besides attributes.
    pub(super) order: &'static [Entity],
    /// Of values under a key of the caller's: params, tags, metadata.
    pub(super) keyed: &'static [Comparator],
}

/// The original has a reader for each kind, and they differ in wording and leniency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Runs,
    Experiments,
    Models,
    Versions,
    LoggedModels,
    Traces,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entity {
    Attribute,
    Metric,
    Param,
    Tag,
    Dataset,
    Metadata,
    Span,
    Feedback,
    Expectation,
    Issue,
}

impl Entity {
    /// The original's word for it, which its messages use.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Attribute => "attribute",
            Self::Metric => "metric",
            Self::Param => "parameter",
            Self::Tag => "tag",
            Self::Dataset => "dataset",
            Self::Metadata => "request_metadata",
            Self::Span => "span",
            Self::Feedback => "feedback",
            Self::Expectation => "expectation",
            Self::Issue => "issue",
        }
    }
}

#[derive(Debug)]
pub(super) struct Attribute {
    /// Its one name, then its aliases.
    pub(super) names: &'static [&'static str],
    pub(super) kind: Kind,
    pub(super) usage: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    Text,
    /// Text that also takes `IN`.
    Listed,
    /// An integer written as text, compared only for being the same.
    Id,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Both,
    Filter,
    Order,
}

impl Attribute {
    pub(super) fn serves(&self, purpose: Use) -> bool {
        self.usage == Use::Both || self.usage == purpose
    }

    pub(super) fn column(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}

impl Schema {
    /// The name of every attribute that serves this purpose, aliases included.
    pub(super) fn names(&self, purpose: Use) -> impl Iterator<Item = &'static str> {
        let serving = self.attributes.iter().filter(move |attribute| attribute.serves(purpose));
        serving.flat_map(|attribute| attribute.names.iter().copied())
    }

    pub(super) fn of_attribute(&self, kind: Kind) -> &'static [Comparator] {
        match (kind, self.style) {
            (Kind::Number, _) => ORDERED,
            (Kind::Id, _) => IDENTITY,
            (Kind::Text | Kind::Listed, Style::Traces) => REGEX_LIST,
            (Kind::Listed, _) => TEXT_LIST,
            (Kind::Text, _) => TEXT,
        }
    }

    pub(super) fn of_entity(&self, entity: Entity) -> &'static [Comparator] {
        match entity {
            Entity::Metric => ORDERED,
            Entity::Dataset => TEXT_LIST,
            Entity::Span => REGEX_LIST,
            Entity::Feedback | Entity::Expectation => comparator::ASSESSMENT,
            Entity::Issue => comparator::EQUAL,
            Entity::Param | Entity::Tag | Entity::Metadata | Entity::Attribute => self.keyed,
        }
    }
}

const fn attribute(names: &'static [&'static str], kind: Kind, usage: Use) -> Attribute {
    Attribute { names, kind, usage }
}

pub static RUNS: Schema = Schema {
    style: Style::Runs,
    entities: &[
        ("metric", Entity::Metric),
        ("metrics", Entity::Metric),
        ("parameter", Entity::Param),
        ("parameters", Entity::Param),
        ("param", Entity::Param),
        ("params", Entity::Param),
        ("tag", Entity::Tag),
        ("tags", Entity::Tag),
        ("attribute", Entity::Attribute),
        ("attributes", Entity::Attribute),
        ("attr", Entity::Attribute),
        ("run", Entity::Attribute),
        ("dataset", Entity::Dataset),
        ("datasets", Entity::Dataset),
    ],
    attributes: &[
        attribute(&["run_id"], Kind::Listed, Use::Both),
        attribute(&["run_name", "run name", "Run name", "Run Name"], Kind::Text, Use::Both),
        attribute(&["status"], Kind::Text, Use::Both),
        attribute(&["user_id"], Kind::Text, Use::Both),
        attribute(&["artifact_uri"], Kind::Text, Use::Both),
        attribute(&["start_time", "created", "Created"], Kind::Number, Use::Both),
        attribute(&["end_time"], Kind::Number, Use::Both),
    ],
    order: &[Entity::Metric, Entity::Param, Entity::Tag],
    keyed: TEXT_NULL,
};

const SMALL: &[(&str, Entity)] =
    &[("attribute", Entity::Attribute), ("tag", Entity::Tag), ("tags", Entity::Tag)];

pub static EXPERIMENTS: Schema = Schema {
    style: Style::Experiments,
    entities: SMALL,
    attributes: &[
        attribute(&["name"], Kind::Text, Use::Both),
        attribute(&["experiment_id"], Kind::Id, Use::Both),
        attribute(&["creation_time"], Kind::Number, Use::Both),
        attribute(&["last_update_time"], Kind::Number, Use::Both),
    ],
    order: &[],
    keyed: TEXT_NULL,
};

/// Read like experiments.
pub static EVALUATION_DATASETS: Schema = Schema {
    style: Style::Experiments,
    entities: SMALL,
    attributes: &[
        attribute(&["name"], Kind::Listed, Use::Both),
        attribute(&["created_time"], Kind::Number, Use::Both),
        attribute(&["last_update_time"], Kind::Number, Use::Both),
        attribute(&["created_by"], Kind::Text, Use::Filter),
        attribute(&["last_updated_by"], Kind::Text, Use::Filter),
    ],
    order: &[],
    keyed: TEXT_NULL,
};

/// Likewise, and without tags.
pub static ISSUES: Schema = Schema {
    style: Style::Experiments,
    entities: &[("attribute", Entity::Attribute)],
    attributes: &[
        attribute(&["status"], Kind::Text, Use::Filter),
        attribute(&["source_run_id"], Kind::Text, Use::Filter),
    ],
    order: &[],
    keyed: TEXT,
};

pub static REGISTERED_MODELS: Schema = Schema {
    style: Style::Models,
    entities: SMALL,
    attributes: &[
        attribute(&["name"], Kind::Listed, Use::Both),
        attribute(&["last_updated_timestamp", "timestamp"], Kind::Number, Use::Order),
    ],
    order: &[],
    keyed: TEXT_NULL,
};

pub static MODEL_VERSIONS: Schema = Schema {
    style: Style::Versions,
    entities: SMALL,
    attributes: &[
        attribute(&["name"], Kind::Listed, Use::Both),
        attribute(&["run_id"], Kind::Listed, Use::Filter),
        attribute(&["source_path"], Kind::Text, Use::Filter),
        attribute(&["version_number"], Kind::Number, Use::Both),
        attribute(&["creation_timestamp"], Kind::Number, Use::Order),
        attribute(&["last_updated_timestamp"], Kind::Number, Use::Order),
    ],
    order: &[],
    keyed: TEXT_NULL,
};

pub static LOGGED_MODELS: Schema = Schema {
    style: Style::LoggedModels,
    entities: &[
        ("attributes", Entity::Attribute),
        ("metrics", Entity::Metric),
        ("params", Entity::Param),
        ("tags", Entity::Tag),
    ],
    attributes: &[
        attribute(&["name"], Kind::Listed, Use::Both),
        attribute(&["model_id"], Kind::Listed, Use::Both),
        attribute(&["model_type"], Kind::Listed, Use::Both),
        attribute(&["status"], Kind::Listed, Use::Both),
        attribute(&["source_run_id"], Kind::Listed, Use::Both),
        attribute(
            &["creation_timestamp", "creation_timestamp_ms", "creation_time"],
            Kind::Number,
            Use::Both,
        ),
        attribute(
            &["last_updated_timestamp", "last_updated_timestamp_ms", "last_updated_time"],
            Kind::Number,
            Use::Both,
        ),
    ],
    order: &[Entity::Metric],
    keyed: TEXT_LIST_NULL,
};

pub static TRACES: Schema = Schema {
    style: Style::Traces,
    entities: &[
        ("tag", Entity::Tag),
        ("tags", Entity::Tag),
        ("attribute", Entity::Attribute),
        ("attributes", Entity::Attribute),
        ("trace", Entity::Attribute),
        ("request_metadata", Entity::Metadata),
        ("metadata", Entity::Metadata),
        ("span", Entity::Span),
        ("feedback", Entity::Feedback),
        ("expectation", Entity::Expectation),
        ("issue", Entity::Issue),
    ],
    attributes: &[
        attribute(&["request_id"], Kind::Listed, Use::Both),
        attribute(&["client_request_id"], Kind::Listed, Use::Filter),
        attribute(&["experiment_id"], Kind::Text, Use::Order),
        attribute(&["status"], Kind::Listed, Use::Both),
        attribute(&["timestamp_ms", "timestamp"], Kind::Number, Use::Both),
        attribute(&["execution_time_ms", "execution_time"], Kind::Number, Use::Both),
        attribute(&["end_time_ms", "end_time"], Kind::Number, Use::Both),
        // These four live elsewhere in a trace; see `Name::field`.
        attribute(&["name"], Kind::Listed, Use::Both),
        attribute(&["run_id"], Kind::Listed, Use::Both),
        attribute(&["prompt"], Kind::Text, Use::Filter),
        attribute(&["text"], Kind::Text, Use::Filter),
    ],
    order: &[Entity::Tag, Entity::Metadata],
    keyed: REGEX_NULL,
};
