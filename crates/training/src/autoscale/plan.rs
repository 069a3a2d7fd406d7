//! What a pool should have now: `(limits, nodes, demand, time, last actions) → nodes to ask for and to
//! give up`. Pure.
//!
//! Must hold:
//! - There are never more nodes than `max`, nor dearer ones than `max_price`; never fewer than `min` are
//!   left by giving some up.
//! - Only nodes are given up that have been empty for long, and that nobody who waits could use.
//! - A gang counts whole: nodes are asked for that let it start, or none.
//! - A node is asked for only if somebody may use it: its zone, its type, spot or not.

use std::collections::BTreeMap;

use falaj_scheduler::model::{GPU_PARTS, Level};
use falaj_scheduler::{
    Ask, Demand, GpuAsk, GpuType, Millis, NodeId, NodeSpec, NodeStanding, Spot, Topology,
};

/// Jobs that a plan looks at one by one.
const MOST_JOBS: usize = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub min: usize,
    pub max: usize,
    pub step: usize,
    /// Of all nodes for an hour, in millionths.
    pub max_price: Option<u64>,
    pub up_after: Millis,
    pub up_pause: Millis,
    pub down_after: Millis,
    pub down_pause: Millis,
}

/// How a node of the pool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    Away,
    /// Asked for, and not there yet.
    Asked,
    Up {
        free: NodeStanding,
        /// Since when nobody is on it.
        empty_since: Option<Millis>,
    },
    /// It takes nothing new.
    Closed,
}

#[derive(Clone, Debug)]
pub struct Slot<'a> {
    pub spec: &'a NodeSpec,
    pub stand: Stand,
}

/// What was done before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Last {
    pub up: Option<Millis>,
    pub down: Option<Millis>,
    /// Since when more nodes would help somebody.
    pub wanting: Option<Millis>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub add: Vec<NodeId>,
    pub remove: Vec<NodeId>,
    /// Whether more nodes would help somebody, whether or not it is time to ask for them.
    pub wants_more: bool,
    /// Jobs that no node of the pool within its limits would help.
    pub unmet: usize,
}

/// What a node costs by the hour, in millionths: its price is that of a GPU, or of a core where it has
/// none.
#[must_use]
pub fn price(spec: &NodeSpec) -> u64 {
    if spec.gpus > 0 {
        spec.price.saturating_mul(spec.gpus.into())
    } else {
        spec.price.saturating_mul(spec.cpu.into()) / 1000
    }
}

/// A node with what would be free on it.
#[derive(Clone, Debug)]
struct Room<'a> {
    spec: &'a NodeSpec,
    cpu: u32,
    memory: u32,
    /// Parts of each GPU that are free; those in use in part are not counted on.
    devices: Vec<u64>,
    is_new: bool,
    used: bool,
}

impl<'a> Room<'a> {
    fn empty(spec: &'a NodeSpec, is_new: bool) -> Self {
        let devices = vec![GPU_PARTS; spec.gpus.into()];
        Self { spec, cpu: spec.cpu, memory: spec.memory, devices, is_new, used: false }
    }

    fn left(spec: &'a NodeSpec, free: &NodeStanding) -> Self {
        let devices = vec![GPU_PARTS; free.gpus.into()];
        Self { spec, cpu: free.cpu, memory: free.memory, devices, is_new: false, used: false }
    }

    /// The devices that a share would take, and how much of each.
    fn fits(&self, ask: &Ask) -> Option<Vec<(usize, u64)>> {
        if self.cpu < ask.cpu || self.memory < ask.memory {
            return None;
        }
        let whole = |count: usize| {
            let free = self.devices.iter().enumerate().filter(|(_, left)| **left == GPU_PARTS);
            let taken: Vec<_> = free.take(count).map(|(at, _)| (at, GPU_PARTS)).collect();
            (taken.len() == count).then_some(taken)
        };
        let part = |parts: u64| {
            // The fullest that has room: whole ones stay whole.
            let fits = self.devices.iter().enumerate().filter(|(_, left)| **left >= parts);
            fits.min_by_key(|(_, left)| **left).map(|(at, _)| vec![(at, parts)])
        };
        match ask.gpu {
            GpuAsk::None => Some(Vec::new()),
            GpuAsk::Whole(count) => whole(count.into()),
            GpuAsk::Fraction(_) => part(ask.gpu.parts()),
            GpuAsk::Mig(_) if self.spec.mig => part(ask.gpu.parts()),
            GpuAsk::Mig(_) => None,
        }
    }

