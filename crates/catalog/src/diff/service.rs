//! The verb, and comparisons under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use aws_lc_rs::rand;
use falaj_base::{Ctx, Error, Result, code};
use falaj_governance::tenancy::Project;
use falaj_tables::Table;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use super::compare::{Compare, Side, check_key};
use super::{Answer, Diff, State, column_changes};
use crate::version::{Opened, VersionFile, Which};
use crate::{Datasets, blocking};

/// How many comparisons are remembered.
const REMEMBERED: usize = 64;
/// Rows of each kind that are shown at most.
const MAX_SAMPLES: usize = 100;

/// Which versions are compared, and how.
#[derive(Clone, Debug)]
pub struct DiffWanted {
    /// The one before `to` if absent.
    pub from: Option<Which>,
    pub to: Which,
    /// The columns that tell rows apart; those of the dataset if absent, none if empty.
    pub key: Option<Vec<String>>,
    /// How many rows of each kind are shown.
    pub samples: usize,
}

/// Two digests of versions, and how they are compared.
type Question = (String, String, Vec<String>, usize);

/// What became of a comparison; an error is told to everybody who asks.
type Outcome = Option<Result<Arc<Diff>, Arc<Error>>>;

/// Comparisons that are made, and those that were.
#[derive(Debug)]
pub(crate) struct Diffs {
    known: Mutex<HashMap<Question, watch::Receiver<Outcome>>>,
    turns: Arc<Semaphore>,
    /// As many as may be made, and as many as may wait.
    places: Arc<Semaphore>,
}

impl Diffs {
    pub(crate) fn new(at_once: usize) -> Self {
        Self {
            known: Mutex::default(),
            turns: Arc::new(Semaphore::new(at_once)),
            places: Arc::new(Semaphore::new(2 * at_once)),
        }
    }
}

/// Ends the work of a thread whose future is no longer there.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The files of a version, opened one after the other from a thread that may block.
struct Files {
    datasets: Datasets,
    project: Project,
    runtime: Handle,
    parts: Vec<VersionFile>,
}

impl Side for Files {
    fn files(&self) -> usize {
        self.parts.len()
    }

    fn open(&self, file: usize) -> Result<Table> {
        self.runtime.block_on(self.datasets.table(&self.project, &self.parts[file]))
    }
}

impl Datasets {
    /// Compares two versions of a dataset.
    pub async fn diff(
        &self,
        ctx: &Ctx,
        project: &Project,
        name: &str,
        wanted: DiffWanted,
    ) -> Result<Answer> {
        if wanted.samples > MAX_SAMPLES {
            return Err(Error::invalid("samples", wanted.samples, format!("0 to {MAX_SAMPLES}")));
        }
        let newer = self.open(ctx, project, name, wanted.to).await?;
        let from = wanted.from.unwrap_or(Which::Number((newer.version.version - 1).max(1)));
        let older = self.open(ctx, project, name, from).await?;
        let key = wanted.key.unwrap_or_else(|| newer.dataset.about.key.clone());
        let compared: Vec<String> = older
            .version
            .columns
            .iter()
            .filter(|it| newer.version.columns.iter().any(|other| other.name == it.name))
            .map(|it| it.name.clone())
            .collect();
        if compared.is_empty() {
            return Err(Error::invalid(
                "to",
                newer.version.version,
                "versions with a column in common",
            ));
        }
        check_key(&key, &compared)?;
        let question = (
            older.version.digest.clone(),
            newer.version.digest.clone(),
            key.clone(),
            wanted.samples,
        );
        let numbers = (older.version.version, newer.version.version);
        let mut outcome = self.asked(project, question, (older, newer), (key, compared))?;
        let patience = self.config().diff_wait.get();
        let found = tokio::time::timeout(patience, outcome.wait_for(Option::is_some)).await;
        let found = match found {
            Err(_) => return Ok(Answer { state: State::Running, diff: None }),
            Ok(found) => found.map_err(Error::internal)?.clone(),
        };
        match found {
            Some(Ok(diff)) => {
                // Equal contents may have other numbers than those that were compared first.
                let diff = Diff { from: numbers.0, to: numbers.1, ..Diff::clone(&diff) };
                Ok(Answer { state: State::Ready, diff: Some(diff) })
            }
            Some(Err(error)) => Err(Error::new(error.code(), error.message()).caused_by(error)),
            None => Err(Error::internal("a comparison without an outcome")),
        }
    }

