//! A transaction as domain code sees it: plain synchronous statements, the same on both engines.

use falaj_base::{Clock, Error, Result};

use super::held::Held;
use super::migrate::{self, ModuleMigrations};
use super::postgres::Connection;
use super::sqlite;
use super::value::{Row, Value, params};
use crate::record::Entries;
use crate::seal::DataKey;

/// One transaction, or for reads one snapshot.
///
/// Must hold: once a statement has failed, the transaction takes no more of them. PostgreSQL
/// behaves so by itself; SQLite is made to, so that code cannot come to depend on the difference.
pub struct Tx<'a> {
    engine: Engine<'a>,
    failed: bool,
    /// This transaction's number, once it was asked for.
    number: Option<i64>,
    /// The number below which it knows where transactions run, once it has looked at all; a read need not.
    looked: Option<i64>,
    /// The number that it stamps rows with on SQLite, once one was needed: see [`super::version`].
    pub(super) counted: Option<i64>,
    pub(crate) clock: &'a Clock,
    pub(crate) replies: Option<&'a DataKey>,
    /// Whether other writes share this transaction, see [`Tx::alone`].
    pub(super) sharing: Sharing,
    /// The position of the last record written by this transaction: see [`crate::record`].
    pub(crate) position: Option<(i64, i64)>,
    /// What is to be appended to logs once all writes that share the transaction have run; absent where
    /// rows are appended at once.
    pub(super) appended: Option<Appended>,
    /// Audit entries that writes which share the transaction may share; absent where nobody does.
    pub(crate) entries: Option<Entries>,
}

