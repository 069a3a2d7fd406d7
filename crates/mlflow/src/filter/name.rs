//! From a written name, such as ``metrics.`val loss` ``, to the field it means.

use falaj_base::{Error, Result};

use super::ast::{Aggregate, DatasetPart, Field, SpanPart, split_aggregate};
use super::error::{echo, list, refuse, set};
use super::schema::{Attribute, Entity, Schema, Style, Use};
use super::syntax::{inside, is_quoted};

/// Where a trace keeps what its filters call `name`, `prompt` and `run_id`.
const TRACE_NAME: &str = "mlflow.traceName";
const LINKED_PROMPTS: &str = "mlflow.linkedPrompts";
const SOURCE_RUN: &str = "mlflow.sourceRun";

#[derive(Debug)]
pub(super) struct Name<'a> {
    pub(super) entity: Entity,
    /// Behind the first dot, without quotes.
    pub(super) key: &'a str,
    /// Behind the first dot, as written.
    written: &'a str,
    pub(super) attribute: Option<&'static Attribute>,
}

impl<'a> Name<'a> {
    pub(super) fn read(text: &'a str, schema: &Schema, purpose: Use) -> Result<Self> {
        let (entity, written) = match text.split_once('.') {
            None => (Entity::Attribute, text),
            Some((entity, key)) => (find_entity(entity, schema)?, key),
        };
        let key = unquoted(written);
        let attribute = match entity {
            Entity::Attribute => Some(find_attribute(key, schema, purpose)?),
            _ => None,
        };
        Ok(Self { entity, key, written, attribute })
    }

    /// The field. What the original maps to a tag, to metadata or to spans is mapped here.
    pub(super) fn field(&self, schema: &Schema) -> Result<Field> {
        let key = self.key.to_owned();
        Ok(match self.entity {
            Entity::Attribute | Entity::Tag | Entity::Metadata if schema.style == Style::Traces => {
                self.trace_field()
            }
            Entity::Attribute => {
                Field::Attribute(self.attribute.map(Attribute::column).unwrap_or_default())
            }
            Entity::Metric if schema.style == Style::Runs => self.metric(),
            Entity::Metric => Field::Metric { key, aggregate: Aggregate::Latest },
            Entity::Param => Field::Param(key),
            Entity::Tag => Field::Tag(key),
            Entity::Metadata => Field::Metadata(key),
            Entity::Feedback => Field::Feedback(key),
            Entity::Expectation => Field::Expectation(key),
            Entity::Dataset => Field::Dataset(dataset_part(self.key)?),
            Entity::Span => Field::Span(span_part(self.key)?),
            Entity::Issue if self.key == "id" => Field::Issue,
            Entity::Issue => {
                return Err(refuse(format!(
                    "Invalid issue attribute '{}'. Supported attributes: id",
                    echo(self.key)
                )));
            }
        })
    }

    fn metric(&self) -> Field {
        let field = |key: &str, aggregate| Field::Metric { key: key.to_owned(), aggregate };
        if self.key.len() != self.written.len() {
            return field(self.key, Aggregate::Latest);
        }
        match split_aggregate(self.written) {
            None => field(self.written, Aggregate::Latest),
            Some((base, aggregate)) => {
                let base = &self.written[..base];
                if unquoted(base).len() == base.len() {
                    field(self.written, Aggregate::Undecided)
                } else {
                    field(unquoted(base), aggregate)
                }
            }
        }
    }

    /// The original maps these words under `tags.` and `metadata.` too.
    fn trace_field(&self) -> Field {
        match self.key {
            "name" => Field::Tag(TRACE_NAME.into()),
            "prompt" => Field::Prompt,
            "run_id" => Field::Metadata(SOURCE_RUN.into()),
            "text" => Field::Span(SpanPart::Content),
            LINKED_PROMPTS if self.entity == Entity::Tag => Field::Prompt,
            key => match (self.entity, self.attribute) {
                (Entity::Attribute, Some(attribute)) => Field::Attribute(attribute.column()),
                (Entity::Metadata, _) => Field::Metadata(key.to_owned()),
                _ => Field::Tag(key.to_owned()),
            },
        }
    }
}

/// Without one pair of quotes, then without one pair of backticks: the original's order.
fn unquoted(text: &str) -> &str {
    let text = if is_quoted(text, '\'') || is_quoted(text, '"') { inside(text) } else { text };
    if is_quoted(text, '`') { inside(text) } else { text }
}

fn find_entity(written: &str, schema: &Schema) -> Result<Entity> {
    let word = if is_quoted(written, '`') { inside(written) } else { written };
    let found = schema.entities.iter().find(|(name, _)| *name == word);
    found.map(|(_, entity)| *entity).ok_or_else(|| invalid_entity(word, schema))
}

fn invalid_entity(word: &str, schema: &Schema) -> Error {
    let word = echo(word);
    let names = schema.entities.iter().map(|(name, _)| *name);
    refuse(match schema.style {
        Style::Runs => {
            let kinds = ["metric", "parameter", "tag", "attribute", "dataset"];
            format!("Invalid entity type '{word}'. Valid values are {}", list(kinds.into_iter()))
        }
        Style::Traces => format!("Invalid entity type '{word}'. Valid values are {}", set(names)),
        Style::LoggedModels => {
            format!("Invalid entity type: '{word}'. Expected one of {}.", list(names))
        }
        Style::Experiments | Style::Models | Style::Versions => {
            format!("Invalid entity type '{word}'. Valid entity types are {}", list(names))
        }
    })
}

fn find_attribute(key: &str, schema: &Schema, purpose: Use) -> Result<&'static Attribute> {
    let attributes = schema.attributes;
    let mut serving = attributes.iter().filter(|attribute| attribute.serves(purpose));
    serving.find(|attribute| attribute.names.contains(&key)).ok_or_else(|| {
        refuse(format!(
            "Invalid attribute key '{}' specified. Valid keys are '{}'",
            echo(key),
            set(schema.names(purpose))
        ))
    })
}

fn dataset_part(key: &str) -> Result<DatasetPart> {
    Ok(match key {
        "name" => DatasetPart::Name,
        "digest" => DatasetPart::Digest,
        "context" => DatasetPart::Context,
        _ => {
            return Err(refuse(format!(
                "Invalid dataset key '{}' specified. Valid keys are '{}'",
                echo(key),
                set(["name", "digest", "context"].into_iter())
            )));
        }
    })
}

fn span_part(key: &str) -> Result<SpanPart> {
    Ok(match key {
        "name" => SpanPart::Name,
        "type" => SpanPart::Type,
        "status" => SpanPart::Status,
        "content" => SpanPart::Content,
        _ => match key.strip_prefix("attributes.").map(unquoted) {
            Some("") => {
                return Err(refuse("Span attribute name cannot be empty after 'attributes.'"));
            }
            Some(name) => SpanPart::Attribute(name.to_owned()),
            None => {
                return Err(refuse(format!(
                    "Invalid span attribute '{}'. Supported attributes: name, status, type, \
                     attributes.<attribute_name>.",
                    echo(key)
                )));
            }
        },
    })
}
