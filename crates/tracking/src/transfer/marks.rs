//! What came from a source, and how far: whoever syncs reads only what has changed since.

use falaj_base::{Error, Result, hex};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use uuid::Uuid;

use super::origin::{self, Kind};
use super::wire::{Imported, Marked, Marks, MarksAsked, Settled, StageHere};
use super::{Mover, Told, Way, check_count, check_text};
use crate::access::resource;
use crate::experiment::{ExperimentId, Stage};
use crate::logged_model::{ModelId, store as models};
use crate::run::{RunId, store as runs};
use crate::{IMPORT_CHECK, Tracking};

/// How much one reply tells.
const PAGE: usize = 1000;
/// The longest mark, in characters.
const MAX_MARK: usize = 64;

impl Tracking {
    /// What came from a source into experiments that the caller may see. What was purged is told
    /// as well: its id, and that it is gone.
    pub(super) async fn import_marks(&self, call: &Call, asked: MarksAsked) -> Result<Marks> {
        check_text("source", &asked.source, 200)?;
        let from = place(&asked.after)?;
        call.ctx.filtered(&IMPORT_CHECK);
        let call = call.clone();
        let read = move |tx: &mut Tx<'_>| {
            let project = call.place.id;
            let found = origin::after(tx, project, &asked.source, (from.0, &from.1), PAGE)?;
            let next = found.last().filter(|_| found.len() == PAGE);
            let next = next.map(|last| format!("{}-{}", last.kind as i64, hex(&last.subject)));
            let mut marks = Vec::with_capacity(found.len());
            for came in found {
                let subject = Uuid::from_slice(&came.subject).map_err(Error::internal)?;
                let (id, home) = match came.kind {
                    Kind::Run => {
                        let here = runs::find(tx, RunId(subject))?;
                        let home = here.map(|run| (run.experiment_id, run.stage));
                        (RunId(subject).to_string(), home)
                    }
                    Kind::Model => {
                        let here = models::find(tx, ModelId(subject))?;
                        let home = here.map(|model| (model.experiment_id, model.stage));
                        (ModelId(subject).to_string(), home)
                    }
                };
                let visible = |id: ExperimentId| {
                    call.ctx.allows(&IMPORT_CHECK, &resource(&call.place, id, false))
                };
                let stage = match home {
                    Some((experiment, _)) if !visible(experiment) => continue,
                    Some((_, Stage::Active)) => StageHere::Active,
                    Some((_, Stage::Deleted)) => StageHere::Deleted,
                    None if !call.ctx.allows(&IMPORT_CHECK, &call.place.resource()) => continue,
                    None => StageHere::Gone,
                };
                marks.push(Marked { id, mark: came.mark, stage });
            }
            Ok(Marks { marks, next })
        };
        self.db().read(read).await
    }

    /// Notes that all of something has come, as its source was then.
    pub(super) async fn settle_import(
        &self,
        call: &Call,
        way: Way,
        batch: Settled,
    ) -> Result<Imported> {
        let mover = Mover::new(call, way, batch.source)?;
        let most = self.config().max_import_batch;
        check_count("runs", batch.runs.len(), most)?;
        check_count("logged_models", batch.logged_models.len(), most)?;
        self.may_bring(&mover).await?;
        let (mut ready, mut ids) = (Vec::new(), Vec::new());
        for (run, mark) in batch.runs {
            check_text("mark", &mark, MAX_MARK)?;
            let home = self.receiving_run(&mover, &run).await?;
            ready.push((Kind::Run, home.run.0, mark));
            ids.push(run);
        }
        for (model, mark) in batch.logged_models {
            check_text("mark", &mark, MAX_MARK)?;
            let home = self.receiving_model(&mover, &model).await?;
            ready.push((Kind::Model, home.model.0, mark));
            ids.push(model);
        }
        let write = move |tx: &mut Tx<'_>| {
            tx.lock(&format!("import/{}", mover.project()))?;
            let mut count = 0;
            for (kind, subject, mark) in &ready {
                let of = (*kind, &subject.as_bytes()[..]);
                let ours = origin::settle(tx, of, mover.project(), &mover.source, mark)?;
                count += usize::from(ours);
            }
            mover.record(tx, Told::Settled, &ids, &[])?;
            Ok(Imported { count, left_out: Vec::new() })
        };
        self.db().write(write).await
    }
}

/// Where a page begins: a kind and an id.
fn place(after: &str) -> Result<(i64, Vec<u8>)> {
    if after.is_empty() {
        return Ok((0, Vec::new()));
    }
    let read = || {
        let (kind, id) = after.split_once('-')?;
        let id = Uuid::try_parse(id).ok()?;
        Some((kind.parse::<i64>().ok()?, id.as_bytes().to_vec()))
    };
    let shown = || after.chars().take(64).collect::<String>();
    read().ok_or_else(|| Error::invalid("after", shown(), "`next` of the reply before"))
}
