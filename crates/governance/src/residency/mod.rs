//! Zones, and the check that runs before a byte moves.
//!
//! A zone is a place with a jurisdiction. Everything that holds data carries one: tenants,
//! projects, object roots and keys. Data may be placed in its own zone, in another of the same
//! jurisdiction, or where a recorded transfer (with its legal basis and, if set, its end) allows
//! it. Anything else, an unknown zone included, is refused with the rule's name, and the refusal
//! is on the audit log before the caller hears of it ([`on_record`]).
//!
//! Not here: where a tenant wants its projects (`tenancy`, by its list of allowed zones).

mod http;
mod refused;
mod rule;
mod service;
mod store;

pub use http::routes;
pub use refused::on_record;
pub use rule::{Permit, Refusal, Transfer, Zone, judge};
pub use service::Residency;
pub use store::MIGRATIONS;
pub(crate) use store::taken;

use falaj_base::{Action, Role};

pub static ZONE_CREATE: Action = Action::write("zone:create", Role::Admin, "Declare a zone");
pub static ZONE_READ: Action =
    Action::read("zone:read", Role::Viewer, "See zones and transfers").and_auditor();
pub static ZONE_DELETE: Action = Action::write("zone:delete", Role::Admin, "Remove a zone");
pub static TRANSFER_CREATE: Action =
    Action::write("transfer:create", Role::Admin, "Allow data to move from one zone to another");
pub static TRANSFER_DELETE: Action =
    Action::write("transfer:delete", Role::Admin, "End a permission to move data");

pub static ACTIONS: &[&Action] =
    &[&ZONE_CREATE, &ZONE_READ, &ZONE_DELETE, &TRANSFER_CREATE, &TRANSFER_DELETE];
