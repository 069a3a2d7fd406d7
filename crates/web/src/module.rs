//! What a domain hands to the server.

use falaj_base::Action;
use falaj_store::worker::Worker;

use crate::routes::Endpoint;

/// One domain, ready to be composed: its routes, its background work and the actions
/// they stand for.
#[derive(Debug)]
pub struct Module {
    pub name: &'static str,
    pub actions: Vec<&'static Action>,
    pub endpoints: Vec<Endpoint>,
    pub workers: Vec<Worker>,
}

impl Module {
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, actions: Vec::new(), endpoints: Vec::new(), workers: Vec::new() }
    }

    #[must_use]
    pub fn actions(mut self, actions: &[&'static Action]) -> Self {
        self.actions.extend_from_slice(actions);
        self
    }

    #[must_use]
    pub fn routes(mut self, routes: impl Into<Vec<Endpoint>>) -> Self {
        self.endpoints.extend(routes.into());
        self
    }

    #[must_use]
    pub fn worker(mut self, worker: Worker) -> Self {
        self.workers.push(worker);
        self
    }
}
