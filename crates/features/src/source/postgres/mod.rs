//! Rows of a PostgreSQL database: read once, in one snapshot, in an order that stays, and kept
//! meanwhile as a Parquet file.
//!
//! Must hold:
//! - Nothing is written there: the transaction is read only, and a query is only ever a part of a
//!   `SELECT` of ours.
//! - Memory holds a few rows, each of bounded length, however long the table is.
//! - The same rows make the same file, whatever order the database keeps them in.

mod columns;
mod fetch;
mod sql;

use std::fmt::Write as _;

use falaj_base::{Error, Result, code};
use falaj_catalog::pipe::pipe;
use falaj_governance::tenancy::Project;
use falaj_online::{Decimal, Scalar};
use falaj_store::db::dial_postgres;
use falaj_tables::{Layout, RecordWriter};
use tokio::sync::mpsc;
use tokio_postgres::IsolationLevel;
use tokio_postgres::error::SqlState;

use super::open::needed;
use super::spool::{Spooled, spooled};
use super::window::Window;
use crate::Features;
use crate::config::SourceDatabase;
use crate::definition::form::ViewForm;
use columns::Wanted;

/// Batches that wait to be written.
const WAITING: usize = 2;

/// What is asked of a database.
pub(super) struct Asked<'a> {
    /// The source, as its definition calls it.
    pub(super) source: &'a str,
    pub(super) table: Option<&'a str>,
    pub(super) query: Option<&'a str>,
    pub(super) view: &'a ViewForm,
    /// Only used where a table is named: a query says itself what it wants.
    pub(super) window: Option<Window>,
}

impl Asked<'_> {
    /// What the rows are called in a record of what was read.
    pub(super) fn name(&self, database: &SourceDatabase) -> String {
        let what = self.table.unwrap_or(self.source);
        format!("{} {what}", database.name)
    }
}

/// Reads what is asked for.
pub(super) async fn read(
    features: &Features,
    project: &Project,
    database: &SourceDatabase,
    asked: &Asked<'_>,
) -> Result<Spooled> {
    let config = features.config();
    let work = reading(features, project, database, asked);
    tokio::time::timeout(config.max_time.get(), work).await.unwrap_or_else(|_| {
        let text = format!(
            "the source `{}` took longer than {} (`features.max_time`)",
            asked.source, config.max_time
        );
        Err(Error::new(&code::TOO_LARGE, text))
    })
}

async fn reading(
    features: &Features,
    project: &Project,
    database: &SourceDatabase,
    asked: &Asked<'_>,
) -> Result<Spooled> {
    let config = features.config();
    let failed = |error: tokio_postgres::Error| failed(asked, error);
    let mut client = dial_postgres(
        database.url.expose(),
        &database.ca_file,
        "features.databases",
        database.name.as_str(),
    )
    .await?;
    let begun = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start();
    let tx = begun.await.map_err(failed)?;
    let limit = config.database_timeout.get().as_millis();
    // Times without a zone are taken for UTC, whatever the database thinks of its own.
    let settings = format!("SET LOCAL statement_timeout = {limit}; SET LOCAL TIME ZONE 'UTC'");
    tx.batch_execute(&settings).await.map_err(failed)?;
    let from = sql::from(asked.table, asked.query);
    let all = tx.prepare(&sql::all(&from)).await.map_err(failed)?;
    let place = |column: &str| format!("{}.{column} in {}", asked.view.name, asked.source);
    let wanted = needed(asked.view)
        .into_iter()
        .map(|name| {
            let decimal = decimal_of(asked.view, &name);
            Wanted::found(&name, all.columns(), decimal, || place(&name))
        })
        .collect::<Result<Vec<_>>>()?;
    let most = config.max_database_value.bytes();
    let window = asked.window.filter(|_| asked.table.is_some());
    let event = asked.view.event_time.as_str();
    let text = sql::rows(&from, &wanted, event, window, most);
    let statement = tx.prepare(&text).await.map_err(failed)?;
    let portal = tx.bind(&statement, &[]).await.map_err(failed)?;

    let (give, take) = mpsc::channel(WAITING);
    let (out, pieces) = pipe();
    let fail = out.failing();
    let schema = columns::schema(&wanted);
    let writing = tokio::task::spawn_blocking(move || {
        let write = move || {
            let mut take = take;
            let mut writer = RecordWriter::new(out, schema, Layout::default())?;
            while let Some(batch) = take.blocking_recv() {
                writer.write(&batch?)?;
            }
            std::io::Write::flush(&mut writer.close()?).map_err(Error::internal)
        };
        write().map_err(fail).ok()
    });
    let fetching = async {
        let done = fetch::all(&tx, &portal, &wanted, &give, &place, most, &failed).await;
        if let Err(error) = done {
            // Whoever stores is told why; if nobody listens, they know already.
            drop(give.send(Err(error)).await);
        }
        drop(give);
    };
    let name = asked.name(database);
    let storing = spooled(features.objects(), project, &name, config.max_database_size, pieces);
    let ((), stored, written) = tokio::join!(fetching, storing, writing);
    let stored = stored?;
    written
        .map_err(Error::internal)?
        .ok_or_else(|| Error::internal("rows were kept that could not be written"))?;
    Ok(stored)
}

/// What a view says of a column of decimals.
fn decimal_of(view: &ViewForm, name: &str) -> Option<Decimal> {
    let column = view.columns().iter().find(|column| column.name.as_str() == name)?;
    match column.kind.scalar() {
        Scalar::Decimal(of) => Some(of),
        _ => None,
    }
}

/// What a database says, in our terms. The author of a query reads what is wrong with it.
fn failed(asked: &Asked<'_>, error: tokio_postgres::Error) -> Error {
    let Some(told) = error.as_db_error() else {
        let text = format!("the database of the source `{}` does not answer", asked.source);
        return Error::new(&code::UNAVAILABLE, text).caused_by(error);
    };
    let field = if asked.table.is_some() { "table" } else { "query" };
    let field = format!("{}.{field}", asked.source);
    let state = told.code().code();
    let why: String = told.message().chars().take(300).collect();
    if *told.code() == SqlState::QUERY_CANCELED {
        let allowed = "a statement within `features.database_timeout`";
        return Error::invalid(field, why, allowed).caused_by(error);
    }
    // 08, 53, 57, 58: the connection, its resources, the operator, the system. The rest is about
    // what was asked.
    if ["08", "53", "57", "58", "XX", "40"].iter().any(|class| state.starts_with(class)) {
        let mut text = format!("the database of the source `{}` gave up", asked.source);
        let _ = write!(text, " ({state})");
        return Error::new(&code::UNAVAILABLE, text).caused_by(error);
    }
    Error::invalid(field, why, "what the database runs, read only").caused_by(error)
}
