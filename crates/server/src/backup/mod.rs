//! The front door to backups: taken through the API while the server runs, restored by a command
//! into an empty place.
//!
//! Must hold: a backup is on the audit log before its first byte leaves; a restore is believed
//! only after the whole audit log, read from the restored database, agrees with its checkpoint.

mod http;
mod restore;
mod service;

pub use http::routes;
pub use restore::{Restored, restore};
pub use service::Backups;

use falaj_base::{Action, Role};
use falaj_store::backup::Renumber;

pub static BACKUP_CREATE: Action =
    Action::write("backup:create", Role::Admin, "Take a backup of everything");

pub static ACTIONS: &[&Action] = &[&BACKUP_CREATE];

/// The audit log counts its entries; the place of the n-th in the renumbered table is n.
static RENUMBERED: &[Renumber] = &[
    ("audit_leaf", "tx", "CAST(0 AS BIGINT)"),
    ("audit_leaf", "seq", "idx + 1"),
    ("audit_tree", "last_tx", "CAST(0 AS BIGINT)"),
    ("audit_tree", "last_seq", "size"),
];
