//! Configuration: defaults, then one TOML file, then the environment, then flags; later wins.
//!
//! Each component owns one documented struct; the binary's root struct holds them. The JSON schema
//! of that struct is the only list of keys there is: it names the environment variables, finds the
//! unknown key, checks the limits and prints the reference.
//!
//! Must hold:
//! - An unknown key or `FALAJ_…` variable is an error that names the nearest known one.
//! - Every error names the key, the value, what is allowed, and where the value came from; the
//!   value of a [`Secret`](crate::Secret) is never part of it.
//! - `load(show(x)) == x`, secrets aside.
//!
//! Not here: what any key means, which is the business of the struct that holds it; rules that
//! span several keys, which its owner checks at start.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result, code};

mod check;
mod file;
mod nearest;
mod reference;
mod schema;
mod show;
mod text;

#[cfg(test)]
mod tests;

pub use reference::reference;
pub use show::{show, template};
pub use text::RESERVED;

use schema::Schema;

/// Where an effective value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Default,
    File { path: PathBuf, line: usize },
    Environment(String),
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(key) => write!(f, "flag for {key}"),
        }
    }
}

/// A configuration and where each value that is not a default came from.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    pub value: T,
    /// The file that was read, if one was.
    pub file: Option<PathBuf>,
    origins: Origins,
}

impl<T> Loaded<T> {
    /// Where the value of a dotted key came from.
    #[must_use]
    pub fn source(&self, key: &str) -> &Source {
        self.origins.of(key)
    }
}

/// The source of each dotted key that was set. A key below a list or map reports its parent's.
#[derive(Clone, Debug, Default)]
struct Origins(BTreeMap<String, Source>);

impl Origins {
    fn of(&self, key: &str) -> &Source {
        let mut prefix = key;
        loop {
            if let Some(source) = self.0.get(prefix) {
                return source;
            }
            match prefix.rfind(['.', '[']) {
                Some(end) => prefix = &prefix[..end],
                None => return &Source::Default,
            }
        }
    }
}

/// The layers as they are stacked: one JSON tree and the source of each value in it.
#[derive(Debug, Default)]
struct Stack {
    tree: serde_json::Map<String, Value>,
    origins: Origins,
}

impl Stack {
    /// Puts `value` at a dotted key, replacing what a lower layer said.
    fn put(&mut self, key: &str, value: Value, source: Source) {
        let mut table = &mut self.tree;
        let (parents, last) = key.rsplit_once('.').map_or((None, key), |(p, l)| (Some(p), l));
        for name in parents.into_iter().flat_map(|parents| parents.split('.')) {
            let slot = table.entry(name).or_insert_with(|| Value::Object(serde_json::Map::new()));
            if !slot.is_object() {
                *slot = Value::Object(serde_json::Map::new());
            }
            let Value::Object(inner) = slot else { return };
            table = inner;
        }
        table.insert(last.to_owned(), value);
        self.origins.0.insert(key.to_owned(), source);
    }
}

/// Reads the configuration `T`: its defaults, then `file`, then `env`, then `flags`.
///
/// `env` may be the whole environment: only names that begin with `FALAJ_` are looked at, and an
/// empty variable counts as not set. `flags` are dotted keys with their text.
pub fn load<T>(
    file: Option<&Path>,
    env: impl Iterator<Item = (String, String)>,
    flags: Vec<(String, String)>,
) -> Result<Loaded<T>>
where
    T: DeserializeOwned + JsonSchema + Serialize + Default,
{
    let schema = Schema::of::<T>()?;
    let mut stack = Stack::default();
    if let Some(path) = file {
        file::read(&schema, path, &mut stack)?;
    }
    text::environment(&schema, env, &mut stack)?;
    text::flags(&schema, flags, &mut stack)?;
    check::check(&schema, &stack)?;
    let value = build(&schema, &stack)?;
    Ok(Loaded { value, file: file.map(Path::to_owned), origins: stack.origins })
}

/// Turns the stacked values into `T`, on top of its own defaults.
fn build<T>(schema: &Schema, stack: &Stack) -> Result<T>
where
    T: DeserializeOwned + Serialize + Default,
{
    let mut tree = serde_json::to_value(T::default()).map_err(Error::internal)?;
    schema.overlay(&mut tree, &stack.tree);
    serde_path_to_error::deserialize(&tree).map_err(|error| {
        let key = error.path().to_string();
        check::refused_by_type(schema, &tree, &stack.origins, &key, &error.into_inner())
    })
}

fn invalid(message: String) -> Error {
    Error::new(&code::INVALID_CONFIG, message)
}
