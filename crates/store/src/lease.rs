//! Leases: which of several servers does a piece of work.
//!
//! A lease is a row with a holder, an end and a fencing token. The token grows each time the lease
//! changes hands, so a holder that was paused past its end can be told from its successor.
//! Ends are compared by each server's own clock: holders renew at a third of the length, which is
//! the disagreement of clocks this tolerates.

use std::time::Duration;

use falaj_base::{Error, Result, Timestamp, code};

use crate::db::{Db, Migration, Tx, params};

pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "lease",
    sql: "CREATE TABLE lease (
            name TEXT PRIMARY KEY, holder TEXT NOT NULL, token INTEGER NOT NULL,
            ends_at INTEGER NOT NULL);",
}];

/// The leases of this database, as one server sees them.
#[derive(Clone, Debug)]
pub struct Leases {
    db: Db,
    holder: String,
}

/// A lease held until `ends_at`, unless renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub name: String,
    pub holder: String,
    /// Grows with each change of hands: pass it along with what the lease protects.
    pub token: i64,
    pub ends_at: Timestamp,
}

impl Leases {
    /// `holder` names this server, uniquely among those that share the database.
    #[must_use]
    pub fn new(db: Db, holder: impl Into<String>) -> Self {
        Self { db, holder: holder.into() }
    }

    /// Takes the lease if it is free, over, or already ours. `None` if another holds it.
    pub async fn acquire(&self, name: &str, length: Duration) -> Result<Option<Lease>> {
        let (name, holder) = (name.to_owned(), self.holder.clone());
        self.db
            .write(move |tx| {
                let now = tx.now();
                let row = tx.query_opt(
                    "INSERT INTO lease (name, holder, token, ends_at) VALUES ($1, $2, 1, $3)
                     ON CONFLICT (name) DO UPDATE SET
                         holder = excluded.holder,
                         ends_at = excluded.ends_at,
                         token = lease.token
                             + CASE WHEN lease.holder = excluded.holder AND lease.ends_at > $4
                                    THEN 0 ELSE 1 END
                     WHERE lease.ends_at <= $4 OR lease.holder = excluded.holder
                     RETURNING token",
                    &params![&name, &holder, now + length, now],
                )?;
                row.map(|row| {
                    Ok(Lease { token: row.get("token")?, ends_at: now + length, name, holder })
                })
                .transpose()
            })
            .await
    }

    /// Renews the lease for as long as this is polled; resolves only when it is lost. For use
    /// beside the work it protects: whichever ends first ends both.
    pub async fn keep(&self, lease: &Lease, length: Duration) -> Error {
        loop {
            tokio::time::sleep(length / 4).await;
            match self.acquire(&lease.name, length).await {
                Ok(Some(renewed)) if renewed.token == lease.token => {}
                Ok(_) => return lease.lost(),
                // The database may answer again before the lease is over.
                Err(error) if self.db.now() >= lease.ends_at => return error,
                Err(_) => {}
            }
        }
    }

    /// Gives the lease back, so that another need not wait for its end.
    pub async fn release(&self, lease: &Lease) -> Result<()> {
        let lease = lease.clone();
        self.db
            .write(move |tx| {
                tx.execute(
                    "UPDATE lease SET ends_at = 0 WHERE name = $1 AND holder = $2 AND token = $3",
                    &params![&lease.name, &lease.holder, lease.token],
                )
                .map(drop)
            })
            .await
    }
}

impl Lease {
    /// Fails the transaction if the lease has passed to another: for writes that must not come
    /// from a holder that was paused too long.
    pub fn guard(&self, tx: &mut Tx<'_>) -> Result<()> {
        let held = tx.query_opt(
            "SELECT token FROM lease WHERE name = $1 AND token = $2 AND ends_at > $3",
            &params![&self.name, self.token, tx.now()],
        )?;
        match held {
            Some(_) => Ok(()),
            None => Err(self.lost()),
        }
    }

    fn lost(&self) -> Error {
        Error::new(&code::CONFLICT, format!("lease {} was lost", self.name))
    }
}
