//! The one who writes: gathers what was offered and puts files into the object store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use falaj_base::{Ctx, Error, ErrorKind, Result};
use falaj_store::db::{Db, Tx};
use falaj_store::objects::{Expected, Objects};
use falaj_store::record::Change;
use futures::stream;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::actions::PREDICTION_KEEP;
use super::config::PredictionsConfig;
use super::file::{self, Made};
use super::gathered::{Gathered, Gathering};
use super::log::{Entry, Shared, Taken};
use super::prediction::Home;
use super::store::{self, File};

const NAME: &str = "prediction-log";

/// How often a file is tried, and how long the first pause is.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);

/// Writes until every [`super::Log`] is gone, and what is left then.
pub(super) async fn run(mut taken: Taken, config: PredictionsConfig, db: Db, objects: Objects) {
    let shared = taken.shared.clone();
    let keeper = Keeper { db, objects, shared: shared.clone() };
    let mut gathered = Gathered::new(&config);
    let mut writes = Writes { keeper, running: JoinSet::new(), most: config.writers.max(1) };
    loop {
        let due = gathered.due(shared.oldest());
        let wait = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            order = taken.orders.recv() => {
                writes.gather(&mut gathered, shared.collect_all()).await;
                writes.start(gathered.take_all()).await;
                writes.end().await;
                match order {
                    Some(done) => drop(done.send(())),
                    None => return,
                }
            }
            () = wait => {
                writes.gather(&mut gathered, shared.collect_all()).await;
                writes.start(gathered.take_due(Instant::now())).await;
            }
            () = shared.news() => writes.gather(&mut gathered, shared.collect()).await,
        }
        writes.tidy();
    }
}

/// The files that are being written.
struct Writes {
    keeper: Keeper,
    running: JoinSet<()>,
    most: usize,
}

impl Writes {
    /// Adds sheets, and begins to write the files that are ready by that.
    async fn gather(&mut self, gathered: &mut Gathered, entries: Vec<Entry>) {
        for entry in entries {
            self.start(gathered.add(entry)).await;
        }
    }

    /// Begins to write files; waits while as many as may be are being written. Meanwhile what is
    /// offered fills the queue, and then is refused: that is where the memory ends.
    async fn start(&mut self, files: Vec<Gathering>) {
        for file in files {
            while self.running.len() >= self.most {
                self.running.join_next().await;
            }
            let keeper = self.keeper.clone();
            self.running.spawn(async move { keeper.keep(file).await });
        }
    }

    fn tidy(&mut self) {
        while self.running.try_join_next().is_some() {}
    }

    async fn end(&mut self) {
        while self.running.join_next().await.is_some() {}
    }
}

#[derive(Clone)]
struct Keeper {
    db: Db,
    objects: Objects,
    shared: Arc<Shared>,
}

impl Keeper {
    async fn keep(&self, file: Gathering) {
        let (home, rows) = (file.home().clone(), file.rows() as u64);
        let kept = self.write(file).await;
        let counted = match kept {
            Ok(()) => {
                self.shared.files.fetch_add(1, Ordering::Relaxed);
                &self.shared.written
            }
            Err(error) => {
                let (endpoint, error) = (home.endpoint, error.chain());
                tracing::warn!(%endpoint, rows, error, "predictions could not be kept");
                &self.shared.lost
            }
        };
        counted.fetch_add(rows, Ordering::Relaxed);
    }

    async fn write(&self, file: Gathering) -> Result<()> {
        let home = file.home().clone();
        let made = tokio::task::spawn_blocking(move || {
            let (sheets, held) = file.into_sheets();
            let made = file::made(sheets);
            drop(held);
            made
        });
        let made = made.await.map_err(Error::internal)??;
        let mut pause = PAUSE;
        for _ in 1..TRIES {
            match self.put(&home, &made).await {
                Err(error) if passes(error.kind()) => {
                    let error = error.chain();
                    tracing::info!(endpoint = %home.endpoint, error, "will try to keep them again");
                }
                done => return done,
            }
            sleep(pause).await;
            pause *= 4;
        }
        self.put(&home, &made).await
    }

    async fn put(&self, home: &Arc<Home>, made: &Made) -> Result<()> {
        let ctx = Ctx::system(NAME);
        ctx.authorize(&PREDICTION_KEEP, &home.resource).await?;
        let size = made.content.len() as u64;
        let content = stream::iter([Ok(made.content.clone())]);
        let expected = Expected { size: Some(size), sha256: None };
        let staged = self.objects.upload(home.tenant, &home.zone, content, expected).await?;
        let staged_blob = staged.blob;
        let (home, rows) = (home.clone(), made.rows);
        let (from, to) = (made.first, made.last);
        let attached = self.db.write(move |tx: &mut Tx<'_>| {
            let id = Uuid::now_v7();
            let blob = Objects::attach(tx, &staged, store::CLAIM, &id.to_string())?;
            let file = File { id, from, to, rows: rows as u64, size, blob };
            store::insert(tx, home.project, home.tenant, home.endpoint, &file)?;
            let told = json!({ "file": id.to_string(), "from": from, "to": to, "rows": rows, "size": size });
            let change = Change::new(&PREDICTION_KEEP, &home.resource)
                .event("predictions.kept", &told)
                .detail("file", id)
                .detail("rows", rows);
            tx.record(&ctx, change)
        });
        let attached = attached.await;
        if attached.is_err() {
            self.objects.discard(staged_blob).await;
        }
        attached
    }
}

/// Whether another try may end otherwise.
fn passes(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable
            | ErrorKind::Timeout
            | ErrorKind::Conflict
            | ErrorKind::StorageFull
            | ErrorKind::Internal
    )
}
