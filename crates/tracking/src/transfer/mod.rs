//! Bringing experiments, runs and models in from another store, and comparing what is here with it.
//!
//! Whoever moves reads the other store and sends what it holds in bounded batches: this server
//! opens no path and no address that a caller names.
//!
//! Must hold:
//! - Things keep the ids, times and stages they had. What is here already and did not come from the
//!   same source is left alone: it is refused unless it is the same, never overwritten or mixed.
//! - Everything can be sent again: the second time changes nothing, and what has grown since is
//!   added. A move that broke off is simply run again.
//! - Whoever brings something is allowed to in the project, and in every experiment that a batch
//!   touches. Each batch is on record with the ids it brought.
//!
//! There are two [`Way`]s: an import takes a whole store over; a sync adds what was logged while the
//! server was out of reach.
//!
//! Not here: what other stores look like (`moving`), registered models (`registry`).

mod check;
mod experiments;
mod files;
pub(crate) mod http;
mod identical;
mod logged_models;
mod marks;
mod origin;
mod points;
mod runs;
mod wire;

use falaj_base::{Action, Error, ProjectId, Result, code};
use falaj_mlflow::Call;
use falaj_store::db::Tx;
use falaj_store::record::Change;
use serde_json::json;

use crate::artifact::{climbs, collects_tokens};
use crate::experiment::{Experiment, ExperimentId, Stage, check_active, store};
use crate::{IMPORT, RUN_WRITE, SYNC, Tracking};

pub(crate) use origin::SCHEMA;

/// How many ids one entry of the audit log names.
const NAMED: usize = 100;

/// On whose terms things come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A store is taken over as it is: an operator's decision. The store wins over what was changed
    /// here since.
    Import,
    /// What somebody logged elsewhere is added to what is here: whoever may log may do so.
    /// Experiments are joined by their names, and what was deleted here stays deleted.
    Sync,
}

impl Way {
    fn action(self) -> &'static Action {
        match self {
            Self::Import => &IMPORT,
            Self::Sync => &SYNC,
        }
    }
}

/// Who brings something, on which terms, and from where.
#[derive(Clone, Debug)]
struct Mover {
    call: Call,
    way: Way,
    source: String,
}

impl Mover {
    fn new(call: &Call, way: Way, source: String) -> Result<Self> {
        check_source(&source)?;
        Ok(Self { call: call.clone(), way, source })
    }

    fn project(&self) -> ProjectId {
        self.call.place.id
    }

    /// Puts a batch on record, on the project it went into, in entries that name every id.
    fn record(
        &self,
        tx: &mut Tx<'_>,
        told: Told,
        ids: &[String],
        more: &[(&str, usize)],
    ) -> Result<()> {
        let resource = self.call.place.resource();
        let parts = if ids.is_empty() { vec![ids] } else { ids.chunks(NAMED).collect() };
        for (at, part) in parts.into_iter().enumerate() {
            let mut change = Change::new(self.way.action(), &resource)
                .detail("source", &self.source)
                .detail(told.noun(), part.len())
                .detail("ids", part.join(" "));
            if let Some(event) = told.event().filter(|_| !part.is_empty()) {
                change = change.event(event, &json!({ "source": self.source, "ids": part }));
            }
            // What is not counted by id is told once.
            for (what, count) in more.iter().filter(|_| at == 0) {
                change = change.detail(what, count);
            }
            tx.record(&self.call.ctx, change)?;
        }
        Ok(())
    }
}

/// What a batch brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Experiments,
    Runs,
    Points,
    LoggedModels,
    Settled,
}

impl Told {
    const fn noun(self) -> &'static str {
        match self {
            Self::Experiments => "experiments",
            Self::Runs | Self::Points => "runs",
            Self::LoggedModels => "logged_models",
            Self::Settled => "settled",
        }
    }

    /// Points are told of by nobody, as where they are logged.
    const fn event(self) -> Option<&'static str> {
        match self {
            Self::Experiments => Some("experiment.imported"),
            Self::Runs => Some("run.imported"),
            Self::LoggedModels => Some("logged-model.imported"),
            Self::Points | Self::Settled => None,
        }
    }
}

