//! Webhooks: what happens to models and prompts is told to addresses that the operator allows; and
//! so is the end of something that was asked for, once.
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
//! - Connections go only to hosts in `registry.webhooks.allowed_hosts`, as [`crate::egress`] says.
//!   No redirect is followed and no proxy is used.
//! - A callback is a webhook that somebody gave with a request: it is told one thing, under the same
//!   rules, and is gone afterwards.
//! - A secret is sealed at rest by the tenant's key and never shown.
//!
//! Not here: the event log, which tells the platform's own parts.

mod attempt;
mod callback;
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

pub use callback::{Callback, call_back};
pub(crate) use config::Room;
pub use config::WebhooksConfig;
pub use delivery::signature;
pub use event::Event;
pub(crate) use queue::{Told, created, tell, version_created};
pub(crate) use send::Sender;
pub use webhook::Webhook;
pub(crate) use worker::worker;
