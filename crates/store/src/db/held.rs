//! A row that a write waits for and keeps others from, named so that many can be asked for at once.

use super::value::Value;

/// One row of a table, by its key.
#[derive(Clone, Debug)]
pub struct Held {
    pub table: &'static str,
    /// The column of the key.
    pub key: &'static str,
    /// What is read of it.
    pub columns: &'static str,
    pub id: Value,
}

impl Held {
    pub(super) fn sql(&self) -> String {
        let Self { table, key, columns, .. } = self;
        format!("SELECT {columns} FROM {table} WHERE {key} = $1")
    }

    /// Whether both name rows of one table and the same columns, so that one statement reads both.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.table, self.key, self.columns) == (other.table, other.key, other.columns)
    }

    /// Reads several rows like this one, as `falaj_id` and its columns, and holds them; with each
    /// comes the transaction's number, as `falaj_tx`. Those that somebody else holds are left out:
    /// nobody is to wait for another's row.
    pub(super) fn sql_many(&self, count: usize) -> String {
        let Self { table, key, columns, .. } = self;
        let places: Vec<_> = (1..=count).map(|n| format!("${n}")).collect();
        let places = places.join(", ");
        // Apart from the rows, which are held first: so that numbers of transactions that wait for each
        // other follow the order in which they go.
        format!(
            "SELECT held.*, pg_current_xact_id()::text::bigint AS falaj_tx FROM (
                 SELECT {key} AS falaj_id, {columns} FROM {table} WHERE {key} IN ({places})
                 FOR UPDATE SKIP LOCKED) AS held"
        )
    }
}
