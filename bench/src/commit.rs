//! Durable small transactions: sharing commits against one fsync each.

use std::time::{Duration, Instant};

use anyhow::Result;
use falaj_store::db::{DatabaseConfig, Db, Migration, params};
use falaj_testkit::database::Database;
use futures::future::try_join_all;

use crate::report::{Goal, Report};

const CLIENTS: usize = 64;
const RUN: Duration = Duration::from_secs(4);

static MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "bench",
    sql:
        "CREATE TABLE bench (client INTEGER NOT NULL, number INTEGER NOT NULL, value TEXT NOT NULL,
              PRIMARY KEY (client, number));",
}];

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let shared = DatabaseConfig::default();
    let alone = DatabaseConfig { write_batch: 1, ..DatabaseConfig::default() };
    // Twice in turns, so that a disk that slows down or speeds up meets both.
    let (mut single, mut grouped) = (0.0_f64, 0.0_f64);
    for _ in 0..2 {
        single = single.max(rate(&alone).await?);
        grouped = grouped.max(rate(&shared).await?);
    }
    report.note("commit: one fsync per transaction, 64 clients", single, "tx/s");
    report.note("commit: shared commits, 64 clients", grouped, "tx/s");
    report.goal("commit: shared / alone", grouped / single, "×", Goal::AtLeast(20.0));
    Ok(())
}

async fn rate(config: &DatabaseConfig) -> Result<f64> {
    let place = Database::sqlite()?;
    let db = place.open_with(config, falaj_base::Clock::System).await?;
    db.migrate(&[("bench", MIGRATIONS)]).await?;
    let began = Instant::now();
    // A task each, as the requests of a server are.
    let clients = (0..CLIENTS).map(|client| tokio::spawn(write(db.clone(), client, began + RUN)));
    let counts: Result<Vec<usize>> = try_join_all(clients).await?.into_iter().collect();
    Ok(per_second(counts?.into_iter().sum(), began.elapsed()))
}

async fn write(db: Db, client: usize, until: Instant) -> Result<usize> {
    let mut number = 0;
    while Instant::now() < until {
        let (client, at) = (u32::try_from(client)?, u32::try_from(number)?);
        db.write(move |tx| {
            tx.execute(
                "INSERT INTO bench (client, number, value) VALUES ($1, $2, $3)",
                &params![client, at, "a value of some fifty bytes, like a small parameter"],
            )
        })
        .await?;
        number += 1;
    }
    Ok(number)
}

#[allow(clippy::cast_precision_loss, reason = "counts of a few seconds are far below 2^52")]
pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
