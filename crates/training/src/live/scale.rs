//! Nodes that come and go, as the one who schedules lives with them: see [`crate::autoscale`].
//!
//! Must hold: what the scheduler knows of a node follows what the database says; a node is taken out
//! only when the scheduler knows of nobody on it, and after it was told to put nobody there.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use falaj_base::{Ctx, Name, Resource, Result, Scope, Timestamp};
use falaj_governance::residency::Residency;
use falaj_scheduler::{Event, JobId as Number, JobSpec, Millis, NodeId, Restored};
use falaj_store::db::{Tx, params};
use falaj_store::record::Change;
use serde_json::json;
use tokio::task::JoinHandle;

use super::memory::{LiveJob, Memory};
use super::told;
use crate::autoscale::NodeState;
use crate::autoscale::burst::{self, Takes, Waits};
use crate::autoscale::node::NodeRow;
use crate::autoscale::plan::{Plan, Slot, Stand, plan};
use crate::autoscale::provider::{self, Provider, Wish, Wished};
use crate::autoscale::store::{self, Scale};
use crate::job::store as jobs;
use crate::job::{State, millis, resource};
use crate::name::{JobId, TaskId};
use crate::{JOB_RUN, NODE_WRITE, Training};

/// How often pools are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// Groups of jobs that a plan looks at.
const DEMAND: usize = 1000;
/// Jobs that go to another pool at a time.
const AT_ONCE: usize = 100;

/// What a provider answered to which generation.
type Telling = JoinHandle<(u64, Result<Option<u64>, String>)>;

#[derive(Debug, Default)]
pub(crate) struct NodeBook {
    /// Nodes that do not stand as those of their pool do without a row.
    rows: HashMap<NodeId, NodeRow>,
    /// What the scheduler was told last.
    known: HashMap<NodeId, NodeState>,
    empty_since: HashMap<NodeId, Millis>,
    scales: HashMap<usize, Scale>,
    /// Since when more nodes of a pool would help somebody.
    wanting: HashMap<usize, Millis>,
    telling: HashMap<usize, Telling>,
    /// The last job that was asked whether it goes to a pool, where there are more than are asked at
    /// a time.
    burst_asked: HashMap<usize, JobId>,
    looked: Option<Timestamp>,
}

