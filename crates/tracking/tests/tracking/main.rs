//! The tracking domain's tables and services: every test runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod answers;
mod artifact_files;
mod artifact_owners;
mod artifact_parts;
mod artifact_world;
mod console;
mod hold;
mod metric;
mod projection;
mod purge;
mod recipe;
mod repeated;

use falaj_governance::{epoch, residency, tenancy};
use falaj_store::db::Db;

/// Brings up the tables of this domain and of those it refers to.
async fn prepare(db: &Db) {
    let mut modules = falaj_store::migrations();
    modules.extend([
        ("epoch", epoch::MIGRATIONS),
        ("residency", residency::MIGRATIONS),
        ("tenancy", tenancy::MIGRATIONS),
        ("tracking", falaj_tracking::MIGRATIONS),
    ]);
    db.migrate(&modules).await.expect("migrations");
}
