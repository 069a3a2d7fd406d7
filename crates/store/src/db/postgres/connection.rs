//! One connection, driven by the thread that uses it.
//!
//! Domain code is synchronous, so the thread of a transaction waits for each answer anyway: it
//! polls the socket itself instead of waiting for another thread to do so, which would cost two
//! switches between threads for every statement.
//!
//! What needs no answer of its own (beginning, locks, inserts that nobody counts) is sent along
//! with the next statement that does, in one round trip.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use falaj_base::{Error, Result};
use futures::future::{BoxFuture, join, try_join_all};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, RowStream, Statement};

use super::merge::Inserts;
use super::{Target, pool, translate};
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

/// Ends a transaction and begins another like it.
pub(super) const CHAIN: &str = "COMMIT AND CHAIN";

/// Why a shared transaction has no good end.
pub(super) enum Ended {
    /// Nothing of it was kept.
    Undone,
    /// Nobody knows.
    Unknown(Error),
}

type Driven<T> = std::result::Result<T, tokio_postgres::Error>;

pub(in crate::db) struct Connection {
    /// Always there, but while this is dropped.
    runtime: Option<Runtime>,
    client: Arc<Client>,
    wire: Wire,
    statements: HashMap<String, Prepared>,
    /// What was asked for and whose answer was not awaited yet, in order.
    waiting: Vec<BoxFuture<'static, Driven<()>>>,
    /// Whether the beginning of a transaction may be among that.
    beginning: bool,
    /// Whether the last transaction's end has begun one that nobody uses yet.
    chained: bool,
    /// Whether anything was changed since [`Connection::mark`].
    changed: bool,
    /// Inserts of a shared transaction that are not sent yet.
    inserts: Inserts,
    /// The number of the transaction that is under way, once it is known.
    number: Arc<OnceLock<i64>>,
}

/// A statement the server knows, and what its columns are called.
#[derive(Clone)]
struct Prepared {
    statement: Statement,
    columns: Arc<[String]>,
}