    fn take(&mut self, ask: &Ask) {
        for (at, parts) in self.fits(ask).unwrap_or_default() {
            self.devices[at] -= parts;
        }
        self.cpu = self.cpu.saturating_sub(ask.cpu);
        self.memory = self.memory.saturating_sub(ask.memory);
        self.used = true;
    }
}

/// Whether jobs may be on a node at all.
fn admits(demand: &Demand, spec: &NodeSpec) -> bool {
    let spot = match demand.spot {
        Spot::Never => !spec.spot,
        Spot::Allowed => true,
        Spot::UntilDeadlineNears => spec.spot,
    };
    let kind = demand.ask.gpu == GpuAsk::None
        || (spec.gpus > 0 && demand.ask.gpu_type.is_none_or(|kind| kind == spec.gpu_type));
    spot && kind && demand.zones.has(spec.zone)
}

/// What a gang has to have in common: one type of GPUs, and one rack or block if it asks for that.
fn group(demand: &Demand, spec: &NodeSpec) -> (GpuType, u32) {
    let kind = if demand.ask.gpu == GpuAsk::None { GpuType(0) } else { spec.gpu_type };
    let domain = match demand.topology {
        Topology::Require(Level::Rack) => spec.rack,
        Topology::Require(Level::Block) => spec.block,
        _ => 0,
    };
    (kind, domain)
}

/// Rooms that a share fits into, and nodes that could be asked for.
type Ways<'a> = (Vec<usize>, Vec<&'a NodeSpec>);

struct Planner<'a> {
    limits: &'a Limits,
    rooms: Vec<Room<'a>>,
    /// Nodes that may be asked for, spot before others, cheap before dear.
    away: Vec<&'a NodeSpec>,
    present: usize,
    price: u64,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn new(limits: &'a Limits, slots: &[Slot<'a>]) -> Self {
        let mut rooms = Vec::new();
        let mut away: Vec<&NodeSpec> = Vec::new();
        let (mut present, mut sum) = (0, 0u64);
        for slot in slots {
            match &slot.stand {
                Stand::Away => away.push(slot.spec),
                Stand::Asked => rooms.push(Room::empty(slot.spec, false)),
                Stand::Up { free, .. } => rooms.push(Room::left(slot.spec, free)),
                Stand::Closed => {}
            }
            if slot.stand != Stand::Away {
                present += 1;
                sum = sum.saturating_add(price(slot.spec));
            }
        }
        away.sort_by_key(|spec| (!spec.spot, price(spec), spec.id));
        Self { limits, rooms, away, present, price: sum, plan: Plan::default() }
    }

    fn affords(&self, specs: &[&NodeSpec]) -> bool {
        let added: u64 = specs.iter().map(|spec| price(spec)).fold(0, u64::saturating_add);
        self.present + specs.len() <= self.limits.max
            && self.limits.max_price.is_none_or(|most| self.price.saturating_add(added) <= most)
    }

    fn add(&mut self, spec: &'a NodeSpec) -> usize {
        self.away.retain(|other| other.id != spec.id);
        self.present += 1;
        self.price = self.price.saturating_add(price(spec));
        self.plan.add.push(spec.id);
        self.rooms.push(Room::empty(spec, true));
        self.rooms.len() - 1
    }

    /// Finds room for one job, asking for nodes if that takes some. Whole, or not at all.
    fn place(&mut self, demand: &Demand) -> Placed {
        let needs = usize::from(demand.nodes.min);
        let mut groups: BTreeMap<(GpuType, u32), Ways<'a>> = BTreeMap::new();
        for (at, room) in self.rooms.iter().enumerate() {
            if admits(demand, room.spec) && room.fits(&demand.ask).is_some() {
                groups.entry(group(demand, room.spec)).or_default().0.push(at);
            }
        }
        for &spec in &self.away {
            if admits(demand, spec) && Room::empty(spec, true).fits(&demand.ask).is_some() {
                groups.entry(group(demand, spec)).or_default().1.push(spec);
            }
        }
        // Whoever needs the fewest new nodes, then the cheapest.
        let ways = groups.into_values().filter_map(|(there, mut new)| {
            let missing = needs.saturating_sub(there.len());
            (new.len() >= missing).then(|| {
                new.truncate(missing);
                let cost: u64 = new.iter().map(|spec| price(spec)).fold(0, u64::saturating_add);
                (new.len(), cost, there, new)
            })
        });
        let mut ways: Vec<_> = ways.collect();
        ways.sort_by_key(|(count, cost, ..)| (*count, *cost));
        let Some((_, _, there, new)) =
            ways.into_iter().find(|(_, _, _, new)| new.is_empty() || self.affords(new))
        else {
            return Placed::Not;
        };
        if !self.plan.add.is_empty() && self.plan.add.len() + new.len() > self.limits.step {
            return Placed::Later;
        }
        let mut chosen: Vec<usize> = there.into_iter().take(needs - new.len()).collect();
        chosen.extend(new.into_iter().map(|spec| self.add(spec)));
        for at in chosen {
            self.rooms[at].take(&demand.ask);
        }
        Placed::Here
    }
}

