//! `kill -9` at a random moment, again and again on the same store.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Tally;
use super::check::Checker;
use super::ledger::Ledger;
use super::training::{self, Books};
use super::workload::{self, Stop};
use crate::random::Random;
use crate::sandbox::Setup;

/// After this many deaths a world ends, is looked at as a whole, and a new one begins: the store
/// stays small enough to check, and the first start is part of what is tried.
pub const CYCLES_PER_WORLD: usize = 20;
/// The server dies somewhere within this long after the clients began.
const LONGEST_LIFE: Duration = Duration::from_millis(900);

/// Runs up to [`CYCLES_PER_WORLD`] cycles on one store.
pub async fn world(setup: Setup, cycles: usize, random: &mut Random) -> Result<Tally> {
    let exports = tempfile::tempdir()?;
    let mut server = setup.start().await?;
    let (ledger, mut checker) = (Ledger::default(), Checker::default());
    let books = Books::default();
    let mut total = Tally::default();
    for cycle in 0..cycles.min(CYCLES_PER_WORLD) {
        let client = server.admin()?;
        let stop = Stop::default();
        let life = Duration::from_micros(random.below(u64::try_from(LONGEST_LIFE.as_micros())?));
        let seen = books.count();
        let (mut writing, mut logging) = (random.split(), random.split());
        let killing = async {
            tokio::time::sleep(life).await;
            let killed = server.kill();
            stop.now();
            killed
        };
        let (written, trained, killed) = tokio::join!(
            workload::run(&client, &ledger, &mut writing, cycle, &stop),
            training::run(&client, &books, &mut logging, cycle, &stop),
            killing
        );
        killed?;
        written?;
        trained?;
        let began = Instant::now();
        server.restart().await?;
        let restart = began.elapsed();
        // A new client: the old one's connections belong to the dead process.
        let client = server.admin()?;
        let tally = checker
            .check(&client, &ledger, random, exports.path())
            .await
            .with_context(|| format!("after cycle {cycle} of this world"))?;
        total.add(Tally { restart, ..tally });
        let trained = books.check(&client, seen).await;
        total.add_trained(trained.with_context(|| format!("training, after cycle {cycle}"))?);
    }
    let client = server.admin()?;
    checker.check_all(&client, &ledger).await.context("at the end of the world")?;
    books.check(&client, 0).await.context("training, at the end of the world")?;
    Ok(total)
}
