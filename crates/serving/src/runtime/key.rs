//! What names a model here.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Names the content of a model and how it is to run. Whoever makes one decides what it says; here
/// two models are the same if their keys are. A model that is to run in another way has another
/// key: nothing about a loaded one is ever changed.
#[derive(Clone)]
pub struct ModelKey {
    text: Arc<str>,
    /// Of the text, which is long: a key is looked up for every request.
    hash: u64,
}

impl ModelKey {
    #[must_use]
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        let text = key.into();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self { text, hash: hasher.finish() }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for ModelKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text) || (self.hash == other.hash && self.text == other.text)
    }
}

impl Eq for ModelKey {}

impl Hash for ModelKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialOrd for ModelKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ModelKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl fmt::Display for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelKey({})", self.text)
    }
}
