//! One connection, driven by the thread that uses it.
//!
//! Domain code is synchronous, so the thread of a transaction waits for each answer anyway: it
//! polls the socket itself instead of waiting for another thread to do so, which would cost two
//! switches between threads for every statement.
//!
//! What needs no answer of its own (beginning, locks, inserts that nobody counts) is sent along
//! with the next statement that does, in one round trip.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use falaj_base::{Error, Result};
use futures::future::{BoxFuture, join, try_join_all};
use futures::{StreamExt, TryStreamExt, stream};
use tokio_postgres::error::Severity;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, RowStream, Statement};

use super::bundle::Guard;
use super::connect::connect;
use super::memory::Memory;
use super::merge::Inserts;
use super::wire::Wire;
use super::{Target, translate};
use crate::db::dialect;
use crate::db::value::{Row, Value};

/// How many statements of one call are under way at once.
const PIPELINE: usize = 64;
/// How many rows of one call are held at a time.
const MANY: usize = 128;
/// How many statements are kept prepared; texts with lists in them come in many lengths.
const PREPARED: usize = 1000;
/// How many rows of a result are held at a time.
const ROWS: usize = 256;

/// Asks for the number of this transaction.
const NUMBER: &str = "SELECT pg_current_xact_id()::text::bigint";

/// Why a shared transaction has no good end.
#[derive(Debug)]
pub(super) enum Ended {
    /// Nothing of it was kept.
    Undone,
    /// Nobody knows.
    Unknown(Error),
}

type Driven<T> = std::result::Result<T, tokio_postgres::Error>;

pub(in crate::db) struct Connection {
    client: Arc<Client>,
    wire: Wire,
    statements: HashMap<String, Prepared>,
    /// What was asked for and whose answer was not awaited yet, in order.
    waiting: Vec<BoxFuture<'static, Driven<()>>>,
    /// Whether the beginning of a transaction may be among that.
    beginning: bool,
    /// Whether anything was changed since [`Connection::mark`].
    changed: bool,
    /// Inserts of a shared transaction that are not sent yet.
    inserts: Inserts,
    /// Whether a transaction is put together that the server has not heard of: nothing is asked meanwhile.
    gathering: bool,
    /// The number of the transaction that is under way, once it is known.
    number: Arc<OnceLock<i64>>,
    /// Rows that shared transactions held here.
    pub(super) memory: Memory,
}

/// A statement the server knows, and what its columns are called.
#[derive(Clone)]
struct Prepared {
    statement: Statement,
    columns: Arc<[String]>,
}

impl Connection {
    /// Connects, on a thread that may block.
    pub(super) fn open(target: &Target) -> Result<Self> {
        let (client, wire) = connect(target)?;
        Ok(Self {
            client: Arc::new(client),
            wire,
            statements: HashMap::new(),
            waiting: Vec::new(),
            beginning: false,
            changed: false,
            inserts: Inserts::default(),
            gathering: false,
            number: Arc::default(),
            memory: Memory::default(),
        })
    }

    /// Whether it can be used: what the server said meanwhile is read first.
    pub(super) fn is_open(&mut self) -> bool {
        self.wire.listen() && !self.client.is_closed()
    }

    /// Waits for what was asked for earlier, and for `work`, which is sent right behind it.
    fn finish<T>(&mut self, work: impl Future<Output = Driven<T>>) -> Result<T> {
        self.beginning = false;
        let earlier = try_join_all(std::mem::take(&mut self.waiting));
        let (earlier, done) = self.wire.drive(join(earlier, work));
        // The first error is the true one: after it the server refuses what follows.
        earlier.map_err(translate)?;
        done.map_err(translate)
    }

