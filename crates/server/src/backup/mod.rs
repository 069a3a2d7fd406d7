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

pub static BACKUP_CREATE: Action =
    Action::write("backup:create", Role::Admin, "Take a backup of everything");

pub static ACTIONS: &[&Action] = &[&BACKUP_CREATE];