impl Training {
    /// Reads which nodes are there, and lets the scheduler know.
    pub(super) async fn read_nodes(&self, memory: &mut Memory) -> Result<()> {
        let names: Vec<String> =
            self.pool_list().list.iter().map(|pool| pool.name.to_string()).collect();
        let read = move |tx: &mut Tx<'_>| {
            let rows = store::all(tx)?;
            let scales = names.iter().map(|name| store::scale(tx, name));
            Ok((rows, scales.collect::<Result<Vec<_>>>()?))
        };
        let (rows, scales) = self.db().read(read).await?;
        memory.nodes.scales = scales.into_iter().enumerate().collect();
        let pools = self.pool_list();
        let placed = |row: NodeRow| {
            let pool = pools.by_name(&row.pool)?;
            Some((pools.node_named(pool, &row.name)?.spec.id, row))
        };
        memory.nodes.rows = rows.into_iter().filter_map(placed).collect();
        self.remember_addresses(memory);
        let now = self.db().now();
        let mut adopted = Vec::new();
        for node in &pools.nodes {
            let id = node.spec.id;
            let state = self.state_of(memory, id);
            let known = memory.nodes.known.get(&id).copied().unwrap_or(NodeState::Up);
            let jobs = memory.scheduler.stands(id).map_or(0, |stands| stands.jobs);
            // Somebody is there, so it is: a pool that had all its nodes became one that scales.
            if matches!(state, NodeState::Away | NodeState::Asked) && known.is_there() && jobs > 0 {
                adopted.push(NodeRow {
                    pool: pools.list[node.pool].name.to_string(),
                    name: node.name.clone(),
                    state: NodeState::Up,
                    address: None,
                    since: now,
                });
                memory.nodes.known.insert(id, NodeState::Up);
                continue;
            }
            memory.nodes.known.insert(id, state);
            if state != known {
                tell_scheduler(memory, id, &node.spec, (known, state), millis(now));
            }
        }
        if !adopted.is_empty() {
            for row in &adopted {
                let found = pools.by_name(&row.pool).and_then(|at| pools.node_named(at, &row.name));
                if let Some(node) = found {
                    memory.nodes.rows.insert(node.spec.id, row.clone());
                }
            }
            let write =
                move |tx: &mut Tx<'_>| adopted.iter().try_for_each(|row| store::put(tx, row));
            self.commit(memory, write).await?;
        }
        Ok(())
    }

    fn remember_addresses(&self, memory: &Memory) {
        let mut all = self.addresses();
        all.clear();
        for (id, row) in &memory.nodes.rows {
            if let (Some(address), Some(node)) = (&row.address, self.pool_list().node(*id)) {
                all.insert((node.pool, row.name.clone()), address.clone());
            }
        }
    }

    fn state_of(&self, memory: &Memory, id: NodeId) -> NodeState {
        let pool = self.pool_list().node(id).map(|node| &self.pool_list().list[node.pool]);
        let otherwise = pool.map_or(NodeState::Up, crate::pool::Pool::without_row);
        memory.nodes.rows.get(&id).map_or(otherwise, |row| row.state)
    }

    /// Looks after nodes that come and go.
    pub(super) async fn scale(&self, memory: &mut Memory) -> Result<()> {
        let now = self.db().now();
        if memory.nodes.looked.is_some_and(|looked| now.since(looked) < EVERY) {
            return Ok(());
        }
        memory.nodes.looked = Some(now);
        self.note_empty(memory, millis(now));
        self.let_leave(memory, now).await?;
        for pool in 0..self.pool_list().list.len() {
            if self.pool_list().list[pool].autoscale.is_none() {
                continue;
            }
            self.hear_provider(memory, pool, now).await?;
            self.plan_pool(memory, pool, now).await?;
            self.tell_provider(memory, pool, now);
            self.take_in_bursting(memory, pool, now).await?;
        }
        Ok(())
    }

    fn note_empty(&self, memory: &mut Memory, now: Millis) {
        for node in &self.pool_list().nodes {
            if self.pool_list().list[node.pool].autoscale.is_none() {
                continue;
            }
            let id = node.spec.id;
            let empty = memory.scheduler.stands(id).is_some_and(|stands| stands.jobs == 0);
            if empty && memory.nodes.known.get(&id) == Some(&NodeState::Up) {
                memory.nodes.empty_since.entry(id).or_insert(now);
            } else {
                memory.nodes.empty_since.remove(&id);
            }
        }
    }

    /// Nodes that are to go and are empty are gone; nodes that were asked for and did not come are not
    /// waited for any more.
    async fn let_leave(&self, memory: &mut Memory, now: Timestamp) -> Result<()> {
        let mut over: Vec<(usize, NodeId, NodeRow)> = Vec::new();
        for (id, row) in &memory.nodes.rows {
            let Some(node) = self.pool_list().node(*id) else { continue };
            let scales = self.pool_list().list[node.pool].autoscale.as_ref();
            let empty = memory.scheduler.stands(*id).is_none_or(|stands| stands.jobs == 0);
            let late = scales.is_some_and(|it| now.since(row.since) >= it.boot.get());
            let goes = match row.state {
                NodeState::Leaving => empty && !flies_there(memory, &row.name, node.pool),
                NodeState::Asked => late,
                // What was on it may not have ended yet, and must not be found on a node that is away.
                NodeState::Gone => {
                    scales.is_some() && empty && !flies_there(memory, &row.name, node.pool)
                }
                _ => false,
            };
            if goes {
                over.push((node.pool, *id, row.clone()));
            }
        }
        for (pool, id, row) in over {
            let scaled = self.pool_list().list[pool].autoscale.is_some();
            let mut scale = memory.nodes.scales.get(&pool).cloned().unwrap_or_default();
            if scaled {
                scale.generation += 1;
                scale.removed.insert(row.name.clone());
            }
            if row.state == NodeState::Leaving {
                scale.last_down = Some(now);
            }
            let (kept, written) = (scale.clone(), row.clone());
            let write = move |tx: &mut Tx<'_>| {
                store::lock(tx, &written.pool)?;
                // Somebody may have said otherwise meanwhile.
                let same =
                    store::find(tx, &written.pool, &written.name)?.as_ref() == Some(&written);
                if !same {
                    return Ok(false);
                }
                if scaled {
                    store::delete(tx, &written.pool, &written.name)?;
                    store::put_scale(tx, &written.pool, &kept)?;
                } else {
                    store::put(tx, &NodeRow { state: NodeState::Gone, ..written })?;
                }
                Ok(true)
            };
            if !self.commit(memory, write).await? {
                continue;
            }
            tracing::info!(
                pool = row.pool,
                node = row.name,
                was = row.state.as_str(),
                "a node went"
            );
            if row.state == NodeState::Asked {
                tracing::warn!(pool = row.pool, node = row.name, "a node did not come in time");
            }
            let after = if scaled { NodeState::Away } else { NodeState::Gone };
            if scaled {
                memory.nodes.rows.remove(&id);
                memory.nodes.scales.insert(pool, scale);
            } else if let Some(kept) = memory.nodes.rows.get_mut(&id) {
                kept.state = after;
            }
            self.stands_now(memory, id, after, millis(now));
        }
        Ok(())
    }

    fn stands_now(&self, memory: &mut Memory, id: NodeId, state: NodeState, now: Millis) {
        let Some(node) = self.pool_list().node(id) else { return };
        let known = memory.nodes.known.insert(id, state).unwrap_or(NodeState::Up);
        if known != state {
            tell_scheduler(memory, id, &node.spec, (known, state), now);
        }
    }

    async fn plan_pool(&self, memory: &mut Memory, pool: usize, now: Timestamp) -> Result<()> {
        let Some(config) = &self.pool_list().list[pool].autoscale else { return Ok(()) };
        let at = millis(now);
        // One that is gone is not asked for before all that was on it has ended.
        let nodes = self.pool_list().nodes.iter().filter(|node| {
            node.pool == pool && self.state_of(memory, node.spec.id) != NodeState::Gone
        });
        let slots: Vec<Slot<'_>> = nodes
            .map(|node| {
                let stands = memory.scheduler.stands(node.spec.id);
                let stand = match (self.state_of(memory, node.spec.id), stands) {
                    (NodeState::Asked, _) => Stand::Asked,
                    (NodeState::Up, Some(free)) => {
                        let empty_since = memory.nodes.empty_since.get(&node.spec.id).copied();
                        Stand::Up { free, empty_since }
                    }
                    (NodeState::Drained | NodeState::Leaving, _) => Stand::Closed,
                    _ => Stand::Away,
                };
                Slot { spec: &node.spec, stand }
            })
            .collect();
        let demand = memory.scheduler.demand(DEMAND);
        let scale = memory.nodes.scales.get(&pool).cloned().unwrap_or_default();
        let last = scale.last(memory.nodes.wanting.get(&pool).copied());
        let made = plan(&config.limits(slots.len()), &slots, &demand, at, &last);
        drop(slots);
        if made.wants_more {
            memory.nodes.wanting.entry(pool).or_insert(at);
        } else {
            memory.nodes.wanting.remove(&pool);
        }
        if made.add.is_empty() && made.remove.is_empty() {
            return Ok(());
        }
        self.carry_out(memory, pool, &made, scale, now).await
    }

    /// Writes a plan down, then acts on it.
    async fn carry_out(
        &self,
        memory: &mut Memory,
        pool: usize,
        made: &Plan,
        mut scale: Scale,
        now: Timestamp,
    ) -> Result<()> {
        let name = self.pool_list().list[pool].name.to_string();
        let row = |id: &NodeId, state: NodeState| {
            let node = self.pool_list().node(*id)?;
            let address = memory.nodes.rows.get(id).and_then(|row| row.address.clone());
            let pool = name.clone();
            let saw = memory.nodes.rows.get(id).cloned();
            let row = NodeRow { pool, name: node.name.clone(), state, address, since: now };
            Some((*id, saw, row))
        };
        let added = made.add.iter().filter_map(|id| row(id, NodeState::Asked));
        let left = made.remove.iter().filter_map(|id| {
            let asked = self.state_of(memory, *id) == NodeState::Asked;
            row(id, if asked { NodeState::Away } else { NodeState::Leaving })
        });
        let rows: Vec<(NodeId, Option<NodeRow>, NodeRow)> = added.chain(left).collect();
        scale.generation += 1;
        if !made.add.is_empty() {
            scale.last_up = Some(now);
        }
        if !made.remove.is_empty() {
            scale.last_down = Some(now);
        }
        let ctx = Ctx::system(super::NAME);
        let of = Resource::new("node", &name, Scope::Platform);
        ctx.authorize(&NODE_WRITE, &of).await?;
        let write = move |tx: &mut Tx<'_>| {
            store::lock(tx, &name)?;
            let mut written = Vec::with_capacity(rows.len());
            for (id, saw, row) in rows {
                // Somebody may have said otherwise meanwhile.
                if store::find(tx, &row.pool, &row.name)? != saw {
                    continue;
                }
                if row.state == NodeState::Away {
                    store::delete(tx, &row.pool, &row.name)?;
                    scale.removed.insert(row.name.clone());
                } else {
                    store::put(tx, &row)?;
                    scale.removed.remove(&row.name);
                }
                written.push((id, row));
            }
            if written.is_empty() {
                return Ok((written, scale));
            }
            let add = written.iter().filter(|(_, row)| row.state == NodeState::Asked).count();
            let remove = written.len() - add;
            tracing::info!(pool = name, add, remove, "a pool changes its size");
            store::put_scale(tx, &name, &scale)?;
            let told = json!({ "pool": name, "add": add, "remove": remove });
            let change = Change::new(&NODE_WRITE, &of)
                .event("pool.scaled", &told)
                .detail("add", add)
                .detail("remove", remove);
            tx.record(&ctx, change)?;
            Ok((written, scale))
        };
        let (written, scale) = self.commit(memory, write).await?;
        if !written.is_empty() {
            memory.nodes.scales.insert(pool, scale);
        }
        for (id, row) in written {
            let state = row.state;
            if state == NodeState::Away {
                memory.nodes.rows.remove(&id);
            } else {
                memory.nodes.rows.insert(id, row);
            }
            self.stands_now(memory, id, state, millis(now));
        }
        Ok(())
    }

    /// What the pool should have, for its provider.
    fn wish(&self, memory: &Memory, pool: usize, generation: u64) -> Wish {
        let pools = self.pool_list();
        let mut wish = Wish {
            pool: pools.list[pool].name.to_string(),
            generation,
            target: 0,
            nodes: Vec::new(),
            add: Vec::new(),
            remove: memory
                .nodes
                .scales
                .get(&pool)
                .map(|scale| scale.removed.iter().cloned().collect())
                .unwrap_or_default(),
        };
        for node in pools.nodes.iter().filter(|node| node.pool == pool) {
            let state = self.state_of(memory, node.spec.id);
            if matches!(state, NodeState::Away | NodeState::Gone) {
                continue;
            }
            let kind = (node.spec.gpus > 0).then(|| pools.gpu_type_name(node.spec.gpu_type));
            wish.nodes.push(Wished {
                name: node.name.clone(),
                zone: node.zone.to_string(),
                spot: node.spec.spot,
                cpu_millis: node.spec.cpu,
                memory_mib: node.spec.memory,
                gpus: node.spec.gpus,
                gpu_type: kind.flatten().map(ToString::to_string),
            });
            wish.target += usize::from(state != NodeState::Leaving);
            if state == NodeState::Asked {
                wish.add.push(node.name.clone());
            }
        }
        wish
    }

    /// Tells the provider of a pool what it does not know, beside the pass.
    fn tell_provider(&self, memory: &mut Memory, pool: usize, now: Timestamp) {
        let (name, scales) =
            (&self.pool_list().list[pool].name, &self.pool_list().list[pool].autoscale);
        let own = self.config().pool.iter().find(|it| it.name == *name);
        let cluster = own.and_then(|pool| pool.kubernetes.as_ref());
        let Some(told) = scales.as_ref().and_then(|it| Provider::of(it, cluster)) else { return };
        let Some(scale) = memory.nodes.scales.get(&pool) else { return };
        let due = scale.told < scale.generation && scale.try_at.is_none_or(|at| at <= now);
        if !due || memory.nodes.telling.contains_key(&pool) {
            return;
        }
        let generation = scale.generation;
        let wish = self.wish(memory, pool, generation);
        let (training, clock) = (self.clone(), self.db().clock().clone());
        let telling = tokio::spawn(async move {
            let outcome = told.tell(&wish, clock.now()).await;
            training.live().wake();
            (generation, outcome)
        });
        memory.nodes.telling.insert(pool, telling);
    }

    async fn hear_provider(&self, memory: &mut Memory, pool: usize, now: Timestamp) -> Result<()> {
        if !memory.nodes.telling.get(&pool).is_some_and(JoinHandle::is_finished) {
            return Ok(());
        }
        let Some(telling) = memory.nodes.telling.remove(&pool) else { return Ok(()) };
        let Some(scale) = memory.nodes.scales.get_mut(&pool) else { return Ok(()) };
        let name = self.pool_list().list[pool].name.to_string();
        match telling.await {
            Ok((generation, Ok(accepted))) => {
                scale.told = scale.told.max(generation);
                (scale.accepted, scale.failures) = (accepted, 0);
                (scale.try_at, scale.problem) = (None, None);
                if scale.told == scale.generation {
                    scale.removed.clear();
                }
            }
            Ok((_, Err(problem))) => {
                tracing::warn!(pool = name, problem, "a provider of nodes did not take a change");
                scale.try_at = Some(now + provider::pause(scale.failures));
                scale.failures = scale.failures.saturating_add(1);
                scale.problem = Some(problem);
            }
            Err(error) => {
                scale.try_at = Some(now + provider::pause(scale.failures));
                scale.problem = Some(error.to_string());
            }
        }
        let kept = scale.clone();
        self.commit(memory, move |tx| store::put_scale(tx, &name, &kept)).await
    }

    /// Jobs that wait in another pool and may be here come here.
    async fn take_in_bursting(&self, memory: &mut Memory, to: usize, now: Timestamp) -> Result<()> {
        let pools = self.pool_list();
        let pool = &pools.list[to];
        let Some(config) = pool.autoscale.as_ref().filter(|it| !it.burst_for.is_empty()) else {
            return Ok(());
        };
        let zones = pools.zones_of(to);
        let takes = Takes {
            pools: &config.burst_for,
            // Nobody becomes the server's own user by waiting.
            tenants: pool.tenants.as_deref().or(if pool.is_server { Some(&[]) } else { None }),
            zones: &zones,
            after: config.burst_after.get(),
        };
        let candidates: Vec<&LiveJob> = memory
            .jobs
            .values()
            .filter(|live| live.job.definition.burst && live.held.is_none())
            .filter(|live| {
                let waits = waits(&live.job, &live.project.tenant, &zones);
                !burst::zones(&waits, &takes, now).is_empty()
            })
            .collect();
        let homes: BTreeSet<Name> =
            candidates.iter().map(|live| live.project.zone.clone()).collect();
        if homes.is_empty() {
            return Ok(());
        }
        let allowed = self.allowed_zones(homes, zones.clone()).await?;
        let goes = |live: &LiveJob| {
            let allowed = allowed.get(&live.project.zone).map_or(&[][..], Vec::as_slice);
            let chosen =
                burst::zones(&waits(&live.job, &live.project.tenant, allowed), &takes, now);
            (!chosen.is_empty()).then_some((live.job.id, chosen))
        };
        let mut found: Vec<(JobId, Vec<Name>)> = candidates.into_iter().filter_map(goes).collect();
        found.sort_unstable_by_key(|(id, _)| *id);
        // The oldest first; those that cannot go for another reason do not keep others from it.
        if let Some(last) = memory.nodes.burst_asked.remove(&to) {
            let after = found.partition_point(|(id, _)| *id <= last);
            found.rotate_left(after);
        }
        if found.len() > AT_ONCE {
            found.truncate(AT_ONCE);
            memory.nodes.burst_asked.extend(found.last().map(|(id, _)| (to, *id)));
        }
        for (id, chosen) in found {
            let Some(live) = memory.jobs.get(&id) else { continue };
            if self.could_start(&live.job.definition, to).is_ok() {
                self.burst(memory, id, to, chosen, now).await?;
            }
        }
        Ok(())
    }

    /// The zones among these that data of each home zone may be in.
    async fn allowed_zones(
        &self,
        homes: BTreeSet<Name>,
        zones: Vec<Name>,
    ) -> Result<HashMap<Name, Vec<Name>>> {
        let read = move |tx: &mut Tx<'_>| {
            let mut all = HashMap::new();
            for home in homes {
                let mut allowed = Vec::new();
                for zone in &zones {
                    match Residency::require(tx, &home, zone) {
                        Ok(_) => allowed.push(zone.clone()),
                        Err(error) if error.kind().is_ours() => return Err(error),
                        Err(_) => {}
                    }
                }
                all.insert(home, allowed);
            }
            Ok(all)
        };
        self.db().read(read).await
    }

    async fn burst(
        &self,
        memory: &mut Memory,
        id: JobId,
        to: usize,
        zones: Vec<Name>,
        now: Timestamp,
    ) -> Result<()> {
        let Some(live) = memory.jobs.get_mut(&id) else { return Ok(()) };
        let name = self.pool_list().list[to].name.clone();
        let before = (live.job.pool.clone(), live.job.zones.clone());
        (live.job.pool, live.job.zones) = (name.clone(), zones.clone());
        let spec = self.spec_of(memory, id, millis(now))?;
        let fits = spec.ok().filter(|spec| {
            // Under a number that nobody has: its own is known, where it is now.
            let asked = JobSpec { id: Number(u64::MAX), ..spec.clone() };
            memory.scheduler.check_restored(&asked).is_ok()
        });
        let Some(live) = memory.jobs.get_mut(&id) else { return Ok(()) };
        let Some(spec) = fits else {
            (live.job.pool, live.job.zones) = before;
            return Ok(());
        };
        let numbers: Vec<_> = (0..live.job.tasks.count).map(|task| live.number(task)).collect();
        let submitted = millis(live.job.created_at);
        let of = resource(&live.project, &id.to_string(), false);
        let ctx = Ctx::system(super::NAME);
        ctx.authorize(&JOB_RUN, &of).await?;
        let (from, whole) = (before.0, live.job.state);
        tracing::info!(job = %id, %from, to = %name, "a job goes to another pool");
        let write = move |tx: &mut Tx<'_>| {
            let zones = serde_json::to_string(&zones).map_err(falaj_base::Error::internal)?;
            let sql = "UPDATE training_job SET pool = $2, zones = $3 WHERE id = $1 AND live = 1";
            tx.execute(sql, &params![id, &name, zones])?;
            let task = TaskId { job: id, task: 0 };
            let why = "it waited for long, and may be where there are more nodes";
            let detail = json!({ "why": why, "from": from, "to": name });
            jobs::note_decision(tx, task, "burst", &detail)?;
            let change = Change::new(&JOB_RUN, &of)
                .event("job.moved", &told(task, whole))
                .detail("from", from.as_str())
                .detail("to", name.as_str());
            tx.record(&ctx, change)
        };
        self.commit(memory, write).await?;
        self.pays_elsewhere(memory, id);
        let now = millis(now);
        memory.drop_due(|number| numbers.contains(&number));
        for number in numbers {
            memory.scheduler.apply(now, Event::Cancelled(number));
            let mut spec = spec.clone();
            spec.id = number;
            let restored = Restored { spec, submitted, ran: 0, running: None };
            memory.scheduler.apply(now, Event::Restored(Box::new(restored)));
        }
        Ok(())
    }
}