    /// Waits for what was asked for earlier.
    fn settle(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.finish(async { Ok(()) })
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement> {
        self.with_columns(sql).map(|prepared| prepared.statement)
    }

    fn with_columns(&mut self, sql: &str) -> Result<Prepared> {
        self.asking()?;
        if let Some(prepared) = self.statements.get(sql) {
            return Ok(prepared.clone());
        }
        let client = self.client.clone();
        let statement = self.finish(async { client.prepare(sql).await })?;
        if self.statements.len() >= PREPARED {
            self.statements.clear();
        }
        let columns = statement.columns().iter().map(|column| column.name().to_owned()).collect();
        let prepared = Prepared { statement, columns };
        self.statements.insert(sql.to_owned(), prepared.clone());
        Ok(prepared)
    }

    /// Asks for something now, and leaves the answer to whoever asks next.
    /// What fails before it is sent fails at once: the server, which never heard of it, would
    /// commit the rest.
    fn later(&mut self, work: impl Future<Output = Driven<()>> + Send + 'static) -> Result<()> {
        let mut work: BoxFuture<'static, Driven<()>> = Box::pin(work);
        // Polled once, it is in the queue, before all that is asked for afterwards.
        let mut nobody = Context::from_waker(Waker::noop());
        match work.as_mut().poll(&mut nobody) {
            Poll::Ready(done) => done.map_err(translate),
            Poll::Pending => {
                self.waiting.push(work);
                Ok(())
            }
        }
    }

    fn control_later(&mut self, sql: &'static str) -> Result<()> {
        let client = self.client.clone();
        self.later(async move { client.batch_execute(sql).await })
    }

    /// Reads rows that are held from then on, and with them the transaction's number.
    pub(super) fn hold_numbered(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>> {
        let rows = self.query(sql, params)?;
        if let Some(row) = rows.first() {
            // Set once: the cell is new for every transaction.
            let _ = self.number.set(row.get("falaj_tx")?);
        }
        Ok(rows)
    }

    /// Asks for the number of this transaction, with the next statement.
    fn ask_number(&mut self) -> Result<()> {
        let statement = self.prepared(NUMBER)?;
        let (client, number) = (self.client.clone(), self.number.clone());
        self.later(async move {
            let row = client.query_one(&statement, &[]).await?;
            // Set once: the cell is new for every transaction.
            let _ = number.set(row.try_get(0)?);
            Ok(())
        })
    }

    /// The number of this transaction. Whoever locks something asks for it afterwards.
    pub(in crate::db) fn number(&mut self) -> Result<i64> {
        if self.number.get().is_none() {
            self.ask_number()?;
            self.settle()?;
        }
        self.number.get().copied().ok_or_else(|| Error::internal("a transaction without a number"))
    }

    /// Begins a transaction, together with its first statement.
    pub(in crate::db) fn begin(&mut self, sql: &'static str) -> Result<()> {
        self.inserts.clear();
        self.number = Arc::default();
        self.beginning = true;
        self.control_later(sql)
    }

    /// Ends a transaction and waits until it is over. After a failed statement the server takes
    /// any end for a rollback, and the failure is what is told.
    pub(in crate::db) fn end(&mut self, sql: &'static str) -> Result<()> {
        let client = self.client.clone();
        self.finish(async { client.batch_execute(sql).await })
    }

    /// Ends a transaction that several share, and tells apart how that can go wrong.
    pub(super) fn end_shared(&mut self, sql: &'static str) -> std::result::Result<(), Ended> {
        if sql == "ROLLBACK" {
            self.inserts.clear();
        }
        let sent = self.send_inserts();
        let sql = if sent.is_ok() { sql } else { "ROLLBACK" };
        let client = self.client.clone();
        self.beginning = false;
        let earlier = try_join_all(std::mem::take(&mut self.waiting));
        let end = async { client.batch_execute(sql).await };
        let (earlier, ended) = self.wire.drive(join(earlier, end));
        match (earlier, ended) {
            (_, Ok(())) if sent.is_err() => Err(Ended::Undone),
            // The server refused a statement: what it then took for the end was a rollback.
            (Err(refused), Ok(())) if refused.as_db_error().is_some() => Err(Ended::Undone),
            (Err(error), _) | (_, Err(error)) => Err(Ended::Unknown(translate(error))),
            (Ok(_), Ok(())) => Ok(()),
        }
    }

    /// Ends a transaction that changed nothing: nobody needs to wait for that, unless something
    /// else was left to be waited for, whose failure is nobody else's.
    pub(in crate::db) fn leave(&mut self, sql: &'static str) -> Result<()> {
        if self.waiting.len() > usize::from(self.beginning) {
            return self.end(sql);
        }
        self.control_later(sql)?;
        self.wire.push();
        Ok(())
    }

    /// Runs a statement whose count nobody needs; if it fails, the next one says so.
    pub(in crate::db) fn execute_later(&mut self, sql: &str, params: &[Value]) -> Result<()> {
        self.execute_owned(sql, params.to_vec())
    }

    fn execute_owned(&mut self, sql: &str, params: Vec<Value>) -> Result<()> {
        let statement = self.prepared(sql)?;
        self.begun()?;
        let client = self.client.clone();
        self.later(async move {
            let params = params.iter().map(|value| value as &(dyn ToSql + Sync));
            client.execute_raw(&statement, params).await.map(drop)
        })?;
        if self.waiting.len() >= PIPELINE { self.settle() } else { Ok(()) }
    }

    /// Runs an insert whose count nobody needs before the next statement that somebody waits for,
    /// together with others like it; also those of a different text may come first.
    pub(in crate::db) fn insert_sometime(&mut self, sql: &str, params: &[Value]) {
        self.changed = true;
        self.inserts.add(sql, params.to_vec());
    }

    /// Puts a transaction together that is one statement: inserts alone, until [`Self::write_guarded`].
    pub(super) fn gather(&mut self) {
        self.inserts.clear();
        self.number = Arc::default();
        self.gathering = true;
    }

    /// Lets go of what was gathered.
    pub(super) fn scatter(&mut self) {
        self.inserts.clear();
        self.gathering = false;
    }

    pub(in crate::db) fn is_gathering(&self) -> bool {
        self.gathering
    }

    /// Nothing is asked of the server while a transaction is gathered.
    fn asking(&self) -> Result<()> {
        if self.gathering {
            return Err(Error::internal("a statement that is not gathered"));
        }
        Ok(())
    }

    /// Sends what was gathered as a transaction of one statement, which does nothing unless what it relies on
    /// is still so. None if it cannot be one.
    pub(super) fn write_guarded(
        &mut self,
        guard: &Guard,
    ) -> Option<std::result::Result<(), Ended>> {
        self.gathering = false;
        let (sql, params) = self.inserts.take_guarded(guard)?;
        // Where that fails nothing was sent but the text.
        let Ok(statement) = self.prepared(&sql) else { return Some(Err(Ended::Undone)) };
        let client = self.client.clone();
        let params = params.iter().map(|value| value as &(dyn ToSql + Sync));
        // What was left to be waited for is the end of a transaction that changed nothing.
        let earlier = try_join_all(std::mem::take(&mut self.waiting));
        self.beginning = false;
        let write = async { client.execute_raw(&statement, params).await };
        let (_, written) = self.wire.drive(join(earlier, write));
        Some(match written {
            Ok(_) => Ok(()),
            // One that was refused, also while it was ended, has left nothing.
            Err(error) if is_refusal(&error) => Err(Ended::Undone),
            Err(error) => Err(Ended::Unknown(translate(error))),
        })
    }

    /// Inserts that come now may update the same rows as those that wait.
    pub(in crate::db) fn next_turn(&mut self) {
        self.inserts.next_turn();
    }

    /// Sends the inserts that wait.
    fn send_inserts(&mut self) -> Result<()> {
        self.asking()?;
        if self.inserts.is_empty() {
            return Ok(());
        }
        for (sql, params) in self.inserts.take() {
            self.execute_owned(&sql, params)?;
        }
        Ok(())
    }

    /// Takes a lock, together with the next statement.
    pub(in crate::db) fn lock_later(&mut self, sql: &str, params: &[Value]) -> Result<()> {
        let statement = self.prepared(sql)?;
        let (client, params) = (self.client.clone(), params.to_vec());
        self.later(async move {
            let params = params.iter().map(|value| value as &(dyn ToSql + Sync));
            let rows = client.query_raw(&statement, params).await?;
            rows.try_for_each(async |_| Ok(())).await
        })
    }

    /// Waits until the transaction has begun, before anything is changed: a change that was sent
    /// along with a beginning that failed would be kept.
    fn begun(&mut self) -> Result<()> {
        self.changed = true;
        if self.beginning { self.settle() } else { Ok(()) }
    }

    /// From here on changes are noticed.
    pub(in crate::db) fn mark(&mut self) {
        self.changed = false;
    }

    /// Something will be changed, though it was not sent yet.
    pub(in crate::db) fn note_change(&mut self) {
        self.changed = true;
    }

    /// Whether anything was changed since the mark.
    pub(in crate::db) fn has_changed(&self) -> bool {
        self.changed
    }

    pub(in crate::db) fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64> {
        self.send_inserts()?;
        let statement = self.prepared(sql)?;
        self.begun()?;
        let client = self.client.clone();
        let params = params.iter().map(|value| value as &(dyn ToSql + Sync));
        self.finish(async { client.execute_raw(&statement, params).await })
    }

    pub(in crate::db) fn execute_many(
        &mut self,
        sql: &str,
        rows: impl Iterator<Item = impl AsRef<[Value]>>,
    ) -> Result<u64> {
        self.send_inserts()?;
        let mut rows = rows.peekable();
        let mut changed = 0;
        while rows.peek().is_some() {
            let some: Vec<Vec<Value>> =
                rows.by_ref().take(MANY).map(|row| row.as_ref().to_vec()).collect();
            changed += self.execute_some(sql, some)?;
        }
        Ok(changed)
    }

    /// Runs a statement for each of some rows, several rows at once where that is possible.
    fn execute_some(&mut self, sql: &str, rows: Vec<Vec<Value>>) -> Result<u64> {
        let mut statements = Vec::new();
        for (text, values) in self.inserts.repeat(sql, rows) {
            statements.push((self.prepared(&text)?, values));
        }
        self.begun()?;
        let client = self.client.clone();
        let execute = async |(statement, values): (Statement, Vec<Value>)| {
            let params = values.iter().map(|value| value as &(dyn ToSql + Sync));
            client.execute_raw(&statement, params).await
        };
        // The connection sends them as they come and answers in order.
        let all = stream::iter(statements)
            .map(execute)
            .buffered(PIPELINE)
            .try_fold(0, async |sum, changed| Ok(sum + changed));
        self.finish(all)
    }

    pub(in crate::db) fn query(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>> {
        let mut found = Vec::new();
        self.scan(sql, params, &mut |row| {
            found.push(row);
            Ok(())
        })?;
        Ok(found)
    }

    pub(in crate::db) fn scan(
        &mut self,
        sql: &str,
        params: &[Value],
        each: &mut dyn FnMut(Row) -> Result<()>,
    ) -> Result<()> {
        self.send_inserts()?;
        let Prepared { statement, columns } = self.with_columns(sql)?;
        // A statement that changes something may also be asked for rows.
        if !is_reading(sql) {
            self.begun()?;
        }
        let client = self.client.clone();
        let params = params.iter().map(|value| value as &(dyn ToSql + Sync));
        // Some rows at a time, and the caller's code between them: it may block.
        let (mut some, rows) = self.finish(async {
            let mut rows = Box::pin(client.query_raw(&statement, params).await?);
            Ok((next_rows(&mut rows).await, rows))
        })?;
        let mut rows = rows;
        while !some.is_empty() {
            let last = some.len() < ROWS;
            for row in some {
                each(read(&columns, &row.map_err(translate)?)?)?;
            }
            if last {
                break;
            }
            some = self.finish(async { Ok(next_rows(&mut rows).await) })?;
        }
        Ok(())
    }

    pub(in crate::db) fn execute_ddl(&mut self, sql: &str) -> Result<()> {
        self.asking()?;
        self.begun()?;
        let client = self.client.clone();
        let sql = dialect::postgres_ddl(sql);
        self.finish(async { client.batch_execute(&sql).await })
    }
}

/// The next rows of a result; fewer than [`ROWS`] are the last.
async fn next_rows(rows: &mut Pin<Box<RowStream>>) -> Vec<Driven<tokio_postgres::Row>> {
    rows.take(ROWS).collect().await
}

fn read(columns: &Arc<[String]>, row: &tokio_postgres::Row) -> Result<Row> {
    let values = (0..columns.len())
        .map(|index| row.try_get::<_, Value>(index).map_err(translate))
        .collect::<Result<_>>()?;
    Ok(Row { columns: columns.clone(), values })
}

/// Whether the server refused a statement and goes on: whoever is told that it stops may have been heard.
fn is_refusal(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|refused| refused.parsed_severity() == Some(Severity::Error))
}

/// Whether a statement only reads, by its first word.
fn is_reading(sql: &str) -> bool {
    sql.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("select"))
}
