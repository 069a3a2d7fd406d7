//! Webhooks: what happens to models and prompts is told to addresses that the operator allows.
//!
//! ```text
//! change ─(same transaction)→ webhook_delivery ─worker→ POST, signed with the webhook's secret
//! ```
//!
//! Must hold:
//! - A delivery is written in the transaction of the change it tells of, so none is lost in a
//!   crash and none is made up. It is sent always under the same delivery id, a bounded number of
//!   times, and those of one webhook in order.
//! - One receiver that is slow, or has much waiting, does not hold up the others.
//! - Connections go only to hosts in `registry.webhooks.allowed_hosts`, by the scheme listed there.
//!   The address is looked at when connecting: one that is not public is refused unless private
//!   ones are allowed. No redirect is followed and no proxy is used.
//! - A secret is sealed at rest by the tenant's key and never shown.
//!
//! Not here: the event log, which tells the platform's own parts.

mod address;
mod attempt;
mod config;
mod delivery;
mod event;
pub(crate) mod http;
mod queue;
mod send;
mod service;
pub(crate) mod store;
mod url;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod webhook;
mod worker;

pub(crate) use config::Room;
pub use config::WebhooksConfig;
pub use event::Event;
pub(crate) use queue::{Told, created, tell, version_created};
pub(crate) use send::Sender;
pub use webhook::Webhook;
pub(crate) use worker::worker;
