//! The keys of a configuration struct, read from its JSON schema.
//!
//! The schema generator's output is known and ours; what it can express beyond tables, lists, maps,
//! tagged choices and plain values is treated as a plain value and left to the type to judge.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::secret::HIDDEN;

/// What every variable of ours begins with.
pub(super) const PREFIX: &str = "FALAJ_";

/// The shape of the value behind one key.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Table(Fields),
    /// A table that is one of several (a tagged enum): all the fields any of them has. Its
    /// default is dropped when another variant is chosen, since their fields do not mix.
    Variants(Fields),
    List(Box<Node>),
    /// Names that the operator chooses, each with a value of one shape.
    Names(Box<Node>),
    Leaf(Leaf),
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) node: Node,
    pub(super) doc: String,
}

/// The fields of a table, in the order they were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, Field)>);

impl Fields {
    pub(super) fn get(&self, name: &str) -> Option<&Field> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, field)| field)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Field)> {
        self.0.iter().map(|(name, field)| (name, field))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Integer,
    Number,
    Text,
    Secret,
    Size,
    Duration,
    /// Whatever the type itself accepts.
    Other,
}

/// A plain value and its limits.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) kind: Kind,
    pub(super) choices: Vec<String>,
    /// Whether this field tells the variants of a table apart.
    pub(super) tag: bool,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
}

/// A key that can be named by its dotted path: everything except what lies inside lists and maps.
#[derive(Debug)]
pub(super) struct Key<'a> {
    pub(super) path: String,
    pub(super) field: &'a Field,
}

impl Key<'_> {
    pub(super) fn env(&self) -> String {
        env_name(&self.path)
    }
}

pub(super) fn env_name(path: &str) -> String {
    format!("{PREFIX}{}", path.replace(['.', '-'], "_").to_ascii_uppercase())
}

#[derive(Debug)]
pub(super) struct Schema {
    pub(super) root: Field,
}

impl Schema {
    pub(super) fn of<T: JsonSchema>() -> Result<Self> {
        let schema = schemars::SchemaGenerator::default().into_root_schema_for::<T>();
        let value = schema.to_value();
        let none = Map::new();
        let defs = value.get("$defs").and_then(Value::as_object).unwrap_or(&none);
        let schema = Self { root: field(&value, defs, 0) };
        schema.distinct_variables()?;
        Ok(schema)
    }

    /// Two keys with one variable name (`a.b_c` and `a.b.c`) could not be told apart.
    fn distinct_variables(&self) -> Result<()> {
        let mut seen = BTreeMap::new();
        for key in self.keys() {
            if let Some(other) = seen.insert(key.env(), key.path.clone()) {
                let text = format!("`{}` and `{other}` share the variable {}", key.path, key.env());
                return Err(Error::internal(text));
            }
        }
        Ok(())
    }

    /// All leaf-like keys, in order: plain values, lists and maps, but not the tables around them.
    pub(super) fn keys(&self) -> Vec<Key<'_>> {
        let mut keys = Vec::new();
        collect(&self.root, String::new(), &mut keys);
        keys
    }

    /// Every path there is, tables and the insides of lists included.
    pub(super) fn all_paths(&self) -> Vec<String> {
        let mut all = Vec::new();
        paths(&self.root.node, String::new(), &mut all);
        all
    }

    /// The shape behind a concrete path such as `oidc.issuers[0].url`.
    pub(super) fn find(&self, path: &str) -> Option<&Node> {
        let mut node = &self.root.node;
        for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
            node = match (node, step.strip_suffix(']')) {
                (Node::Table(fields) | Node::Variants(fields), None) => &fields.get(step)?.node,
                (Node::Names(item), None) | (Node::List(item), Some(_)) => item,
                _ => return None,
            };
        }
        Some(node)
    }

    /// Lays the values that were set over the defaults.
    pub(super) fn overlay(&self, defaults: &mut Value, set: &Map<String, Value>) {
        forget_hidden(defaults);
        overlay(&self.root.node, defaults, &Value::Object(set.clone()));
    }
}

fn overlay(node: &Node, base: &mut Value, set: &Value) {
    match (node, base, set) {
        (Node::Table(fields), Value::Object(base), Value::Object(set)) => {
            overlay_fields(fields, base, set);
        }
        (Node::Variants(fields), Value::Object(base), Value::Object(set))
            if same_variant(fields, base, set) =>
        {
            overlay_fields(fields, base, set);
        }
        (_, base, set) => *base = set.clone(),
    }
}

fn overlay_fields(fields: &Fields, base: &mut Map<String, Value>, set: &Map<String, Value>) {
    for (name, value) in set {
        match (fields.get(name), base.get_mut(name)) {
            (Some(field), Some(slot)) => overlay(&field.node, slot, value),
            _ => drop(base.insert(name.clone(), value.clone())),
        }
    }
}

/// Whether the values that were set leave the default's variant as it is.
fn same_variant(fields: &Fields, base: &Map<String, Value>, set: &Map<String, Value>) -> bool {
    let is_tag = |name: &String| matches!(fields.get(name).map(|field| &field.node), Some(Node::Leaf(leaf)) if leaf.tag);
    set.iter().all(|(name, value)| !is_tag(name) || base.get(name) == Some(value))
}

