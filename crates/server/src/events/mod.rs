//! The front door to the event log: read it, follow it live, keep a named place in it.
//!
//! Must hold: an event is shown to those who may read its scope, and to nobody else. A live stream
//! ends as soon as anyone's rights change; the client comes back and is judged anew, so a revoked
//! token stops seeing events within seconds.

mod http;
mod service;
mod stream;

pub use http::routes;
pub use service::Events;

use std::time::Duration;

use falaj_base::{Action, HumanDuration, Role};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub static EVENT_READ: Action =
    Action::read("event:read", Role::Viewer, "Read events").and_auditor();
pub static SUBSCRIPTION_READ: Action =
    Action::read("subscription:read", Role::Viewer, "See a subscription").and_auditor();
pub static SUBSCRIPTION_WRITE: Action =
    Action::write("subscription:write", Role::Operator, "Make, move or remove a subscription");

pub static ACTIONS: &[&Action] = &[&EVENT_READ, &SUBSCRIPTION_READ, &SUBSCRIPTION_WRITE];

/// The event log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EventsConfig {
    /// How long events are kept; those a subscription has not passed are kept four times as long.
    pub retention: HumanDuration,
    /// How many subscriptions a tenant may have, and how many the platform.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_subscriptions: usize,
    /// How many live streams are served at once.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_streams: usize,
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self {
            retention: HumanDuration::from(Duration::from_hours(24 * 30)),
            max_subscriptions: 100,
            max_streams: 256,
        }
    }
}
