//! Telling a repeated creation from a second one.
//!
//! MLflow's client sends a creation again when the reply to it was lost, and has no way to say so.
//! Taken for a second one, it leaves a run behind that nobody will ever finish. A creation is a
//! repeat if the same caller sent exactly the same one shortly before, nothing was logged to that
//! run since, and the connection it came on is gone: a reply that arrived leaves its connection
//! open, and workers that start alike at the same moment each have a living one.
//!
//! The first creation is noted in its own transaction, so a server that died in between knows it
//! too. Of several servers on one database each tells the others which of its creations lost their
//! connection, and that it lives at all: a creation noted by one that lives, and has not said so,
//! has a living connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use falaj_base::{Ctx, Error, Result, Timestamp};
use falaj_mlflow::Call;
use falaj_store::db::{Db, Tx, params};
use falaj_store::worker::Worker;
use falaj_web::ConnectionLife;
use uuid::Uuid;

use super::id::RunId;
use super::service::NewRun;
use crate::Tracking;

/// For how long a creation can be repeated: longer than the stock client goes on trying.
const WINDOW: Duration = Duration::from_mins(10);

/// How many connections are kept in mind.
const REMEMBERED: usize = 100_000;

pub(crate) const SCHEMA: &str = "
    CREATE TABLE run_creation (
        fingerprint BLOB PRIMARY KEY, run BLOB NOT NULL, version INTEGER NOT NULL,
        boot BLOB NOT NULL, at INTEGER NOT NULL) CLUSTERED;
    CREATE INDEX run_creation_at ON run_creation (at);";

/// What servers tell each other: that they live, and which connections are over.
pub(crate) const NEIGHBOURS_SCHEMA: &str = "
    ALTER TABLE run_creation ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE tracking_server (boot BLOB PRIMARY KEY, seen_at INTEGER NOT NULL) CLUSTERED;";

/// How often a server tells the others.
const TELL: Duration = Duration::from_secs(1);
/// How often it says that it lives, and after which silence it is taken for dead.
const HEARTBEAT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(45);

/// What makes two creations the same.
pub(super) type Fingerprint = [u8; 32];

#[derive(Debug)]
pub(crate) struct Repeats {
    /// This start of the server: connections of another one are over, or not ours to know.
    boot: Uuid,
    connections: Mutex<HashMap<Fingerprint, Watched>>,
}

/// A connection on which a creation came.
#[derive(Debug)]
struct Watched {
    life: ConnectionLife,
    /// Whether other servers were told that it is over.
    told: bool,
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
            "SELECT c.run, c.boot, c.lost FROM run_creation c JOIN run r ON r.id = c.run
             WHERE c.fingerprint = $1 AND c.at >= $2
               AND NOT EXISTS (
                   SELECT 1 FROM run_touch t WHERE t.run = c.run AND t.version <> c.version)
               AND NOT EXISTS (SELECT 1 FROM metric_log l WHERE l.run = c.run)",
            &params![print.as_slice(), oldest],
        )?;
        let Some(row) = found else { return Ok(None) };
        let boot: Vec<u8> = row.get("boot")?;
        let lost = if boot == self.boot.as_bytes() {
            self.is_over(print)
        } else {
            row.get::<i64>("lost")? != 0 || !lives(tx, &boot)?
        };
        Ok(if lost { Some(row.get("run")?) } else { None })
    }

    /// The fingerprints whose connections are over and that nobody was told of yet.
    fn newly_over(&self) -> Vec<Fingerprint> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections
            .iter_mut()
            .filter(|(_, watched)| !watched.told && watched.life.is_over())
            .map(|(print, watched)| {
                watched.told = true;
                *print
            })
            .collect()
    }

    fn is_over(&self, print: &Fingerprint) -> bool {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.get(print).is_some_and(|watched| watched.life.is_over())
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
                 version = excluded.version, boot = excluded.boot, at = excluded.at, lost = 0",
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
            connections.retain(|_, watched| !watched.life.is_over());
        }
        if connections.len() < REMEMBERED {
            connections.insert(print, Watched { life: connection.clone(), told: false });
        }
    }
}

/// Whether another server has said lately that it lives.
fn lives(tx: &mut Tx<'_>, boot: &[u8]) -> Result<bool> {
    let since = tx.now() - SILENCE;
    let sql = "SELECT boot FROM tracking_server WHERE boot = $1 AND seen_at >= $2";
    Ok(tx.query_opt(sql, &params![boot, since])?.is_some())
}

/// Tells other servers on the same database that this one lives, and which of its connections are
/// over. An embedded database has no other.
pub(crate) fn teller(tracking: &Tracking) -> Worker {
    let tracking = tracking.clone();
    let last: Arc<Mutex<Option<Timestamp>>> = Arc::default();
    Worker::new("run-creation-tell", TELL, move || {
        let (tracking, last) = (tracking.clone(), last.clone());
        async move {
            if tracking.db().engine_name() == "sqlite" {
                return Ok(());
            }
            let now = tracking.db().now();
            let said = *last.lock().unwrap_or_else(PoisonError::into_inner);
            let beat = said.is_none_or(|said| said + HEARTBEAT <= now);
            let over = tracking.0.repeats.newly_over();
            if beat || !over.is_empty() {
                let boot = tracking.0.repeats.boot;
                tracking.db().write(move |tx| tell(tx, boot, &over)).await?;
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
            }
            Ok(())
        }
    })
    .on_every_server()
}

fn tell(tx: &mut Tx<'_>, boot: Uuid, over: &[Fingerprint]) -> Result<()> {
    let (now, boot) = (tx.now(), boot.as_bytes().as_slice());
    tx.execute(
        "INSERT INTO tracking_server (boot, seen_at) VALUES ($1, $2)
         ON CONFLICT (boot) DO UPDATE SET seen_at = excluded.seen_at",
        &params![boot, now],
    )?;
    for print in over {
        tx.execute(
            "UPDATE run_creation SET lost = 1 WHERE fingerprint = $1 AND boot = $2",
            &params![print.as_slice(), boot],
        )?;
    }
    Ok(())
}

/// Forgets creations past their time.
pub(crate) fn forgetter(db: Db) -> Worker {
    Worker::new("run-creation-forget", WINDOW, move || {
        let db = db.clone();
        async move {
            let oldest = db.now() - WINDOW;
            db.write(move |tx| {
                tx.execute("DELETE FROM run_creation WHERE at < $1", &params![oldest])?;
                tx.execute("DELETE FROM tracking_server WHERE seen_at < $1", &params![oldest])
            })
            .await
            .map(drop)
        }
    })
}
