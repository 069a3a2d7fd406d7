//! The OpenAPI 3.1 document, read off the endpoints themselves.

use std::fmt;

use falaj_base::Action;
use http::Method;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::module::Module;
use crate::problem::Problem;
use crate::routes::{Body, Doc, DocSource, Parts};

/// What the document is written from: every endpoint without its handler. Kept, because a server
/// that nobody asks for the document should not hold the megabytes that writing it takes.
pub struct Outline(Vec<Endpoint>);

struct Endpoint {
    module: &'static str,
    method: Method,
    path: &'static str,
    action: Option<&'static Action>,
    summary: &'static str,
    doc: DocSource,
}

impl fmt::Debug for Outline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} endpoints", self.0.len())
    }
}

impl Outline {
    #[must_use]
    pub fn of(modules: &[Module]) -> Self {
        let endpoints = modules.iter().flat_map(|module| {
            let told = module.endpoints.iter().filter(|endpoint| !endpoint.is_grpc());
            told.map(|endpoint| Endpoint {
                module: module.name,
                method: endpoint.method.clone(),
                path: endpoint.path,
                action: endpoint.action,
                summary: endpoint.summary,
                doc: endpoint.doc,
            })
        });
        Self(endpoints.collect())
    }

    /// The document over all modules.
    #[must_use]
    pub fn document(&self, version: &str) -> Value {
        document(&self.0, version)
    }
}

fn document(endpoints: &[Endpoint], version: &str) -> Value {
    let mut sent = inline(SchemaSettings::draft2020_12().for_deserialize());
    let mut given = inline(SchemaSettings::draft2020_12().for_serialize());
    let mut paths = Map::new();
    for endpoint in endpoints {
        let item = paths.entry(template(endpoint.path)).or_insert_with(|| json!({}));
        let operation = operation(endpoint, &mut sent, &mut given);
        item[endpoint.method.as_str().to_ascii_lowercase()] = operation;
    }
    let problem = given.subschema_for::<Problem>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Falaj",
            "version": version,
            "description": "One binary that is a whole machine-learning platform.",
        },
        "paths": paths,
        "components": {
            "schemas": { "Problem": problem },
            "responses": { "Problem": {
                "description": "The request was refused or failed; `code` says why.",
                "content": { "application/problem+json": {
                    "schema": { "$ref": "#/components/schemas/Problem" } } },
            } },
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "basic": { "type": "http", "scheme": "basic" },
            },
        },
        "security": [{ "bearer": [] }, { "basic": [] }],
    })
}

/// Schemas stand where they are used: the two directions of one type can differ, and would fight
/// over one name.
fn inline(mut settings: SchemaSettings) -> SchemaGenerator {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    settings.into_generator()
}

/// axum's `{*path}` is OpenAPI's `{path}`.
fn template(path: &str) -> String {
    path.replace("{*", "{")
}

fn operation(
    endpoint: &Endpoint,
    sent: &mut SchemaGenerator,
    given: &mut SchemaGenerator,
) -> Value {
    let (parts, mut parameters) = match &endpoint.doc {
        DocSource::Typed(read) => (read(sent, given), Vec::new()),
        DocSource::Raw(doc) => (raw_parts(doc), raw_parameters(endpoint.path, doc)),
        DocSource::Grpc => (Parts::default(), Vec::new()),
    };
    parameters.extend(parts.path.iter().flat_map(|schema| parameters_of(schema, "path")));
    parameters.extend(parts.query.iter().flat_map(|schema| parameters_of(schema, "query")));
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "tags": [endpoint.module],
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": responses(&parts),
    });
    if let Some(body) = &parts.body {
        operation["requestBody"] = json!({ "required": true, "content": content(body) });
    }
    match endpoint.action {
        Some(action) => operation["x-falaj-action"] = json!(action.name),
        None => operation["security"] = json!([]),
    }
    operation
}

/// `POST /v1/tenants/{tenant}/projects` is `post_v1_tenants_tenant_projects`.
fn operation_id(endpoint: &Endpoint) -> String {
    let words = endpoint.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    let method = endpoint.method.as_str().to_ascii_lowercase();
    std::iter::once(method.as_str()).chain(words).collect::<Vec<_>>().join("_")
}

fn responses(parts: &Parts) -> Value {
    let mut success = json!({ "description": "Success" });
    if let Some(body) = &parts.reply {
        success["content"] = content(body);
    }
    let problem = json!({ "$ref": "#/components/responses/Problem" });
    json!({ parts.status.to_string(): success, "4XX": problem, "5XX": problem })
}

fn content(body: &Body) -> Value {
    match body {
        Body::Json(schema) => json!({ "application/json": { "schema": schema } }),
        Body::Media(media) => json!({ *media: {} }),
    }
}

/// The properties of an object schema as parameters.
fn parameters_of(schema: &Schema, place: &str) -> Vec<Value> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object);
    let parameter = |(name, schema): (&String, &Value)| {
        let required = place == "path" || required.contains(&name.as_str());
        json!({ "name": name, "in": place, "required": required, "schema": schema })
    };
    properties.into_iter().flatten().map(parameter).collect()
}

fn raw_parts(doc: &Doc) -> Parts {
    Parts {
        body: doc.takes.map(Body::Media),
        status: if doc.status == 0 { 200 } else { doc.status },
        reply: doc.gives.map(Body::Media),
        ..Parts::default()
    }
}

/// A raw endpoint's path parameters are read off its path.
fn raw_parameters(path: &str, doc: &Doc) -> Vec<Value> {
    let text = json!({ "type": "string" });
    let in_path = path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).map(|name| {
        let name = name.trim_start_matches('*');
        json!({ "name": name, "in": "path", "required": true, "schema": text })
    });
    let in_query = doc.query.iter().map(|(name, about)| {
        json!({ "name": name, "in": "query", "description": about, "schema": text })
    });
    in_path.chain(in_query).collect()
}
