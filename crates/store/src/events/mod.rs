//! The event log: what changed, in commit order, for whoever needs to know.
//!
//! Must hold:
//! - Reading forward from a cursor never skips an event, however late its transaction committed.
//! - A named subscription moves only when its consumer says so: at least once, resumable. A
//!   consumer whose effect is in the database moves it in the same transaction: exactly once.
//!
//! Not here: appending (`record`, in the transaction of the change).

mod cursor;
mod subscription;

use std::time::Duration;

use falaj_base::{EventId, ProjectId, Result, TenantId, Timestamp};
use serde_json::{Value as Json, json};

pub use cursor::Cursor;
pub use subscription::{Subscription, Subscriptions};

use crate::db::{Db, Migration, Row, Tx, params};
use crate::worker::Worker;

pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "subscription",
    sql: "CREATE TABLE subscription (
            name TEXT PRIMARY KEY, tenant TEXT, kind TEXT NOT NULL, tx INTEGER NOT NULL,
            seq INTEGER NOT NULL, created_at INTEGER NOT NULL, moved_at INTEGER NOT NULL);",
}];

/// How many times longer an event is kept for a subscription that has not passed it: one that
/// nobody reads any more must not keep the whole log for ever.
const WAIT_FOR_SUBSCRIBERS: u32 = 4;

/// The most events one read gives.
pub const MAX_BATCH: usize = 1000;

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Event {
    pub cursor: Cursor,
    pub id: EventId,
    pub at: Timestamp,
    /// The CloudEvents type, `falaj.tenant.created`.
    pub kind: String,
    pub tenant: Option<TenantId>,
    pub project: Option<ProjectId>,
    /// The resource it happened to, `tenant/tnt_…`.
    pub subject: String,
    pub data: Json,
}

impl Event {
    /// The CloudEvents 1.0 shape. `sequence` is the cursor to continue after.
    #[must_use]
    pub fn cloud_event(&self) -> Json {
        let mut event = json!({
            "specversion": "1.0",
            "id": self.id,
            "source": "/falaj",
            "type": self.kind,
            "subject": self.subject,
            "time": self.at,
            "datacontenttype": "application/json",
            "sequence": self.cursor,
            "data": self.data,
        });
        if let Some(tenant) = self.tenant {
            event["tenant"] = json!(tenant);
        }
        if let Some(project) = self.project {
            event["project"] = json!(project);
        }
        event
    }

    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            cursor: Cursor { tx: row.get("tx")?, seq: row.get("seq")? },
            id: row.get("id")?,
            at: row.get("at")?,
            kind: row.get("kind")?,
            tenant: row.get("tenant")?,
            project: row.get("project")?,
            subject: row.get("subject")?,
            data: serde_json::from_str(&row.get::<String>("data")?).unwrap_or(Json::Null),
        })
    }
}

/// Which events a reader wants. An empty `kind` means all; otherwise it is a prefix.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub tenant: Option<TenantId>,
    pub kind: String,
}

/// Reads the log.
#[derive(Clone, Debug)]
pub struct EventLog {
    db: Db,
}

impl EventLog {
    #[must_use]
    pub fn new(db: Db) -> Self {
        Self { db }
    }

    /// The next final events after `after`, at most `limit`.
    pub async fn read(&self, after: Cursor, filter: Filter, limit: usize) -> Result<Vec<Event>> {
        self.db.read(move |tx| read_after(tx, after, &filter, limit)).await
    }

    /// The last final events up to and including `end`, at most `limit`, newest first.
    pub async fn read_back(&self, end: Cursor, filter: Filter, limit: usize) -> Result<Vec<Event>> {
        self.db.read(move |tx| read_until(tx, end, &filter, limit)).await
    }

    /// Where the log ends now: reading after it gives only what is still to come.
    pub async fn end(&self) -> Result<Cursor> {
        self.db
            .read(|tx| {
                let horizon = tx.horizon()?;
                let row = tx.query_opt(
                    "SELECT tx, seq FROM event WHERE tx < $1 ORDER BY tx DESC, seq DESC LIMIT 1",
                    &params![horizon],
                )?;
                row.map_or(Ok(Cursor::START), |row| {
                    Ok(Cursor { tx: row.get("tx")?, seq: row.get("seq")? })
                })
            })
            .await
    }

    /// Waits until something may have been committed: at once for this server's own writes, and
    /// within a second for those of others.
    pub async fn changed(&self, seen: &mut tokio::sync::watch::Receiver<u64>) {
        let _ = tokio::time::timeout(Duration::from_secs(1), seen.changed()).await;
    }

    /// The counter [`EventLog::changed`] watches.
    #[must_use]
    pub fn watch(&self) -> tokio::sync::watch::Receiver<u64> {
        self.db.commits()
    }

    /// Deletes events older than `keep`, except those a subscription has not passed yet, and the
    /// very last: numbering goes on after it, and a number used twice would be skipped by a
    /// reader that has seen it.
    #[must_use]
    pub fn trimmer(&self, keep: Duration) -> Worker {
        let db = self.db.clone();
        Worker::new("event-trim", Duration::from_hours(1), move || {
            let db = db.clone();
            async move { db.write(move |tx| trim(tx, keep)).await }
        })
    }
}

fn read_after(tx: &mut Tx<'_>, after: Cursor, filter: &Filter, limit: usize) -> Result<Vec<Event>> {
    let horizon = tx.horizon()?;
    let tenant = filter.tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
    let rows = tx.query(
        "SELECT tx, seq, id, at, kind, tenant, project, subject, data FROM event
         WHERE (tx > $1 OR (tx = $1 AND seq > $2)) AND tx < $3
           AND ($4 = '' OR tenant = $4) AND substr(kind, 1, length($5)) = $5
         ORDER BY tx, seq LIMIT $6",
        &params![after.tx, after.seq, horizon, tenant, &filter.kind, limit.min(MAX_BATCH)],
    )?;
    rows.iter().map(Event::read).collect()
}

fn read_until(tx: &mut Tx<'_>, end: Cursor, filter: &Filter, limit: usize) -> Result<Vec<Event>> {
    let horizon = tx.horizon()?;
    let tenant = filter.tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
    let rows = tx.query(
        "SELECT tx, seq, id, at, kind, tenant, project, subject, data FROM event
         WHERE (tx < $1 OR (tx = $1 AND seq <= $2)) AND tx < $3
           AND ($4 = '' OR tenant = $4) AND substr(kind, 1, length($5)) = $5
         ORDER BY tx DESC, seq DESC LIMIT $6",
        &params![end.tx, end.seq, horizon, tenant, &filter.kind, limit.min(MAX_BATCH)],
    )?;
    rows.iter().map(Event::read).collect()
}

fn trim(tx: &mut Tx<'_>, keep: Duration) -> Result<()> {
    let (oldest, at_all) = (tx.now() - keep, tx.now() - keep * WAIT_FOR_SUBSCRIBERS);
    tx.execute(
        "DELETE FROM event WHERE at < $1 AND (at < $2 OR NOT EXISTS (
             SELECT 1 FROM subscription s
             WHERE s.tx < event.tx OR (s.tx = event.tx AND s.seq < event.seq)))
         AND EXISTS (
             SELECT 1 FROM event later
             WHERE later.tx > event.tx OR (later.tx = event.tx AND later.seq > event.seq))",
        &params![oldest, at_all],
    )
    .map(drop)
}