impl Training {
    /// Counts a job by what it costs where it is now.
    fn pays_elsewhere(&self, memory: &mut Memory, id: JobId) {
        if memory.ledger.is_empty() {
            return;
        }
        let Some(live) = memory.jobs.get_mut(&id) else { return };
        let before = std::mem::replace(&mut live.least, self.least_of(&live.job));
        if let Some(before) = &before {
            memory.loose.remove(before, id);
        }
        memory.let_loose(id);
    }
}

/// A job as it is asked whether it may go elsewhere.
fn waits<'a>(job: &'a crate::job::Job, tenant: &'a Name, allowed: &'a [Name]) -> Waits<'a> {
    Waits {
        pool: &job.pool,
        tenant,
        burst: job.definition.burst,
        zones: &job.definition.zones,
        allowed,
        since: job.created_at,
        started: job.state != State::Pending || job.started_at.is_some(),
    }
}

/// Whether a start is on its way there that the scheduler may not know of any more.
fn flies_there(memory: &Memory, node: &str, pool: usize) -> bool {
    let mut flights = memory.flights.values().filter(|flight| flight.pool == pool);
    flights.any(|flight| flight.nodes.iter().any(|at| at.node == node))
}

fn tell_scheduler(
    memory: &mut Memory,
    id: NodeId,
    spec: &falaj_scheduler::NodeSpec,
    (was, is): (NodeState, NodeState),
    now: Millis,
) {
    let mut tell = |event: Event| memory.scheduler.apply(now, event);
    match is {
        NodeState::Up => tell(Event::NodeUp(spec.clone())),
        NodeState::Drained | NodeState::Leaving => {
            if !was.is_there() {
                tell(Event::NodeUp(spec.clone()));
            }
            tell(Event::NodeDrained(id));
        }
        NodeState::Away | NodeState::Asked | NodeState::Gone => {
            if was.is_there() {
                tell(Event::NodeDown(id));
            }
        }
    }
}
