//! The store's conformance suites: every test runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "store/db.rs"]
mod db;
#[path = "store/events.rs"]
mod events;
#[path = "store/lease.rs"]
mod lease;
#[path = "store/record.rs"]
mod record;

use falaj_base::{Action, Ctx, Resource, Role, Scope};
use falaj_store::db::{Db, Migration};
use falaj_store::record::Change;

static MAKE: Action = Action::write("thing:make", Role::Contributor, "Make a thing");

static THINGS: &[Migration] = &[Migration {
    version: 1,
    name: "things",
    sql:
        "CREATE TABLE thing (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body BLOB);
          CREATE TABLE part (id INTEGER PRIMARY KEY, thing INTEGER NOT NULL REFERENCES thing (id));
          CREATE TABLE stamped (id INTEGER PRIMARY KEY, stamp INTEGER NOT NULL, name TEXT NOT NULL);",
}];

/// Brings up the store's own tables and those of the tests.
async fn prepare(db: &Db) {
    let mut modules = falaj_store::migrations();
    modules.push(("things", THINGS));
    db.migrate(&modules).await.expect("migrations");
}

fn thing(id: i64) -> Resource {
    Resource::new("thing", id, Scope::Platform)
}

/// A context in which making these things has been allowed.
async fn allowed(ids: impl IntoIterator<Item = i64>) -> Ctx {
    let ctx = Ctx::system("test");
    for id in ids {
        ctx.authorize(&MAKE, &thing(id)).await.expect("the system may do everything");
    }
    ctx
}

/// Makes a thing and puts it on record.
async fn make(db: &Db, id: i64) {
    let ctx = allowed([id]).await;
    db.write(move |tx| tx.record(&ctx, Change::new(&MAKE, &thing(id)).event("thing.made", &id)))
        .await
        .expect("recording");
}

/// Waits until every event so far is final. PostgreSQL numbers the transactions of all databases
/// together, and the other tests' can hold the line back for a moment.
async fn settle(db: &Db) {
    let patience = std::time::Duration::from_secs(20);
    assert!(db.settled(patience).await.expect("waiting"), "the events did not become final");
}
