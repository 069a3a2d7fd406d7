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
use super::log::{Shared, Taken};
use super::prediction::Home;
use super::store::{self, File};

const NAME: &str = "prediction-log";

/// How often a file is tried, and how long the first pause is.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);

/// How many predictions are looked at at a time, and how long the rest is left alone after fewer
/// came: to be woken for each would cost those who predict more than the keeping itself.
const AT_ONCE: usize = 256;
const REST: Duration = Duration::from_millis(5);

/// Writes until every [`super::Log`] is gone, and what is left then.
pub(super) async fn run(mut taken: Taken, config: PredictionsConfig, db: Db, objects: Objects) {
    let keeper = Keeper { db, objects, shared: taken.shared.clone() };
    let mut gathered = Gathered::new(&config);
    let mut writes = Writes { keeper, running: JoinSet::new(), most: config.writers.max(1) };
    // Where few may wait there is no time to rest.
    let rests = config.max_waiting >= 8 * AT_ONCE;
    let mut some = Vec::with_capacity(AT_ONCE);
    loop {
        let due = gathered.next_due();
        let wait = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(done) = taken.orders.recv() => {
                while let Ok(entry) = taken.entries.try_recv() {
                    writes.start(gathered.add(entry, Instant::now())).await;
                }
                writes.start(gathered.take_all()).await;
                writes.end().await;
                let _ = done.send(());
            }
            () = wait => writes.start(gathered.take_due(Instant::now())).await,
            count = taken.entries.recv_many(&mut some, AT_ONCE) => {
                if count == 0 {
                    break;
                }
                let now = Instant::now();
                for entry in some.drain(..) {
                    writes.start(gathered.add(entry, now)).await;
                }
                if rests && count < AT_ONCE {
                    sleep(REST).await;
                }
            }
        }
        writes.tidy();
    }
    writes.start(gathered.take_all()).await;
    writes.end().await;
}

/// The files that are being written.
struct Writes {
    keeper: Keeper,
    running: JoinSet<()>,
    most: usize,
}

impl Writes {
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
        let (home, rows) = (file.home.clone(), file.predictions.len() as u64);
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
        let home = file.home.clone();
        let made = tokio::task::spawn_blocking(move || {
            let made = file::made(&file.signature, &file.predictions);
            file.released();
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