/// Rows for the ends of logs, by the statement that appends them.
#[derive(Debug, Default)]
pub(super) struct Appended(Vec<(&'static str, Vec<Vec<Value>>)>);

impl Appended {
    pub(super) fn push(&mut self, sql: &'static str, row: Vec<Value>) {
        match self.0.iter_mut().find(|(known, _)| *known == sql) {
            Some((_, rows)) => rows.push(row),
            None => self.0.push((sql, vec![row])),
        }
    }

    /// Adds what another write appends, after what is here.
    pub(super) fn extend(&mut self, other: Self) {
        for (sql, rows) in other.0 {
            for row in rows {
                self.push(sql, row);
            }
        }
    }

    /// The rows of each statement, in the order in which they came.
    pub(super) fn into_rows(self) -> impl Iterator<Item = (&'static str, Vec<Vec<Value>>)> {
        self.0.into_iter()
    }
}

/// Whether a transaction is shared, and what the write that runs in it has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sharing {
    /// All of the transaction is one write, or can be undone one by one.
    #[default]
    No,
    /// Others have written before.
    Shared,
    /// The write must have a transaction of its own.
    Unwilling,
}

pub(super) enum Engine<'a> {
    Sqlite(&'a rusqlite::Connection),
    Postgres(&'a mut Connection),
}

/// The oldest transaction of this database that the snapshot saw running, or else the first that
/// had not begun. Numbers are shared by all databases of a server: transactions known to run in
/// another one are passed over, lest a long one there hold up our readers.
const POSTGRES_HORIZON: &str = "
    SELECT COALESCE(MIN(running.xid::text::bigint), MIN(pg_snapshot_xmax(now.snapshot)::text::bigint))
        AS horizon
    FROM (SELECT pg_current_snapshot() AS snapshot) AS now
    LEFT JOIN LATERAL pg_snapshot_xip(now.snapshot) AS running (xid) ON NOT EXISTS (
        SELECT 1 FROM pg_stat_activity AS activity
        WHERE activity.datname <> current_database()
          AND running.xid::text::bigint < $1
          AND activity.backend_xid::text::bigint = (running.xid::text::bigint & 4294967295))";

/// Looks at what every connection does: what it saw is what [`POSTGRES_HORIZON`] is told, too, until the
/// transaction ends. What had ended by then has a number below `begun`, and so has all that could hold it
/// back. A connection may end while it looks and leave its place to another, whose number is then taken for
/// one of the first's database; but that number was given out later, and is no lower.
const POSTGRES_ACTIVITY: &str = "
    SELECT MAX(pg_snapshot_xmax(pg_current_snapshot())::text::bigint) AS begun FROM pg_stat_activity";

impl<'a> Tx<'a> {
    pub(super) fn new(engine: Engine<'a>, clock: &'a Clock, replies: Option<&'a DataKey>) -> Self {
        Self {
            engine,
            failed: false,
            number: None,
            looked: None,
            counted: None,
            clock,
            replies,
            sharing: Sharing::default(),
            position: None,
            appended: None,
            entries: None,
        }
    }

    /// All its statements see the same moment.
    pub(super) fn of_one_moment(mut self) -> Self {
        self.looked = Some(i64::MAX);
        self
    }

    /// Writes that share the transaction may share audit entries.
    pub(super) fn sharing_entries(mut self) -> Self {
        self.entries = Some(Entries::default());
        self
    }

    /// Something will be changed before the transaction ends.
    pub(crate) fn note_change(&mut self) {
        if let Engine::Postgres(connection) = &mut self.engine {
            connection.note_change();
        }
    }

    /// Appends the entries that were left for later.
    pub(super) fn append_shared(&mut self) -> Result<()> {
        let entries = self.entries.take().unwrap_or_default().into_vec();
        entries.iter().try_for_each(|entry| self.append_audit(entry))
    }

    /// One of several writes in a transaction: they append to logs together, at its end, and stamp rows
    /// with one number, once `counted`.
    pub(super) fn one_of_several(mut self, counted: Option<i64>) -> Self {
        self.appended = Some(Appended::default());
        self.counted = counted;
        self.sharing_entries()
    }

    /// Runs a statement and tells how many rows it changed.
    pub fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64> {
        self.run(|engine| match engine {
            Engine::Sqlite(connection) => sqlite::execute(connection, sql, params),
            Engine::Postgres(connection) => connection.execute(sql, params),
        })
    }

    /// Runs a statement whose count nobody needs. On PostgreSQL its answer is awaited with that of
    /// the next statement, or of the commit, and so is its failure: where a failure means something
    /// to the caller, [`Tx::execute`] is the one to use. In a transaction that several writes share,
    /// puts of one text are sent together, inserts of a row before all else: they must not depend on
    /// puts of another, and those of one write that update what is there must not meet the same row.
    pub fn put(&mut self, sql: &str, params: &[Value]) -> Result<()> {
        let shared = self.sharing != Sharing::No;
        self.run(|engine| match engine {
            Engine::Sqlite(connection) => sqlite::execute(connection, sql, params).map(drop),
            Engine::Postgres(connection) if shared => {
                connection.insert_sometime(sql, params);
                Ok(())
            }
            Engine::Postgres(connection) => connection.execute_later(sql, params),
        })
    }

    /// Appends a row to a log, at the latest when the transaction commits, in the order of the calls. No
    /// write may read what it, or another in its transaction, has appended. So nothing has to be kept
    /// for undoing it, should the write fail: that is what half of a small write would cost.
    pub(crate) fn append(&mut self, sql: &'static str, row: Vec<Value>) -> Result<()> {
        match &mut self.appended {
            Some(appended) if !self.failed => {
                appended.push(sql, row);
                Ok(())
            }
            _ => self.put(sql, &row),
        }
    }

    /// Runs one statement for each row of parameters and tells how many rows were changed in all:
    /// prepared once, and on PostgreSQL sent without waiting for each answer.
    pub fn execute_many(
        &mut self,
        sql: &str,
        rows: impl Iterator<Item = impl AsRef<[Value]>>,
    ) -> Result<u64> {
        self.run(|engine| match engine {
            Engine::Sqlite(connection) => sqlite::execute_many(connection, sql, rows),
            Engine::Postgres(connection) => connection.execute_many(sql, rows),
        })
    }

    pub fn query(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>> {
        self.run(|engine| match engine {
            Engine::Sqlite(connection) => sqlite::query(connection, sql, params),
            Engine::Postgres(connection) => connection.query(sql, params),
        })
    }

    /// The only row, if there is one.
    pub fn query_opt(&mut self, sql: &str, params: &[Value]) -> Result<Option<Row>> {
        let mut rows = self.query(sql, params)?;
        let row = rows.pop();
        if rows.is_empty() {
            Ok(row)
        } else {
            Err(Error::internal("a query for one row gave several"))
        }
    }

    /// A row, if it is there; from then on it is this transaction's alone, until its end.
    pub fn hold(&mut self, held: &Held) -> Result<Option<Row>> {
        match self.engine {
            Engine::Sqlite(_) => self.query_opt(&held.sql(), std::slice::from_ref(&held.id)),
            Engine::Postgres(_) => {
                let sql = format!("{} FOR UPDATE", held.sql());
                self.query_opt(&sql, std::slice::from_ref(&held.id))
            }
        }
    }

    /// The row that must be there.
    pub fn query_one(&mut self, sql: &str, params: &[Value]) -> Result<Row> {
        self.query_opt(sql, params)?.ok_or_else(|| Error::internal("a query for one row gave none"))
    }

    /// Runs a migration script in the neutral dialect.
    pub(super) fn execute_ddl(&mut self, sql: &str) -> Result<()> {
        self.run(|engine| match engine {
            Engine::Sqlite(connection) => sqlite::execute_ddl(connection, sql),
            Engine::Postgres(connection) => connection.execute_ddl(sql),
        })
    }

    /// Lets only one transaction at a time past this point, for a rule that spans rows ("the last
    /// admin stays"). SQLite has one writer anyway; PostgreSQL takes an advisory lock until commit.
    /// It is held from the next statement on: what must be read under it, the time included, is
    /// read after one.
    pub fn lock(&mut self, name: &str) -> Result<()> {
        match self.engine {
            Engine::Sqlite(_) => Ok(()),
            Engine::Postgres(_) => {
                self.lock_with("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))::text", name)
            }
        }
    }

    /// Lets any number of transactions past this point together, but none beside one that holds
    /// [`Tx::lock`] on the same name: for those who rely on what such a one would change.
    pub fn lock_shared(&mut self, name: &str) -> Result<()> {
        match self.engine {
            Engine::Sqlite(_) => Ok(()),
            Engine::Postgres(_) => {
                let sql = "SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 0))::text";
                self.lock_with(sql, name)
            }
        }
    }

    /// Says that what follows waits for others or makes them wait, beyond the one row that a write
    /// of [`super::Db::write_together`] began with. In a transaction that it shares, two such waits
    /// could cross; so it fails here, and is run again in one of its own.
    pub fn alone(&mut self) -> Result<()> {
        if self.sharing == Sharing::No {
            return Ok(());
        }
        self.sharing = Sharing::Unwilling;
        Err(Error::internal("a write that cannot share its transaction"))
    }

    fn lock_with(&mut self, sql: &str, name: &str) -> Result<()> {
        self.alone()?;
        self.run(|engine| match engine {
            Engine::Sqlite(_) => Ok(()),
            Engine::Postgres(connection) => connection.lock_later(sql, &params![name]),
        })
    }

    /// The first transaction number that may still be running: records below it are final, in
    /// order, and never joined by a late one.
    ///
    /// In a write what runs in other databases holds nothing back that was committed before: each of its
    /// statements sees anew what runs, so that is looked at first, and known when it ends in between. A read
    /// sees one moment: what ends elsewhere just after that, and before it is looked at, holds it back a
    /// little.
    pub fn horizon(&mut self) -> Result<i64> {
        if self.is_sqlite() {
            return Ok(i64::MAX);
        }
        let begun = match self.looked {
            Some(begun) => begun,
            None => self.query_one(POSTGRES_ACTIVITY, &[])?.get("begun")?,
        };
        self.looked = Some(begun);
        self.query_one(POSTGRES_HORIZON, &params![begun])?.get("horizon")
    }

    /// This transaction's number: zero on SQLite, where commits are already in order.
    pub(crate) fn number(&mut self) -> Result<i64> {
        let number = match (&self.engine, self.number) {
            (Engine::Sqlite(_), _) => 0,
            (Engine::Postgres(_), Some(known)) => known,
            (Engine::Postgres(_), None) => self.run(|engine| match engine {
                Engine::Sqlite(_) => Ok(0),
                Engine::Postgres(connection) => connection.number(),
            })?,
        };
        self.number = Some(number);
        Ok(number)
    }

    /// Whether the number of this transaction is not known before it is over.
    pub(crate) fn is_numbered_later(&self) -> bool {
        matches!(&self.engine, Engine::Postgres(connection) if connection.is_gathering())
    }

    pub(super) fn is_sqlite(&self) -> bool {
        matches!(self.engine, Engine::Sqlite(_))
    }

    /// The time of this statement.
    #[must_use]
    pub fn now(&self) -> falaj_base::Timestamp {
        self.clock.now()
    }

    /// The names of all tables in the order they were made, so that a table comes after those it
    /// refers to.
    pub fn tables(&mut self) -> Result<Vec<String>> {
        let sql = match self.engine {
            Engine::Sqlite(_) => {
                "SELECT name FROM sqlite_schema
                 WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
            }
            Engine::Postgres(_) => {
                "SELECT c.relname::text AS name FROM pg_class c
                 WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
                 ORDER BY c.oid"
            }
        };
        self.query(sql, &[])?.iter().map(|row| row.get("name")).collect()
    }

    /// The columns of a table, in order.
    pub fn columns(&mut self, table: &str) -> Result<Vec<String>> {
        let sql = match self.engine {
            Engine::Sqlite(_) => "SELECT name FROM pragma_table_info($1) ORDER BY cid",
            Engine::Postgres(_) => {
                "SELECT column_name::text AS name FROM information_schema.columns
                 WHERE table_schema = current_schema() AND table_name = $1
                 ORDER BY ordinal_position"
            }
        };
        self.query(sql, &params![table])?.iter().map(|row| row.get("name")).collect()
    }

    /// Makes the table that records migrations: the first thing a restore fills.
    pub(crate) fn make_schema_table(&mut self) -> Result<()> {
        migrate::make_table(self)
    }

    /// Brings the schema to exactly where the recorded migrations say it was.
    pub(crate) fn migrate_as_recorded(&mut self, modules: &[ModuleMigrations]) -> Result<()> {
        migrate::replay(self, modules)
    }

    /// Hands the rows of a result over one by one, without holding them all.
    pub fn scan(
        &mut self,
        sql: &str,
        params: &[Value],
        mut each: impl FnMut(Row) -> Result<()>,
    ) -> Result<()> {
        self.run(|engine| match engine {
            Engine::Sqlite(connection) => sqlite::scan(connection, sql, params, &mut each),
            Engine::Postgres(connection) => connection.scan(sql, params, &mut each),
        })
    }

    /// Passes `value` on if every statement succeeded: code that swallows a failure must not be
    /// told that its change was kept.
    pub(super) fn sound<T>(&self, value: T) -> Result<T> {
        if self.failed {
            return Err(Error::internal("a transaction went on after a failed statement"));
        }
        Ok(value)
    }

    /// From here on changes are noticed, for [`Tx::is_untouched`].
    pub(super) fn mark(&mut self) {
        if let Engine::Postgres(connection) = &mut self.engine {
            connection.mark();
        }
    }

    /// What comes now may update the same rows as what came before.
    pub(super) fn next_turn(&mut self) {
        if let Engine::Postgres(connection) = &mut self.engine {
            connection.next_turn();
        }
    }

    /// Whether everything succeeded and nothing was changed since the mark.
    pub(super) fn is_untouched(&self) -> bool {
        let changed = match &self.engine {
            Engine::Sqlite(_) => true,
            Engine::Postgres(connection) => connection.has_changed(),
        };
        !self.failed && !changed
    }

    fn run<T>(&mut self, statement: impl FnOnce(&mut Engine<'a>) -> Result<T>) -> Result<T> {
        if self.failed {
            return Err(Error::internal("a statement follows a failed one in its transaction"));
        }
        let result = statement(&mut self.engine);
        self.failed = result.is_err();
        result
    }
}

impl std::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("failed", &self.failed).finish_non_exhaustive()
    }
}
