//! Decides when a run is compacted, and does it in the background.
//!
//! Must hold:
//! - Logging only counts; it never waits for a compaction.
//! - One run per transaction, and few rows at once: writers are never held up for long.
//! - The counts are a hint. They are lost with the process, and cleared when there are too many;
//!   a sweep through the log finds what they missed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use falaj_base::{Result, Timestamp, code};
use falaj_store::db::{Db, Tx, Value};
use falaj_store::worker::Worker;
use tokio::sync::Notify;

use super::compact::{OPEN_CHUNKS, compact};
use super::config::CompactionConfig;
use super::store::Appended;
use crate::run::{RunId, touch};

/// A run that logs many metrics waits until there are this many points of each: chunks of a few
/// points would be no better than the log.
const POINTS_PER_KEY: usize = 64;
/// How many rows make a run due, on SQLite and on PostgreSQL, unless the configuration says so.
const ROWS: (usize, usize) = (32, 256);
/// How many rows a sweep looks at in one transaction.
const SWEEP_ROWS: usize = 10_000;
/// The tables that it looks through.
const LOG: &str = "metric_log";
const CHANGES: &str = "run_touch";

/// Counts what is logged and compacts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Compactor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: CompactionConfig,
    /// How many rows make a run due.
    rows: usize,
    db: Db,
    state: Mutex<State>,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    backlogs: HashMap<RunId, Backlog>,
    due: BTreeSet<RunId>,
    /// The last change of runs that were compacted by then; no more of them than are watched.
    settled: HashMap<RunId, i64>,
    /// When all runs were looked through; absent if that is wanted now.
    swept: Option<Timestamp>,
}

/// What has been logged to a run since it was last compacted.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    rows: usize,
    points: usize,
    /// Of the widest row.
    keys: usize,
    /// Requests that made chunks at once.
    direct: usize,
}

impl Backlog {
    fn add(&mut self, appended: Appended) {
        self.rows += appended.rows;
        self.points += appended.points;
        self.keys = self.keys.max(appended.keys);
        self.direct += usize::from(appended.chunks > 0);
    }

    fn is_due(&self, rows: usize, config: &CompactionConfig) -> bool {
        self.rows >= rows
            || self.points >= config.points.max(self.keys * POINTS_PER_KEY)
            || self.direct > 2 * OPEN_CHUNKS
    }
}

impl Compactor {
    #[must_use]
    pub fn new(config: CompactionConfig, db: Db) -> Self {
        let (state, wake) = (Mutex::default(), Arc::default());
        let usual = if db.engine_name() == "sqlite" { ROWS.0 } else { ROWS.1 };
        let rows = config.rows.unwrap_or(usual);
        Self(Arc::new(Inner { config, rows, db, state, wake }))
    }

    /// To be called after the commit of what was appended.
    pub fn note(&self, run: RunId, appended: Appended) {
        let mut state = self.state();
        let backlog = state.backlogs.entry(run).or_default();
        backlog.add(appended);
        if backlog.is_due(self.0.rows, &self.0.config) {
            state.backlogs.remove(&run);
            state.due.insert(run);
            self.0.wake.notify_one();
        }
        if state.backlogs.len() + state.due.len() > self.0.config.runs {
            // Start over, and let the sweep find what was forgotten.
            *state = State::default();
        }
    }

    /// The background work: woken when a run is due, and from time to time for the sweep.
    #[must_use]
    pub fn worker(&self) -> Worker {
        let this = self.clone();
        let every = self.0.config.sweep_every.get();
        Worker::new("metric-compaction", every, move || {
            let this = this.clone();
            async move { this.run().await }
        })
        .woken_by(self.0.wake.clone())
        // Each server counts for itself; two that compact the same run take turns.
        .on_every_server()
    }

    /// Compacts what is due; also looks through all runs, if it is time.
    pub async fn run(&self) -> Result<()> {
        self.compact_due().await?;
        let (now, every) = (self.0.db.now(), self.0.config.sweep_every.get());
        if self.state().swept.is_none_or(|last| last + every <= now) {
            // Noted first: if the counts are cleared meanwhile, another sweep follows.
            self.state().swept = Some(now);
            let swept = self.sweep().await;
            if swept.is_err() {
                self.state().swept = None;
            }
            swept?;
        }
        Ok(())
    }

    async fn compact_due(&self) -> Result<()> {
        loop {
            let Some(run) = self.state().due.pop_first() else { return Ok(()) };
            match self.compact_run(run).await {
                Ok(()) => {}
                Err(error) if error.code() == &code::INTEGRITY => {
                    // Its log stays as it is; the other runs must not suffer.
                    tracing::error!(%run, error = error.chain(), "points of a run are damaged");
                }
                Err(error) => {
                    self.state().due.insert(run);
                    return Err(error);
                }
            }
        }
    }

    async fn compact_run(&self, run: RunId) -> Result<()> {
        loop {
            let since = self.state().settled.get(&run).copied();
            let done = self.0.db.write(move |tx| compact(tx, run, since)).await?;
            let mut state = self.state();
            if state.settled.len() >= self.0.config.runs {
                state.settled.clear();
            }
            match done.settled {
                Some(last) => state.settled.insert(run, last),
                None => state.settled.remove(&run),
            };
            if !done.more {
                return Ok(());
            }
        }
    }

    /// Goes through the whole log, a page of rows at a time.
    async fn sweep(&self) -> Result<()> {
        let enough = self.0.rows;
        let mut after = None;
        loop {
            let page = self.0.db.read(move |tx| backlogs(tx, LOG, after)).await?;
            let due = page.runs.iter().filter(|(_, rows)| *rows >= enough).map(|(run, _)| *run);
            self.state().due.extend(due);
            self.compact_due().await?;
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        self.sweep_changes(enough).await
    }

    /// Compaction forgets the changes of runs that log metrics; this finds those that do not.
    async fn sweep_changes(&self, enough: usize) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.0.db.read(move |tx| backlogs(tx, CHANGES, after)).await?;
            for (run, _) in page.runs.iter().filter(|(_, rows)| *rows >= enough).copied() {
                self.0.db.write(move |tx| touch::settle(tx, run, None, None)).await?;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs and how many log rows each has.
struct Backlogs {
    runs: Vec<(RunId, usize)>,
    /// The run to go on after, unless that was all.
    next: Option<RunId>,
}

fn backlogs(tx: &mut Tx<'_>, table: &str, after: Option<RunId>) -> Result<Backlogs> {
    // No run has an empty id, and it sorts before all.
    let after = after.map_or(Value::Blob(Vec::new()), Value::from);
    let sql = format!(
        "SELECT run, COUNT(*) AS backlog FROM
             (SELECT run FROM {table} WHERE run > $1 ORDER BY run LIMIT $2) AS page
         GROUP BY run ORDER BY run"
    );
    let rows = tx.query(&sql, &[after, SWEEP_ROWS.into()])?;
    let mut runs = rows
        .iter()
        .map(|row| Ok((row.get("run")?, row.get("backlog")?)))
        .collect::<Result<Vec<(RunId, usize)>>>()?;
    let seen: usize = runs.iter().map(|(_, rows)| rows).sum();
    if seen < SWEEP_ROWS {
        return Ok(Backlogs { runs, next: None });
    }
    // The page was full: its last run may go on beyond it, and is counted on the next one. Unless
    // it fills the page alone, which is a backlog however long it goes on.
    if runs.len() > 1 {
        runs.pop();
    }
    let next = runs.last().map(|(run, _)| *run);
    Ok(Backlogs { runs, next })
}