enum Placed {
    Here,
    /// Not in this step.
    Later,
    Not,
}

/// What the pool should do now.
#[must_use]
pub fn plan(
    limits: &Limits,
    slots: &[Slot<'_>],
    demand: &[Demand],
    now: Millis,
    last: &Last,
) -> Plan {
    let mut planner = Planner::new(limits, slots);
    let mut left = MOST_JOBS;
    'all: for demand in demand {
        for at in 0..demand.jobs {
            if left == 0 {
                break 'all;
            }
            left -= 1;
            match planner.place(demand) {
                Placed::Here => {}
                Placed::Later => break 'all,
                // Those behind it are like it.
                Placed::Not => {
                    planner.plan.unmet += demand.jobs - at;
                    break;
                }
            }
        }
    }
    let used: Vec<NodeId> = planner
        .rooms
        .iter()
        .filter(|room| room.used && !room.is_new)
        .map(|it| it.spec.id)
        .collect();
    let mut plan = std::mem::take(&mut planner.plan);
    plan.wants_more = !plan.add.is_empty();
    let passed = |since: Option<Millis>, pause: Millis| {
        since.is_none_or(|since| now.saturating_sub(since) >= pause)
    };
    let waited = last.wanting.is_some_and(|since| now.saturating_sub(since) >= limits.up_after)
        || limits.up_after == 0;
    if !(waited && passed(last.up, limits.up_pause)) {
        plan.add.clear();
    }
    fill(&mut plan, limits, slots);
    if !plan.wants_more
        && plan.add.is_empty()
        && passed(last.up, limits.down_pause)
        && passed(last.down, limits.down_pause)
    {
        plan.remove = idle(limits, slots, &used, now);
    }
    plan
}

/// Brings the pool up to its minimum, whoever waits or not.
fn fill(plan: &mut Plan, limits: &Limits, slots: &[Slot<'_>]) {
    let there = slots.iter().filter(|slot| matches!(slot.stand, Stand::Asked | Stand::Up { .. }));
    let there_at_all = slots.iter().filter(|slot| slot.stand != Stand::Away).count();
    let missing = limits.min.saturating_sub(there.count() + plan.add.len());
    let known = slots.iter().filter(|slot| slot.stand != Stand::Away);
    let added = slots.iter().filter(|slot| plan.add.contains(&slot.spec.id));
    let mut sum = known.chain(added).map(|it| price(it.spec)).fold(0, u64::saturating_add);
    let mut away: Vec<&NodeSpec> = slots
        .iter()
        .filter(|slot| slot.stand == Stand::Away && !plan.add.contains(&slot.spec.id))
        .map(|slot| slot.spec)
        .collect();
    away.sort_by_key(|spec| (price(spec), spec.id));
    // Those that take nothing new are there as well.
    let room = limits.max.saturating_sub(there_at_all + plan.add.len());
    for spec in away.into_iter().take(missing.min(room)) {
        sum = sum.saturating_add(price(spec));
        if limits.max_price.is_some_and(|most| sum > most) {
            return;
        }
        plan.add.push(spec.id);
    }
}

/// Nodes that nobody needs, the dearest first: asked for and not there, or empty for long.
fn idle(limits: &Limits, slots: &[Slot<'_>], used: &[NodeId], now: Millis) -> Vec<NodeId> {
    let there = slots.iter().filter(|slot| matches!(slot.stand, Stand::Asked | Stand::Up { .. }));
    let spare = there.count().saturating_sub(limits.min).min(limits.step);
    let mut idle: Vec<&Slot<'_>> = slots
        .iter()
        .filter(|slot| !used.contains(&slot.spec.id))
        .filter(|slot| match slot.stand {
            Stand::Asked => true,
            Stand::Up { free, empty_since } => {
                let long = |since| now.saturating_sub(since) >= limits.down_after;
                free.jobs == 0 && empty_since.is_some_and(long)
            }
            Stand::Away | Stand::Closed => false,
        })
        .collect();
    idle.sort_by_key(|slot| (std::cmp::Reverse(price(slot.spec)), std::cmp::Reverse(slot.spec.id)));
    idle.into_iter().take(spare).map(|slot| slot.spec.id).collect()
}

#[cfg(test)]
mod tests;
