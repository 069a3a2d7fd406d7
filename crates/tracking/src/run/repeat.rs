//! Telling a repeated creation from a second one.
//!
//! MLflow's client sends a creation again when the reply to it was lost, and has no way to say so.
//! Taken for a second one, it leaves a run behind that nobody will ever finish. A creation is a
//! repeat if the same caller sent exactly the same one shortly before, nothing was logged to that
//! run since, and the connection it came on is gone: a reply that arrived leaves its connection
//! open, and workers that start alike at the same moment each have a living one.
//!
//! The first creation is noted in its own transaction, so a server that died in between knows it
//! too.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use falaj_base::{Ctx, Error, Result};
use falaj_mlflow::Call;
use falaj_store::db::{Db, Tx, params};
use falaj_store::worker::Worker;
use falaj_web::ConnectionLife;
use uuid::Uuid;

use super::id::RunId;
use super::service::NewRun;

/// For how long a creation can be repeated: longer than the stock client goes on trying.
const WINDOW: Duration = Duration::from_mins(10);

/// How many connections are kept in mind.
const REMEMBERED: usize = 100_000;

pub(crate) const SCHEMA: &str = "
    CREATE TABLE run_creation (
        fingerprint BLOB PRIMARY KEY, run BLOB NOT NULL, version INTEGER NOT NULL,
        boot BLOB NOT NULL, at INTEGER NOT NULL) CLUSTERED;
    CREATE INDEX run_creation_at ON run_creation (at);";

/// What makes two creations the same.
pub(super) type Fingerprint = [u8; 32];

#[derive(Debug)]
pub(crate) struct Repeats {
    /// This start of the server: connections of another one are over, or not ours to know.
    boot: Uuid,
    connections: Mutex<HashMap<Fingerprint, ConnectionLife>>,
}

impl Default for Repeats {
    fn default() -> Self {
        Self { boot: Uuid::now_v7(), connections: Mutex::default() }
    }
}

/// A creation without a start time says too little to be told from another.
pub(super) fn fingerprint(ctx: &Ctx, call: &Call, new: &NewRun) -> Result<Option<Fingerprint>> {
    if new.start_time == 0 {
        return Ok(None);
    }
    let said = (
        ctx.principal.id,
        call.place.id,
        new.experiment.0,
        &new.name,
        &new.user_id,
        new.start_time,
        &new.tags,
    );
    let text = serde_json::to_vec(&said).map_err(Error::internal)?;
    Ok(digest(&SHA256, &text).as_ref().try_into().ok())
}

impl Repeats {
    /// The run that this creation already made, if it is a repeat.
    pub(super) fn find(&self, tx: &mut Tx<'_>, print: &Fingerprint) -> Result<Option<RunId>> {
        let oldest = tx.now() - WINDOW;
        let found = tx.query_opt(
            "SELECT c.run, c.boot FROM run_creation c JOIN run r ON r.id = c.run
             WHERE c.fingerprint = $1 AND c.at >= $2 AND r.touched = c.version",
            &params![print.as_slice(), oldest],
        )?;
        let Some(row) = found else { return Ok(None) };
        let lost = row.get::<Vec<u8>>("boot")? != self.boot.as_bytes() || self.is_over(print);
        Ok(if lost { Some(row.get("run")?) } else { None })
    }

    fn is_over(&self, print: &Fingerprint) -> bool {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.get(print).is_some_and(ConnectionLife::is_over)
    }

    /// Notes a creation in its own transaction.
    pub(super) fn note(
        &self,
        tx: &mut Tx<'_>,
        print: &Fingerprint,
        run: RunId,
        version: i64,
    ) -> Result<()> {
        let now = tx.now();
        tx.execute(
            "INSERT INTO run_creation (fingerprint, run, version, boot, at)
             VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (fingerprint) DO UPDATE SET run = excluded.run,
                 version = excluded.version, boot = excluded.boot, at = excluded.at",
            &params![print.as_slice(), run, version, self.boot.as_bytes().as_slice(), now],
        )
        .map(drop)
    }

    /// Keeps in mind on which connection the creation came. Called before the write, so that a
    /// connection lost during it counts.
    pub(super) fn watch(&self, print: Fingerprint, connection: Option<&ConnectionLife>) {
        let Some(connection) = connection else { return };
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.len() >= REMEMBERED {
            connections.retain(|_, connection| !connection.is_over());
        }
        if connections.len() < REMEMBERED {
            connections.insert(print, connection.clone());
        }
    }
}

/// Forgets creations past their time.
pub(crate) fn forgetter(db: Db) -> Worker {
    Worker::new("run-creation-forget", WINDOW, move || {
        let db = db.clone();
        async move {
            let oldest = db.now() - WINDOW;
            let sql = "DELETE FROM run_creation WHERE at < $1";
            db.write(move |tx| tx.execute(sql, &params![oldest])).await.map(drop)
        }
    })
}