/// A text, and how long it may be in characters.
fn check_text(field: &str, text: &str, most: usize) -> Result<()> {
    if text.contains('\0') {
        return Err(Error::invalid(field, "(a text with a NUL)", "text without NUL characters"));
    }
    if text.len() > most && text.chars().count() > most {
        let shown: String = text.chars().take(50).collect();
        return Err(Error::invalid(field, shown, format!("at most {most} characters")));
    }
    Ok(())
}

/// Pairs as another store keeps them. Their names need only fit: that store has accepted them.
fn check_pairs(field: &str, pairs: &[(String, String)], most: usize) -> Result<()> {
    check_count(field, pairs.len(), most)?;
    for (key, value) in pairs {
        if key.is_empty() {
            return Err(Error::invalid(field, "", "pairs with a name"));
        }
        check_text(field, key, 500)?;
        check_text(field, value, 1 << 20)?;
    }
    Ok(())
}

/// The name of the store that something comes from.
pub fn check_source(source: &str) -> Result<()> {
    if source.is_empty() {
        return Err(Error::invalid("source", "", "a name for the store that this comes from"));
    }
    check_text("source", source, 200)
}

/// How much may come in one request.
pub fn check_count(field: &str, count: usize, most: usize) -> Result<()> {
    if count > most {
        return Err(Error::invalid(field, count, format!("at most {most} in one request")));
    }
    Ok(())
}

/// Files that stay where they are: a place that only clients reach, and nothing in it climbs.
fn check_location(location: Option<&str>) -> Result<()> {
    let Some(location) = location else { return Ok(()) };
    check_text("artifact_uri", location, 2000)?;
    let local = location.split_once("://").is_none_or(|(scheme, _)| {
        matches!(scheme.to_ascii_lowercase().as_str(), "" | "file" | "mlflow-artifacts")
    });
    if climbs(location) || local || collects_tokens(location) {
        let want = "an address outside of this server, such as s3://bucket/folder";
        return Err(Error::invalid("artifact_uri", location, want));
    }
    Ok(())
}

impl Tracking {
    /// Asks whether the caller may bring something into the project at all.
    async fn may_bring(&self, mover: &Mover) -> Result<()> {
        let call = &mover.call;
        call.ctx.authorize(mover.way.action(), &call.place.resource()).await
    }

    /// The experiment that something goes into. A sync is logging by another way, and needs what
    /// logging needs.
    async fn receiving(&self, mover: &Mover, id: ExperimentId) -> Result<Experiment> {
        if mover.way == Way::Sync {
            self.experiment(&mover.call, id, &RUN_WRITE).await?;
        }
        self.experiment(&mover.call, id, mover.way.action()).await
    }
}

/// Keeps the experiments of a batch as they are until its transaction ends. One in the bin takes
/// only what is in the bin as well.
fn hold_open(
    tx: &mut Tx<'_>,
    project: ProjectId,
    batch: impl Iterator<Item = (ExperimentId, Stage)>,
) -> Result<()> {
    let mut wanted: std::collections::BTreeMap<ExperimentId, bool> =
        std::collections::BTreeMap::new();
    for (id, stage) in batch {
        *wanted.entry(id).or_default() |= stage == Stage::Active;
    }
    // In one order, lest two batches wait for each other.
    for (id, any_active) in wanted {
        let stage = store::stage_for_adding(tx, project, id)?;
        let stage = stage.ok_or_else(|| crate::access::no_experiment(id))?;
        if any_active {
            check_active(id, stage)?;
        }
    }
    Ok(())
}

/// Something with this id is here, and is none of the source's business.
fn not_from(mover: &Mover, field: &'static str, what: &str) -> Error {
    let text = format!(
        "{what} is here already, did not come from the source {:?} and differs from what was sent: \
         it is left as it is",
        mover.source
    );
    Error::new(&code::ALREADY_EXISTS, text).at(field)
}
