//! Durable small transactions: sharing commits against one fsync each.

use std::time::{Duration, Instant};

use anyhow::Result;
use falaj_store::db::{DatabaseConfig, Db, Migration, Tx, params};
use falaj_testkit::database::Database;
use futures::future::try_join_all;
use uuid::Uuid;

use crate::report::{Goal, Report};

const CLIENTS: usize = 64;
const RUN: Duration = Duration::from_secs(4);

static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "bench",
    sql: "CREATE TABLE appended (id BLOB NOT NULL PRIMARY KEY, value TEXT NOT NULL) CLUSTERED;
          CREATE TABLE scattered (client INTEGER NOT NULL, id BLOB NOT NULL, value TEXT NOT NULL,
              PRIMARY KEY (client, id)) CLUSTERED;",
}];

/// Where the rows of different clients lie.
#[derive(Clone, Copy, Debug)]
enum Rows {
    /// Beside each other, in the order of time: events, audit entries, anything with a new id.
    Appended,
    /// Each client's in a page of its own, as the metrics of different runs: a shared commit then
    /// writes as many pages as there are clients.
    Scattered,
}

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let shared = DatabaseConfig::default();
    let alone = DatabaseConfig { write_batch: 1, ..DatabaseConfig::default() };
    for rows in [Rows::Appended, Rows::Scattered] {
        // Twice in turns, so that a disk that slows down or speeds up meets both.
        let (mut single, mut grouped) = (0.0_f64, 0.0_f64);
        for _ in 0..2 {
            single = single.max(rate(&alone, rows).await?);
            grouped = grouped.max(rate(&shared, rows).await?);
        }
        let named = |what| format!("commit: {what}, {rows:?}").to_lowercase();
        report.note(&named("one fsync per transaction"), single, "tx/s");
        report.note(&named("shared commits"), grouped, "tx/s");
        match rows {
            Rows::Appended => {
                let goal = Goal::AtLeast(20.0);
                report.goal(&named("shared / alone"), grouped / single, "×", goal);
            }
            Rows::Scattered => report.note(&named("shared / alone"), grouped / single, "×"),
        }
    }
    Ok(())
}

async fn rate(config: &DatabaseConfig, rows: Rows) -> Result<f64> {
    let place = Database::sqlite()?;
    let db = place.open_with(config, falaj_base::Clock::System).await?;
    db.migrate(&[("bench", MIGRATIONS)]).await?;
    let began = Instant::now();
    // A task each, as the requests of a server are.
    let clients =
        (0..CLIENTS).map(|client| tokio::spawn(write(db.clone(), client, rows, began + RUN)));
    let counts: Result<Vec<usize>> = try_join_all(clients).await?.into_iter().collect();
    Ok(per_second(counts?.into_iter().sum(), began.elapsed()))
}

async fn write(db: Db, client: usize, rows: Rows, until: Instant) -> Result<usize> {
    let client = u32::try_from(client)?;
    let mut number = 0;
    while Instant::now() < until {
        let id = Uuid::now_v7().as_bytes().to_vec();
        let value = "a value of some fifty bytes, like a small parameter";
        let write = move |tx: &mut Tx<'_>| match rows {
            Rows::Appended => {
                let text = "INSERT INTO appended (id, value) VALUES ($1, $2)";
                tx.execute(text, &params![id, value])
            }
            Rows::Scattered => {
                let text = "INSERT INTO scattered (client, id, value) VALUES ($1, $2, $3)";
                tx.execute(text, &params![client, id, value])
            }
        };
        db.write(write).await?;
        number += 1;
    }
    Ok(number)
}

#[allow(clippy::cast_precision_loss, reason = "counts of a few seconds are far below 2^52")]
pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
