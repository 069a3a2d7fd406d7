//! Whether the connection that a request came on is still there.

use std::sync::{Arc, Weak};

/// Held by a connection for as long as it lives.
#[derive(Debug, Default)]
pub struct Lifeline(Arc<()>);

impl Lifeline {
    /// What goes beside each request of the connection.
    #[must_use]
    pub fn watch(&self) -> ConnectionLife {
        ConnectionLife(Arc::downgrade(&self.0))
    }
}

/// Tells whether a connection is still there; keeps nothing alive.
#[derive(Clone, Debug)]
pub struct ConnectionLife(Weak<()>);

impl ConnectionLife {
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}