    /// The outcome of a comparison that is made already, or is made from now on.
    fn asked(
        &self,
        project: &Project,
        question: Question,
        (older, newer): (Opened, Opened),
        (key, compared): (Vec<String>, Vec<String>),
    ) -> Result<watch::Receiver<Outcome>> {
        let mut known = self.diffs().known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = known.get(&question) {
            let failed = matches!(*outcome.borrow(), Some(Err(_)));
            // What failed may succeed now; what nobody works on any more never ends.
            if !failed && (outcome.borrow().is_some() || outcome.has_changed().is_ok()) {
                return Ok(outcome.clone());
            }
        }
        let place = self.diffs().places.clone().try_acquire_owned().map_err(|_| {
            let text = "as many comparisons are made or wait as may be (`datasets.diffs_at_once`)";
            Error::new(&code::OVERLOADED, text)
        })?;
        let (tell, outcome) = watch::channel(None);
        if known.len() >= REMEMBERED {
            known.retain(|_, outcome| outcome.borrow().is_none());
        }
        known.insert(question.clone(), outcome.clone());
        drop(known);
        let (datasets, project) = (self.clone(), project.clone());
        let samples = question.3;
        tokio::spawn(async move {
            let _place = place;
            let made = datasets.made(&project, (older, newer), (key, compared), samples).await;
            if let Err(error) = &made {
                tracing::info!(error = error.chain(), "a comparison of versions failed");
            }
            tell.send_replace(Some(made.map(Arc::new).map_err(Arc::new)));
        });
        Ok(outcome)
    }

    async fn made(
        &self,
        project: &Project,
        (older, newer): (Opened, Opened),
        (key, compared): (Vec<String>, Vec<String>),
        samples: usize,
    ) -> Result<Diff> {
        let turns = self.diffs().turns.clone();
        let _turn = turns.acquire_owned().await.map_err(Error::internal)?;
        let columns = column_changes(&older.version.columns, &newer.version.columns);
        let (mut left, mut right) = (older.files, newer.files);
        let mut same = 0;
        if key.is_empty() || older.version.digest == newer.version.digest {
            // Files that both have cancel each other out: their rows need not be read.
            let common: Vec<String> = left
                .iter()
                .filter(|file| right.iter().any(|other| other.sha256 == file.sha256))
                .map(|file| file.sha256.clone())
                .collect();
            same = left.iter().filter(|it| common.contains(&it.sha256)).map(|it| it.rows).sum();
            left.retain(|file| !common.contains(&file.sha256));
            right.retain(|file| !common.contains(&file.sha256));
        }
        let side = |parts| Files {
            datasets: self.clone(),
            project: project.clone(),
            runtime: Handle::current(),
            parts,
        };
        let (left, right) = (side(left), side(right));
        let mut secret = [0; 32];
        rand::fill(&mut secret).map_err(|_| Error::internal("no randomness"))?;
        let stopped = Arc::new(AtomicBool::new(false));
        let _guard = StopOnDrop(stopped.clone());
        let deadline = Instant::now() + self.config().diff_time.get();
        let (folder, memory) = (self.folder().to_owned(), self.config().diff_memory.as_usize());
        let spill = self.config().diff_spill.bytes();
        let keyed = key.clone();
        let names = compared.clone();
        let found = blocking(move || {
            let go_on = || {
                if stopped.load(Ordering::Relaxed) {
                    return Err(Error::new(&code::SHUTTING_DOWN, "the server is stopping"));
                }
                if Instant::now() > deadline {
                    let text = "the comparison took too long (`datasets.diff_time`)";
                    return Err(Error::new(&code::TOO_LARGE, text));
                }
                Ok(())
            };
            let compare = Compare {
                older: &left,
                newer: &right,
                columns: names,
                key: keyed,
                samples,
                folder,
                memory,
                spill,
                secret,
                go_on: &go_on,
            };
            compare.run()
        });
        let mut found = found.await?;
        found.rows.unchanged += same;
        Ok(Diff {
            from: older.version.version,
            to: newer.version.version,
            duplicate_keys: (found.duplicates != super::Duplicates::default())
                .then_some(found.duplicates),
            key,
            columns,
            compared,
            rows_before: older.version.rows,
            rows_after: newer.version.rows,
            rows: found.rows,
            samples: found.samples,
        })
    }
}
