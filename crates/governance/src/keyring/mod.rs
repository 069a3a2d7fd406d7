//! The front door to encryption keys: who may see, rotate and destroy them.
//!
//! Must hold:
//! - No route gives key material away; what can be read is that a key exists, where, and in which
//!   state.
//! - A destruction and its audit entry are one transaction: there is no key that vanished without
//!   a trace, and no certificate for a key that still exists.
//!
//! Not here: the keys themselves and their wrapping (`falaj_store::keys`).

mod http;
mod service;
#[cfg(test)]
mod tests;

pub use http::routes;
pub use service::Keyring;

use falaj_base::{Action, Role};

pub static KEY_READ: Action =
    Action::read("key:read", Role::Operator, "See which keys a tenant has").and_auditor();
pub static KEY_ROTATE: Action =
    Action::write("key:rotate", Role::Admin, "Make a new version of a tenant's key");
pub static KEY_DESTROY: Action =
    Action::write("key:destroy", Role::Admin, "Destroy a key, and with it what it sealed");
pub static ROOT_KEY_READ: Action =
    Action::read("root-key:read", Role::Operator, "See the root keys").and_auditor();
pub static ROOT_KEY_ROTATE: Action =
    Action::write("root-key:rotate", Role::Admin, "Make a new version of a root key");

pub static ACTIONS: &[&Action] =
    &[&KEY_READ, &KEY_ROTATE, &KEY_DESTROY, &ROOT_KEY_READ, &ROOT_KEY_ROTATE];
