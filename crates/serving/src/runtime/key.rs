//! What names a model here.

use std::fmt;
use std::sync::Arc;

/// Names the content of a model and how it is to run. Whoever makes one decides what it says; here
/// two models are the same if their keys are. A model that is to run in another way has another
/// key: nothing about a loaded one is ever changed.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelKey(Arc<str>);

impl ModelKey {
    #[must_use]
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelKey({})", self.0)
    }
}