/// A secret serialises as a mask; the mask of a default must not become the value.
fn forget_hidden(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| value != HIDDEN);
            fields.values_mut().for_each(forget_hidden);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_hidden),
        _ => {}
    }
}

fn collect<'a>(field: &'a Field, path: String, keys: &mut Vec<Key<'a>>) {
    match &field.node {
        Node::Table(fields) | Node::Variants(fields) => {
            for (name, field) in fields.iter() {
                collect(field, join(&path, name), keys);
            }
        }
        _ => keys.push(Key { path, field }),
    }
}

/// Appends one name to a dotted path.
pub(super) fn join(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

/// Every path of a node, including those inside lists (`issuers[].url`), for suggestions.
fn paths(node: &Node, at: String, all: &mut Vec<String>) {
    match node {
        Node::Table(fields) | Node::Variants(fields) => {
            for (name, field) in fields.iter() {
                let path = join(&at, name);
                all.push(path.clone());
                paths(&field.node, path, all);
            }
        }
        Node::List(item) => paths(item, format!("{at}[]"), all),
        Node::Names(_) | Node::Leaf(_) => {}
    }
}

/// How deep configuration structs may nest; a type that contains itself would never end.
const MAX_DEPTH: usize = 16;

fn field(schema: &Value, defs: &Map<String, Value>, depth: usize) -> Field {
    let doc = |schema: &Value| schema["description"].as_str().unwrap_or_default().to_owned();
    let target = resolve(schema, defs);
    let mut text = doc(schema);
    if text.is_empty() {
        text = doc(target);
    }
    Field { node: node(target, defs, depth), doc: text }
}

/// Follows a reference, and looks through "this or null".
fn resolve<'a>(schema: &'a Value, defs: &'a Map<String, Value>) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_DEPTH {
        let reference = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/"));
        if let Some(target) = reference.and_then(|name| defs.get(name)) {
            schema = target;
        } else if let Some([one, other]) = schema["anyOf"].as_array().map(Vec::as_slice)
            && (one["type"] == "null" || other["type"] == "null")
        {
            schema = if one["type"] == "null" { other } else { one };
        } else {
            break;
        }
    }
    schema
}

fn node(schema: &Value, defs: &Map<String, Value>, depth: usize) -> Node {
    if depth > MAX_DEPTH {
        return Node::Leaf(leaf(schema));
    }
    let fields_of = |schema: &Value| -> Fields {
        let properties = schema["properties"].as_object().into_iter().flatten();
        Fields(
            properties
                .map(|(name, schema)| (name.clone(), field(schema, defs, depth + 1)))
                .collect(),
        )
    };
    let variants = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
    if let Some(variants) = variants {
        let variants: Vec<_> = variants.iter().map(|variant| resolve(variant, defs)).collect();
        if variants.iter().any(|variant| variant["properties"].is_object()) {
            let mut fields = fields_of(schema);
            for variant in variants {
                for (name, field) in fields_of(variant).0 {
                    merge_variant_field(&mut fields, name, field);
                }
            }
            return Node::Variants(fields);
        }
        return Node::Leaf(choice(schema, &variants));
    }
    if schema["properties"].is_object() {
        return Node::Table(fields_of(schema));
    }
    if schema["items"].is_object() {
        return Node::List(Box::new(field(&schema["items"], defs, depth + 1).node));
    }
    if schema["additionalProperties"].is_object() {
        let item = field(&schema["additionalProperties"], defs, depth + 1).node;
        return Node::Names(Box::new(item));
    }
    Node::Leaf(leaf(schema))
}

/// Two variants may share a field; for the tag that tells them apart, the choices add up.
fn merge_variant_field(fields: &mut Fields, name: String, field: Field) {
    let Some((_, known)) = fields.0.iter_mut().find(|(known, _)| *known == name) else {
        fields.0.push((name, field));
        return;
    };
    if let (Node::Leaf(known), Node::Leaf(new)) = (&mut known.node, field.node) {
        known.choices.extend(new.choices);
    }
}

/// An enum of plain words: the generator writes one sub-schema for each documented variant.
fn choice(schema: &Value, variants: &[&Value]) -> Leaf {
    let mut result = leaf(schema);
    for variant in variants {
        result.choices.extend(leaf(variant).choices);
    }
    let words = variants.iter().all(|variant| variant["type"] == "string");
    result.kind = if words { Kind::Text } else { Kind::Other };
    result
}

fn leaf(schema: &Value) -> Leaf {
    let is = |name: &str| match &schema["type"] {
        Value::String(kind) => kind == name,
        Value::Array(kinds) => kinds.iter().any(|kind| kind == name),
        _ => false,
    };
    let kind = match schema["format"].as_str() {
        Some("byte-size") => Kind::Size,
        Some("human-duration") => Kind::Duration,
        Some("password") => Kind::Secret,
        _ if is("boolean") => Kind::Bool,
        _ if is("integer") => Kind::Integer,
        _ if is("number") => Kind::Number,
        _ if is("string") => Kind::Text,
        _ => Kind::Other,
    };
    let words = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
    Leaf {
        kind,
        choices: words.filter_map(|word| word.as_str().map(str::to_owned)).collect(),
        tag: schema.get("const").is_some(),
        min: schema["minimum"].as_f64(),
        max: schema["maximum"].as_f64(),
        min_length: schema["minLength"].as_u64(),
        max_length: schema["maxLength"].as_u64(),
    }
}
