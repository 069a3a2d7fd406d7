//! Where everything is kept: one database handle over SQLite and PostgreSQL, encrypted objects,
//! the event log and the leases.
//!
//! Must hold:
//! - A write that returned `Ok` is on disk. A write that returned `Err` left nothing behind.
//! - A state change, its event and its audit entry are one transaction ([`record`]).
//! - Bytes at rest in an object root are always sealed; the plaintext never touches a disk.
//!
//! Not here: who may do what, and what the audit entries prove (`governance`); HTTP (`web`).

pub mod backup;
pub mod db;
pub mod events;
pub mod keys;
pub mod lease;
pub mod objects;
pub mod record;
pub mod seal;
pub mod worker;

/// The tables of this crate, module by module, in the order they are built.
#[must_use]
pub fn migrations() -> Vec<db::ModuleMigrations> {
    vec![
        ("version", db::MIGRATIONS),
        ("record", record::MIGRATIONS),
        ("events", events::MIGRATIONS),
        ("lease", lease::MIGRATIONS),
    ]
}
