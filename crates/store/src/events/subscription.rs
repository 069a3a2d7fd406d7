//! Named places in the log that survive their consumer.

use falaj_base::{Error, Result, TenantId, Timestamp};

use super::{Cursor, Event, EventLog, Filter, read_after};
use crate::db::{Db, Row, Tx, params};

/// A consumer's place.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Unique; a tenant's own begin with its id.
    pub name: String,
    pub tenant: Option<TenantId>,
    pub kind: String,
    pub cursor: Cursor,
    pub created_at: Timestamp,
    pub moved_at: Timestamp,
}

impl Subscription {
    #[must_use]
    pub fn filter(&self) -> Filter {
        Filter { tenant: self.tenant, kind: self.kind.clone() }
    }

    fn from_row(row: &Row) -> Result<Self> {
        Ok(Self {
            name: row.get("name")?,
            tenant: row.get("tenant")?,
            kind: row.get("kind")?,
            cursor: Cursor { tx: row.get("tx")?, seq: row.get("seq")? },
            created_at: row.get("created_at")?,
            moved_at: row.get("moved_at")?,
        })
    }
}

const COLUMNS: &str = "name, tenant, kind, tx, seq, created_at, moved_at";

/// The subscriptions of this database.
#[derive(Clone, Debug)]
pub struct Subscriptions {
    db: Db,
}

impl Subscriptions {
    #[must_use]
    pub fn new(db: Db) -> Self {
        Self { db }
    }

    /// Makes the subscription, or gives the one that is there: a consumer calls it at each start.
    pub fn ensure(
        tx: &mut Tx<'_>,
        name: &str,
        filter: &Filter,
        start: Cursor,
    ) -> Result<Subscription> {
        let now = tx.now();
        tx.execute(
            "INSERT INTO subscription (name, tenant, kind, tx, seq, created_at, moved_at)
             VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (name) DO NOTHING",
            &params![name, filter.tenant, &filter.kind, start.tx, start.seq, now],
        )?;
        Self::find(tx, name)?.ok_or_else(|| Error::internal("a subscription vanished"))
    }

    pub fn find(tx: &mut Tx<'_>, name: &str) -> Result<Option<Subscription>> {
        let sql = format!("SELECT {COLUMNS} FROM subscription WHERE name = $1");
        tx.query_opt(&sql, &params![name])?.as_ref().map(Subscription::from_row).transpose()
    }

    /// How many there are of a tenant, or of the platform itself.
    pub fn count(tx: &mut Tx<'_>, tenant: Option<TenantId>) -> Result<usize> {
        let of = tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
        let sql = "SELECT COUNT(*) AS n FROM subscription WHERE COALESCE(tenant, '') = $1";
        tx.query_one(sql, &params![of])?.get("n")
    }

    pub fn delete(tx: &mut Tx<'_>, name: &str) -> Result<bool> {
        Ok(tx.execute("DELETE FROM subscription WHERE name = $1", &params![name])? > 0)
    }

    /// Moves the place forward. Going back is refused: an event is acknowledged once and for all.
    pub fn acknowledge(tx: &mut Tx<'_>, name: &str, cursor: Cursor) -> Result<()> {
        let now = tx.now();
        let moved = tx.execute(
            "UPDATE subscription SET tx = $2, seq = $3, moved_at = $4
             WHERE name = $1 AND (tx < $2 OR (tx = $2 AND seq <= $3))",
            &params![name, cursor.tx, cursor.seq, now],
        )?;
        if moved == 1 {
            Ok(())
        } else {
            let allowed = "a cursor at or after the last one acknowledged";
            Err(Error::invalid("cursor", cursor, allowed))
        }
    }

    /// Consumes the next batch with an effect inside the database: `effect` and the move forward
    /// are one transaction, so each event takes effect exactly once. Gives how many were consumed.
    pub async fn consume<F>(&self, name: &str, limit: usize, effect: F) -> Result<usize>
    where
        F: Fn(&mut Tx<'_>, &Event) -> Result<()> + Send + 'static,
    {
        let name = name.to_owned();
        self.db
            .write(move |tx| {
                tx.lock(&format!("subscription/{name}"))?;
                let subscription = Self::find(tx, &name)?
                    .ok_or_else(|| Error::not_found("subscription", &name))?;
                let filter = subscription.filter();
                let events = read_after(tx, subscription.cursor, &filter, limit)?;
                for event in &events {
                    effect(tx, event)?;
                }
                if let Some(last) = events.last() {
                    Self::acknowledge(tx, &name, last.cursor)?;
                }
                Ok(events.len())
            })
            .await
    }

    /// The events after the subscription's place; they come again until acknowledged.
    pub async fn pending(&self, name: &str, limit: usize) -> Result<Vec<Event>> {
        let wanted = name.to_owned();
        let found = self.db.read(move |tx| Self::find(tx, &wanted)).await?;
        let subscription = found.ok_or_else(|| Error::not_found("subscription", name))?;
        let log = EventLog::new(self.db.clone());
        log.read(subscription.cursor, subscription.filter(), limit).await
    }
}
