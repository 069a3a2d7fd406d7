//! Numbers that order changes, for whoever keeps a copy of rows in memory and must learn what has
//! changed since.
//!
//! A writer stamps its rows with [`Tx::version`]. A reader remembers [`Tx::unsettled_version`] of
//! the snapshot it read; later it reads the rows stamped at or above that number again. On
//! PostgreSQL the number is the transaction's own, and a snapshot may be followed by late commits
//! with lower numbers than some it already saw: hence *unsettled*, not *last*. SQLite commits one
//! transaction after the other and counts them in a row; writes that share one share its number.

use falaj_base::Result;

use super::migrate::Migration;
use super::tx::Tx;
use super::value::Value;

pub static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "version",
    sql: "CREATE TABLE version (id INTEGER PRIMARY KEY, value INTEGER NOT NULL);
          INSERT INTO version (id, value) VALUES (1, 1);",
}];

impl Tx<'_> {
    /// The number to stamp this transaction's rows with.
    pub fn version(&mut self) -> Result<i64> {
        if !self.is_sqlite() {
            return self.number();
        }
        if let Some(counted) = self.counted {
            return Ok(counted);
        }
        let counted = self
            .query_one("UPDATE version SET value = value + 1 WHERE id = 1 RETURNING value", &[])?
            .get("value")?;
        self.counted = Some(counted);
        Ok(counted)
    }

    /// The same as a value for an insert by [`Tx::put`]: where the database itself numbers the transaction
    /// while it writes, nobody need ask it before.
    pub fn stamp(&mut self) -> Result<Value> {
        if self.is_numbered_later() { Ok(Value::Number) } else { self.version().map(Value::Int) }
    }

    /// Rows stamped below this number are as they will stay in every later snapshot, unless they
    /// are stamped anew.
    pub fn unsettled_version(&mut self) -> Result<i64> {
        if !self.is_sqlite() {
            return self.horizon();
        }
        Ok(self.query_one("SELECT value FROM version WHERE id = 1", &[])?.get::<i64>("value")? + 1)
    }
}
