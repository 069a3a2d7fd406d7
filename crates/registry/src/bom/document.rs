//! Writing the document.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::requirement::{Requirement, merged};
use super::{Considerations, Dataset, Metric, ModelFacts};

const MODEL: &str = "model";

/// The bill of materials of a version.
#[must_use]
pub fn document(facts: &ModelFacts) -> Value {
    let mut components: Vec<Value> = facts
        .files
        .files()
        .iter()
        .map(|file| {
            json!({
                "bom-ref": format!("file:{}", file.path),
                "type": "file",
                "name": file.path,
                "hashes": [{"alg": "SHA-256", "content": file.sha256.to_string()}],
                "properties": [property("falaj:size", file.size)],
            })
        })
        .collect();
    components.extend(merged(&facts.requirements).iter().map(library));
    let refs: Vec<Value> = components.iter().map(|c| c["bom-ref"].clone()).collect();
    let mut dependencies: Vec<Value> = vec![json!({"ref": MODEL, "dependsOn": refs})];
    dependencies.extend(refs.iter().map(|at| json!({"ref": at})));
    without_empty(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": format!("urn:uuid:{}", facts.serial.hyphenated()),
        "version": 1,
        "metadata": {
            "timestamp": facts.at.to_string(),
            "tools": {"components": [{
                "type": "application",
                "name": "falaj",
                "version": env!("CARGO_PKG_VERSION"),
            }]},
            "component": model(facts),
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

fn model(facts: &ModelFacts) -> Value {
    let mut properties: Vec<Value> = facts
        .properties
        .iter()
        .map(|(name, value)| property(&format!("falaj:{name}"), value))
        .collect();
    properties.push(property("falaj:size", facts.files.size()));
    // A digest over nothing would look like one over something.
    let hash = (!facts.files.is_empty())
        .then(|| json!({"alg": "SHA-256", "content": facts.files.digest().to_string()}));
    json!({
        "bom-ref": MODEL,
        "type": "machine-learning-model",
        "group": facts.group,
        "name": facts.name,
        "version": facts.version,
        "description": facts.description,
        "authors": facts.author.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
        // By name: an id must be one of SPDX's, and a card may say anything.
        "licenses": facts.licence.iter().map(|name| json!({"license": {"name": name}}))
            .collect::<Vec<_>>(),
        "hashes": hash.into_iter().collect::<Vec<_>>(),
        "properties": properties,
        "modelCard": {
            "modelParameters": {
                "task": facts.task,
                "architectureFamily": facts.architecture_family,
                "modelArchitecture": facts.architecture,
                "datasets": facts.datasets.iter().map(dataset).collect::<Vec<_>>(),
                "inputs": formats(&facts.inputs),
                "outputs": formats(&facts.outputs),
            },
            "quantitativeAnalysis": {
                "performanceMetrics": facts.metrics.iter().map(metric).collect::<Vec<_>>(),
            },
            "considerations": considerations(&facts.considerations),
        },
    })
}

fn dataset(dataset: &Dataset) -> Value {
    let mut properties = Vec::new();
    let mut url = None;
    if let Some(digest) = &dataset.digest {
        properties.push(property("falaj:digest", digest));
    }
    match dataset.source.as_deref().map(without_user) {
        Some(source) if is_url(&source) => url = Some(source),
        Some(source) => properties.push(property("falaj:source", source)),
        None => {}
    }
    json!({
        "type": "dataset",
        "name": dataset.name,
        "description": dataset.context,
        "contents": {"url": url, "properties": properties},
    })
}

/// An address without the user name and password it may carry.
fn without_user(address: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = address.split_once("://") else { return address.into() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]).into(),
        None => address.into(),
    }
}

/// Whether a text is plainly a URL. Schema validators refuse others in that place.
fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(is_word)
        && rest.chars().all(|c| c.is_ascii_alphanumeric() || "-._~/?&=+,;!$'()*".contains(c))
}

fn metric(metric: &Metric) -> Value {
    let value = match metric.value {
        value if value.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        value => format!("{value:?}"),
    };
    json!({"type": metric.name, "value": value, "slice": metric.slice})
}

fn considerations(card: &Considerations) -> Value {
    let risk = |(name, strategy): &(String, Option<String>)| json!({"name": name, "mitigationStrategy": strategy});
    json!({
        "users": card.users,
        "useCases": card.use_cases,
        "technicalLimitations": card.technical_limitations,
        "performanceTradeoffs": card.performance_tradeoffs,
        "ethicalConsiderations": card.ethical.iter().map(risk).collect::<Vec<_>>(),
    })
}

fn library(requirement: &Requirement) -> Value {
    let purl = requirement.purl();
    let asked = requirement.specifier.as_ref().filter(|_| requirement.version.is_none());
    json!({
        "bom-ref": purl,
        "type": "library",
        "name": requirement.name,
        "version": requirement.version,
        "purl": purl,
        "properties": asked.iter().map(|text| property("falaj:requirement", text))
            .collect::<Vec<_>>(),
    })
}

fn formats(texts: &[String]) -> Vec<Value> {
    texts.iter().map(|text| json!({"format": text})).collect()
}

fn property(name: &str, value: impl ToString) -> Value {
    json!({"name": name, "value": value.to_string()})
}

/// Leaves out what is not known: the schema has no place for nulls, and empty lists say nothing.
fn without_empty(value: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match value {
        Value::Array(items) => items.into_iter().map(without_empty).collect(),
        Value::Object(fields) => {
            let kept: Map<String, Value> = fields
                .into_iter()
                .map(|(name, value)| (name, without_empty(value)))
                .filter(|(_, value)| !is_empty(value))
                .collect();
            Value::Object(kept)
        }
        other => other,
    }
}
