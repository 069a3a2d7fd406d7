//! Looking at every strategy that is at work, and doing what follows.

use std::time::Duration;

use falaj_base::{Ctx, Error, Name, ProjectId, Result, code};
use falaj_store::db::Tx;
use falaj_store::worker::Worker;

use super::mark::round_of;
use super::record::{Move, Record};
use super::store::{self, Kept};
use crate::endpoint::{Act, Endpoint, Spec, store as endpoints};
use crate::{ENDPOINT_WRITE, Serving, chance};

const NAME: &str = "endpoint-judge";
const EVERY: Duration = Duration::from_secs(1);

pub(crate) fn judge(serving: &Serving) -> Worker {
    let serving = serving.clone();
    Worker::new(NAME, EVERY, move || {
        let serving = serving.clone();
        async move { serving.judge_traffic().await }
    })
}

impl Serving {
    /// Looks at every endpoint with a strategy. One that fails does not hold up others.
    pub async fn judge_traffic(&self) -> Result<()> {
        for (project, name) in self.db().read(store::judged).await? {
            if let Err(error) = self.judge_one(project, &name).await {
                tracing::warn!(endpoint = name, error = error.chain(), "cannot judge its traffic");
            }
        }
        Ok(())
    }

    async fn judge_one(&self, project: ProjectId, name: &str) -> Result<()> {
        let wanted = name.to_owned();
        let read = move |tx: &mut Tx<'_>| {
            let Some(endpoint) = endpoints::find(tx, project, &wanted)? else { return Ok(None) };
            let kept = store::find(tx, endpoint.id)?;
            Ok(kept.map(|kept| (endpoint, kept)))
        };
        let Some((endpoint, mut kept)) = self.db().read(read).await? else { return Ok(()) };
        let before = kept.record.progress.clone();
        if next(&endpoint, &mut kept, self.db().now()) == Move::Stay {
            // When a bandit was looked at last is kept, so that it is not looked at every second.
            if kept.record.progress != before {
                let of = (project, endpoint.clone());
                self.db().write(move |tx| looked_at(tx, &of)).await?;
            }
            return Ok(());
        }
        let ctx = Ctx::system(NAME);
        let project = self.registry().tenancy().project_by_id(&ctx, project).await?;
        ctx.authorize(&ENDPOINT_WRITE, &endpoint.resource(&project)).await?;
        let project_id = project.id;
        let change = move |tx: &mut Tx<'_>, old: Option<Endpoint>, act: &mut Act| {
            let gone = || Error::not_found("endpoint", &act.name);
            let old = old.ok_or_else(gone)?;
            let mut kept = store::hold(tx, old.id)?.ok_or_else(gone)?;
            let next = next(&old, &mut kept, act.now);
            if next == Move::Stay {
                return Err(Error::new(&code::CHANGED, "another server was faster"));
            }
            store::put(tx, (project_id, old.id, old.name.as_str()), &kept, act.now)?;
            Ok(moved(old, next, act))
        };
        let (name, event) = (endpoint.name, "endpoint.judged");
        match self.change_endpoint(&ctx, &project, name, event, None, change).await {
            Err(error) if *error.code() == code::CHANGED => Ok(()),
            done => done.map(drop),
        }
    }
}

/// Notes that nothing followed.
fn looked_at(tx: &mut Tx<'_>, (project, endpoint): &(ProjectId, Endpoint)) -> Result<()> {
    let Some(mut kept) = store::hold(tx, endpoint.id)? else { return Ok(()) };
    let now = tx.now();
    if next(endpoint, &mut kept, now) == Move::Stay {
        store::put(tx, (*project, endpoint.id, endpoint.name.as_str()), &kept, now)?;
    }
    Ok(())
}

/// What follows for an endpoint; nothing while it is paused or its record is of another round.
fn next(endpoint: &Endpoint, kept: &mut Kept, now: falaj_base::Timestamp) -> Move {
    let Some(strategy) = &endpoint.spec.strategy else { return Move::Stay };
    if endpoint.paused || kept.round != round_of(endpoint) {
        return Move::Stay;
    }
    let weights = endpoint.spec.weights();
    let shares: Vec<(Name, f64)> = endpoint
        .running
        .iter()
        .filter_map(|running| Some((running.variant.clone(), running.share?)))
        .collect();
    kept.record.judge(strategy, &shares, &weights, now, &mut chance::bits)
}

/// The endpoint after a decision.
fn moved(old: Endpoint, next: Move, act: &mut Act) -> Endpoint {
    let (event, why) = match &next {
        Move::Stay => return old,
        Move::Tell { event, why }
        | Move::Share { event, why, .. }
        | Move::End { event, why, .. } => (*event, why.clone()),
    };
    act.tell(event, why);
    let by = act.by().to_owned();
    let mut endpoint = Endpoint { updated_at: act.now, updated_by: by, ..old };
    match next {
        Move::Stay | Move::Tell { .. } => {}
        Move::Share { shares, .. } => {
            for running in &mut endpoint.running {
                running.share =
                    shares.iter().find(|(name, _)| *name == running.variant).map(|(_, s)| *s);
            }
        }
        Move::End { left, .. } => {
            let stays = |name: &Name| left.contains(name);
            let Spec { variants, .. } = &mut endpoint.spec;
            variants.retain(|variant| stays(&variant.name) || variant.shadow.is_some());
            endpoint.spec.strategy = None;
            // A weight of nothing alone would leave nobody to answer.
            if endpoint.spec.weights().iter().all(|(_, weight)| *weight <= 0.0) {
                for variant in &mut endpoint.spec.variants {
                    variant.weight = 1.0;
                }
            }
            let kept: Vec<Name> =
                endpoint.spec.variants.iter().map(|variant| variant.name.clone()).collect();
            endpoint.running.retain(|running| kept.contains(&running.variant));
            endpoint.revision += 1;
        }
    }
    endpoint
}

/// Begins a new record if what runs is not what ran, and sets the shares to begin with.
pub(crate) fn begin(
    tx: &mut Tx<'_>,
    project: ProjectId,
    before: Option<i64>,
    endpoint: &mut Endpoint,
) -> Result<()> {
    let round = round_of(endpoint);
    if before == Some(round) {
        return Ok(());
    }
    let old = store::hold(tx, endpoint.id)?;
    for running in &mut endpoint.running {
        running.share = None;
    }
    if old.is_none() && !endpoint.spec.watches() {
        return Ok(());
    }
    let decided = old.and_then(|old| old.record.decided);
    let (strategy, weights) = (endpoint.spec.strategy.as_ref(), endpoint.spec.weights());
    let (record, shares) = Record::begin(strategy, &weights, tx.now(), decided)?;
    for (name, share) in shares.unwrap_or_default() {
        for running in endpoint.running.iter_mut().filter(|running| running.variant == name) {
            running.share = Some(share);
        }
    }
    let now = tx.now();
    let of = (project, endpoint.id, endpoint.name.as_str());
    store::put(tx, of, &Kept { round, record }, now)
}