/// The socket's side of a connection; nothing once it is closed, and whoever waits is told so.
struct Wire(Option<BoxFuture<'static, Driven<()>>>);

impl Wire {
    /// Waits for `work`, and moves bytes meanwhile.
    fn drive<T>(&mut self, runtime: &Runtime, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        runtime.block_on(poll_fn(|cx| {
            // Asks, moves the question and perhaps its answer, and looks again.
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            self.poll(cx);
            work.as_mut().poll(cx)
        }))
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Some(wire) = &mut self.0
            && Pin::new(wire).poll(cx).is_ready()
        {
            self.0 = None;
        }
    }

    /// Moves what can be moved without waiting.
    fn push(&mut self, runtime: &Runtime) {
        runtime.block_on(self.once());
    }

    /// Reads what the server said while nobody listened; tells whether it is still open.
    fn listen(&mut self, runtime: &Runtime) -> bool {
        runtime.block_on(async {
            self.once().await;
            // Only a runtime that has nothing else to do asks the system for news.
            tokio::task::yield_now().await;
            self.once().await;
        });
        self.0.is_some()
    }

    fn once(&mut self) -> impl Future<Output = ()> {
        poll_fn(|cx| {
            self.poll(cx);
            Poll::Ready(())
        })
    }
}

impl Connection {
    /// Connects, on a thread that may block.
    pub(super) fn open(target: &Target) -> Result<Self> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(Error::internal)?;
        let connecting = async {
            Ok(match &target.tls {
                None => {
                    let (client, wire) = target.config.connect(NoTls).await?;
                    (client, Box::pin(wire) as BoxFuture<'static, Driven<()>>)
                }
                Some(tls) => {
                    let (client, wire) = target.config.connect(tls.clone()).await?;
                    (client, Box::pin(wire) as BoxFuture<'static, Driven<()>>)
                }
            })
        };
        let connected =
            runtime.block_on(async { tokio::time::timeout(pool::WAIT, connecting).await });
        let (client, wire) = match connected {
            Ok(connected) => {
                connected.map_err(|error: tokio_postgres::Error| pool::silent(error))?
            }
            Err(late) => return Err(pool::silent(late)),
        };
        Ok(Self {
            runtime: Some(runtime),
            client: Arc::new(client),
            wire: Wire(Some(wire)),
            statements: HashMap::new(),
            waiting: Vec::new(),
            beginning: false,
            chained: false,
            changed: false,
            inserts: Inserts::default(),
            number: Arc::default(),
        })
    }

    /// Whether it can be used: what the server said meanwhile is read first.
    pub(super) fn is_open(&mut self) -> bool {
        let Some(runtime) = &self.runtime else { return false };
        self.wire.listen(runtime) && !self.client.is_closed()
    }

    /// Waits for what was asked for earlier, and for `work`, which is sent right behind it.
    fn finish<T>(&mut self, work: impl Future<Output = Driven<T>>) -> Result<T> {
        let Some(runtime) = &self.runtime else { return Err(closed()) };
        self.beginning = false;
        let earlier = try_join_all(std::mem::take(&mut self.waiting));
        let (earlier, done) = self.wire.drive(runtime, join(earlier, work));
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
        if std::mem::take(&mut self.chained) {
            return Ok(());
        }
        self.beginning = true;
        self.control_later(sql)
    }

    /// Ends a transaction that was begun for nobody.
    pub(super) fn leave_chained(&mut self) -> Result<()> {
        if std::mem::take(&mut self.chained) { self.leave("COMMIT") } else { Ok(()) }
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
        let Some(runtime) = &self.runtime else { return Err(Ended::Unknown(closed())) };
        self.beginning = false;
        let earlier = try_join_all(std::mem::take(&mut self.waiting));
        let end = async { client.batch_execute(sql).await };
        let (earlier, ended) = self.wire.drive(runtime, join(earlier, end));
        match (earlier, ended) {
            (_, Ok(())) if sent.is_err() => Err(Ended::Undone),
            // The server refused a statement: what it then took for the end was a rollback.
            (Err(refused), Ok(())) if refused.as_db_error().is_some() => Err(Ended::Undone),
            (Err(error), _) | (_, Err(error)) => Err(Ended::Unknown(translate(error))),
            (Ok(_), Ok(())) => {
                self.chained = sql == CHAIN;
                Ok(())
            }
        }
    }

    /// Ends a transaction that changed nothing: nobody needs to wait for that, unless something
    /// else was left to be waited for, whose failure is nobody else's.
    pub(in crate::db) fn leave(&mut self, sql: &'static str) -> Result<()> {
        if self.waiting.len() > usize::from(self.beginning) {
            return self.end(sql);
        }
        self.control_later(sql)?;
        if let Some(runtime) = &self.runtime {
            self.wire.push(runtime);
        }
        Ok(())
    }

    /// Runs a statement whose count nobody needs; if it fails, the next one says so.
    pub(in crate::db) fn execute_later(&mut self, sql: &str, params: &[Value]) -> Result<()> {
        let statement = self.prepared(sql)?;
        self.begun()?;
        let (client, params) = (self.client.clone(), params.to_vec());
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

    /// Inserts that come now may update the same rows as those that wait.
    pub(in crate::db) fn next_turn(&mut self) {
        self.inserts.next_turn();
    }

    /// Sends the inserts that wait.
    fn send_inserts(&mut self) -> Result<()> {
        if self.inserts.is_empty() {
            return Ok(());
        }
        for (sql, params) in self.inserts.take() {
            self.execute_later(&sql, &params)?;
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

/// Whether a statement only reads, by its first word.
fn is_reading(sql: &str) -> bool {
    sql.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("select"))
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Nothing runs there but what was waited for, and a runtime must not be waited for where
        // this may happen.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn closed() -> Error {
    Error::internal("a connection that is gone")
}
