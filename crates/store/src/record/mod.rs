//! The outbox: a state change, its event, its audit entry and the remembered reply, written by
//! one call inside the change's own transaction.
//!
//! Must hold:
//! - Nothing is recorded that was not authorised in this context: [`Tx::record`] checks.
//! - `(tx, seq)` is the commit order. On SQLite commits are serial, so `tx` is 0 and `seq` runs
//!   on. On PostgreSQL `tx` is the transaction's number and rows at or above [`Tx::horizon`] may
//!   still be joined by others: readers stop there, and so never skip a late commit.
//!
//! Not here: the Merkle tree over the entries (`governance::audit`), reading events (`events`).

mod change;
mod entry;
pub mod idempotency;
mod together;

use falaj_base::{Ctx, Error, EventId, Result};

pub use change::Change;
pub use entry::{Actor, AuditEntry, Decision, Target};
pub(crate) use idempotency::ReplyKey;
pub use idempotency::StoredReply;
pub(crate) use together::Entries;
pub use together::{REQUEST_IDS, UNTIL};

use crate::db::{Migration, Tx, Value, params};

pub static MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "outbox",
        sql: "
        CREATE TABLE event (
            tx INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL,
            kind TEXT NOT NULL, tenant TEXT, project TEXT, subject TEXT NOT NULL,
            data TEXT NOT NULL, PRIMARY KEY (tx, seq));
        CREATE TABLE audit_entry (
            tx INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, tenant TEXT,
            entry TEXT NOT NULL, PRIMARY KEY (tx, seq));
        CREATE INDEX audit_entry_at ON audit_entry (at);
        CREATE TABLE idempotent_reply (
            principal TEXT NOT NULL, idempotency_key TEXT NOT NULL, at INTEGER NOT NULL,
            fingerprint BLOB NOT NULL, status INTEGER NOT NULL, sealed_body BLOB NOT NULL,
            PRIMARY KEY (principal, idempotency_key));
        CREATE INDEX idempotent_reply_at ON idempotent_reply (at);",
    },
    Migration {
        // Searches go by the leaves of the tree; nothing looks for entries by time.
        version: 2,
        name: "no index of entries by time",
        sql: "DROP INDEX audit_entry_at;",
    },
];

impl Tx<'_> {
    /// Puts a change on record: an audit entry always, an event if the change names one, and the
    /// reply if the caller sent an Idempotency-Key. Call it last, once the rows are written.
    pub fn record(&mut self, ctx: &Ctx, change: Change<'_>) -> Result<()> {
        if !ctx.is_authorized(change.action, change.resource) {
            return Err(Error::internal(format!(
                "{} on {} was not authorised",
                change.action.name, change.resource
            )));
        }
        if let Some((kind, data)) = &change.event {
            self.append_event(&change, kind, data)?;
        }
        let entry = change.audit_entry(ctx, self.now());
        if change.shares_entry { self.append_sharing(entry) } else { self.append_audit(&entry) }?;
        if let Some((status, body)) = &change.reply {
            idempotency::remember(self, ctx, *status, body)?;
        }
        ctx.note_recorded(change.action);
        Ok(())
    }

    /// Appends an entry that stands for no change: a denial, a failed sign-in, a read.
    pub fn append_audit(&mut self, entry: &AuditEntry) -> Result<()> {
        let (sql, row) = if self.is_numbered_later() {
            self.position = Some((0, self.position.map_or(0, |(_, last)| last) + 1));
            let seq = self.position.map(|(_, seq)| seq);
            let (sql, mut row) = audit_row((0, seq), entry)?;
            row[0] = Value::Number;
            (sql, row)
        } else {
            audit_row(self.next_position()?, entry)?
        };
        self.append(sql, row)
    }

    /// Appends an entry that may be one with others of this transaction.
    fn append_sharing(&mut self, entry: AuditEntry) -> Result<()> {
        let Some(entries) = &mut self.entries else { return self.append_audit(&entry) };
        entries.add(entry);
        self.note_change();
        Ok(())
    }

    fn append_event(&mut self, change: &Change<'_>, kind: &str, data: &str) -> Result<()> {
        let (tx, seq) = self.next_position()?;
        let scope = &change.resource.scope;
        let sql = if seq.is_some() {
            "INSERT INTO event (tx, seq, id, at, kind, tenant, project, subject, data)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        } else {
            "INSERT INTO event (tx, seq, id, at, kind, tenant, project, subject, data)
             VALUES ($1, COALESCE($2, (SELECT COALESCE(MAX(seq), 0) + 1 FROM event
                                       WHERE tx = 0)), $3, $4, $5, $6, $7, $8, $9)"
        };
        self.append(
            sql,
            params![
                tx,
                seq,
                EventId::new(),
                self.now(),
                format!("falaj.{kind}"),
                scope.tenant(),
                scope.project(),
                change.resource.to_string(),
                data,
            ]
            .into(),
        )
    }

    /// The next place in a log of any domain that is ordered as these are. A PostgreSQL transaction
    /// counts its own rows; on SQLite, where all transactions share the number 0, the statement
    /// itself continues after the last row of all.
    pub fn next_position(&mut self) -> Result<(i64, Option<i64>)> {
        if self.is_numbered_later() {
            return Err(Error::internal("a place in a log before the transaction has a number"));
        }
        let (tx, last) = match self.position {
            Some(position) => position,
            None => (self.number()?, 0),
        };
        self.position = Some((tx, last + 1));
        Ok((tx, (tx != 0).then_some(last + 1)))
    }
}

/// The statement that appends an entry at a place, and its values.
pub(crate) fn audit_row(
    (tx, seq): (i64, Option<i64>),
    entry: &AuditEntry,
) -> Result<(&'static str, Vec<Value>)> {
    let text = entry.bounded().canonical()?;
    // A statement that counts for itself would be planned anew by PostgreSQL every time.
    let sql = if seq.is_some() {
        "INSERT INTO audit_entry (tx, seq, at, tenant, entry) VALUES ($1, $2, $3, $4, $5)"
    } else {
        "INSERT INTO audit_entry (tx, seq, at, tenant, entry)
         VALUES ($1, COALESCE($2, (SELECT COALESCE(MAX(seq), 0) + 1 FROM audit_entry
                                   WHERE tx = 0)), $3, $4, $5)"
    };
    Ok((sql, params![tx, seq, entry.at, entry.tenant, text].into()))
}
