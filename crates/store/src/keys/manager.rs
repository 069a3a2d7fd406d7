//! The seam to whatever keeps the root key.

use std::fmt;
use std::str::FromStr;

use falaj_base::{Error, Result};
use futures::future::BoxFuture;

use crate::seal::DataKey;

/// Keeps a root key and wraps data keys with it; the root key itself never comes out.
///
/// Every implementation promises:
/// - `unwrap` gives the key that was wrapped under the same `name`, or fails: with
///   [`INTEGRITY`](falaj_base::code::INTEGRITY) if the bytes or the name are not the right ones,
///   with [`UNAVAILABLE`](falaj_base::code::UNAVAILABLE) if it cannot tell now.
/// - After `rotate`, new wraps use the new version and old ones still open.
/// - `rewrap` gives the same key under the current version; repeating it does no harm.
pub trait KeyManager: Send + Sync + fmt::Debug {
    /// Wraps a data key so that it opens only under the same name.
    fn wrap<'a>(&'a self, name: &'a str, key: &'a DataKey) -> BoxFuture<'a, Result<Wrapped>>;

    /// Gives back the key that was wrapped under this name.
    fn unwrap<'a>(&'a self, name: &'a str, wrapped: &'a Wrapped) -> BoxFuture<'a, Result<DataKey>>;

    /// The same key under the current version of the root key.
    fn rewrap<'a>(&'a self, name: &'a str, wrapped: &'a Wrapped) -> BoxFuture<'a, Result<Wrapped>>;

    /// Makes a new version of the root key and uses it from now on.
    fn rotate(&self) -> BoxFuture<'_, Result<RootVersion>>;

    /// The version that wraps now.
    fn current(&self) -> BoxFuture<'_, Result<RootVersion>>;
}

/// A wrapped data key, and what wrapped it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapped {
    pub by: RootVersion,
    pub bytes: Vec<u8>,
}

/// One version of one root key. Its text, `local:3` or `transit/falaj:3`, stands beside every
/// wrapped key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RootVersion {
    pub root: String,
    pub version: u32,
}

impl fmt::Display for RootVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.root, self.version)
    }
}

impl FromStr for RootVersion {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = text.rsplit_once(':').and_then(|(root, version)| {
            Some(Self { root: root.to_owned(), version: version.parse().ok()? })
        });
        parsed.ok_or_else(|| Error::invalid("root key version", text, "`name:number`"))
    }
}
