//! Something that plays the cluster: it does what is decided, keeps its own plain books, and
//! complains when a decision breaks a rule.

use std::collections::{BTreeMap, BTreeSet};

use falaj_scheduler::model::{Dimension, GPU_PARTS};
use falaj_scheduler::{
    Amounts, Decision, Event, GpuAsk, JobId, JobSpec, Millis, NodeId, NodeSpec, Order, Placed,
    QueueId, QueueSpec, Scheduler, Settings, Spot, StopReason,
};

/// Numbers that look random and are the same every time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }

    pub(crate) fn one_in(&mut self, chance: u64) -> bool {
        self.below(chance) == 0
    }
}

pub(crate) struct Run {
    pub(crate) placement: Vec<Placed>,
    pub(crate) since: Millis,
}

pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: Millis,
    pub(crate) jobs: BTreeMap<JobId, JobSpec>,
    pub(crate) running: BTreeMap<JobId, Run>,
    /// Told to stop and not acknowledged.
    pub(crate) leaving: BTreeMap<JobId, Vec<NodeId>>,
    /// Told to give up nodes and not acknowledged.
    pub(crate) resizing: BTreeSet<JobId>,
    pub(crate) nodes: BTreeMap<NodeId, NodeSpec>,
    /// Drained or gone.
    pub(crate) closed: BTreeSet<NodeId>,
    /// Were gone at some time since the last pass, or are: whoever was there is not any more.
    down: BTreeSet<NodeId>,
    pub(crate) queues: BTreeMap<QueueId, QueueSpec>,
    pub(crate) events: Vec<(Millis, Option<Event>)>,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) refused: usize,
}

impl World {
    pub(crate) fn new(order: Box<dyn Order>) -> Self {
        Self::with(Settings::default(), order)
    }

    pub(crate) fn with(settings: Settings, order: Box<dyn Order>) -> Self {
        Self {
            scheduler: Scheduler::new(settings, order),
            now: 0,
            jobs: BTreeMap::new(),
            running: BTreeMap::new(),
            leaving: BTreeMap::new(),
            resizing: BTreeSet::new(),
            nodes: BTreeMap::new(),
            closed: BTreeSet::new(),
            down: BTreeSet::new(),
            queues: BTreeMap::new(),
            events: Vec::new(),
            decisions: Vec::new(),
            refused: 0,
        }
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push((self.now, Some(event.clone())));
        match &event {
            Event::NodeUp(spec) => {
                self.nodes.insert(spec.id, spec.clone());
                self.closed.remove(&spec.id);
            }
            Event::NodeDown(id) => {
                self.closed.insert(*id);
                self.down.insert(*id);
                // Nobody is left on a node that is gone.
                self.leaving.values_mut().for_each(|nodes| nodes.retain(|node| node != id));
            }
            Event::NodeDrained(id) => {
                self.closed.insert(*id);
            }
            Event::QueueSet(spec) => {
                self.queues.insert(spec.id, *spec);
            }
            Event::QuotaChanged(id, quota) => {
                if let Some(queue) = self.queues.get_mut(id) {
                    queue.quota = *quota;
                }
            }
            Event::Submitted(spec) => {
                self.jobs.insert(spec.id, spec.clone());
            }
            Event::Finished(id) | Event::Cancelled(id) => {
                self.jobs.remove(id);
                self.running.remove(id);
                self.leaving.remove(id);
                self.resizing.remove(id);
            }
            Event::Stopped(id) => {
                self.leaving.remove(id);
            }
            Event::Resized(id) => {
                self.resizing.remove(id);
            }
            _ => {}
        }
        self.scheduler.apply(self.now, event);
    }

    /// A pass. Checks every decision, and everything that must hold afterwards.
    pub(crate) fn pass(&mut self) -> Vec<Decision> {
        self.events.push((self.now, None));
        let decisions = self.scheduler.decide(self.now);
        for decision in &decisions {
            self.follow(decision);
        }
        self.down.retain(|id| self.closed.contains(id));
        self.check();
        self.decisions.extend(decisions.iter().cloned());
        decisions
    }

    /// Lets everybody who was told to leave do so, and passes until nothing more is decided.
    pub(crate) fn settle(&mut self) -> Vec<Decision> {
        let mut all = Vec::new();
        self.acknowledge();
        for round in 0.. {
            assert!(round < 50, "passes at one moment never end: {all:?}");
            let decisions = self.pass();
            if decisions.is_empty() {
                break;
            }
            all.extend(decisions);
            self.acknowledge();
        }
        all
    }

    pub(crate) fn acknowledge(&mut self) {
        for id in self.leaving.keys().copied().collect::<Vec<_>>() {
            self.tell(Event::Stopped(id));
        }
        for id in self.resizing.clone() {
            self.tell(Event::Resized(id));
        }
    }

    fn follow(&mut self, decision: &Decision) {
        match decision {
            Decision::Start { job, placement, after, .. } => {
                assert!(!self.running.contains_key(job), "{job:?} was started twice");
                assert!(!self.leaving.contains_key(job), "{job:?} has not left yet");
                let nodes = &self.jobs[job].nodes;
                let width = placement.len() as u16;
                assert!((nodes.min..=nodes.max).contains(&width), "{job:?} is not whole");
                self.lands(*job, placement, after, &[]);
                let run = Run { placement: placement.clone(), since: self.now };
                self.running.insert(*job, run);
            }
            Decision::Stop { job, why, .. } => {
                let run = self.running.remove(job);
                let run = run.unwrap_or_else(|| panic!("{job:?} does not run: {why:?}"));
                let forced = matches!(
                    why,
                    StopReason::NodeLost | StopReason::QuotaCut | StopReason::LeavesSpot
                );
                let ran = self.now - run.since;
                assert!(
                    forced || ran >= self.jobs[job].minimum_run,
                    "{job:?} was stopped for {why:?} after {ran} ms"
                );
                let nodes = run.placement.iter().map(|placed| placed.node);
                let nodes = nodes.filter(|node| !self.down.contains(node)).collect();
                self.leaving.insert(*job, nodes);
            }
            Decision::Resize { job, placement, after, .. } => {
                let width = placement.len() as u16;
                let nodes = &self.jobs[job].nodes;
                assert!((nodes.min..=nodes.max).contains(&width), "{job:?} resized to {width}");
                let before = self.running[job].placement.clone();
                self.lands(*job, placement, after, &before);
                self.resizing.insert(*job);
                self.running.get_mut(job).unwrap().placement.clone_from(placement);
            }
            Decision::Move { job, placement, after, .. } => {
                let run = &self.running[job];
                assert!(self.now - run.since >= self.jobs[job].minimum_run);
                assert_eq!(run.placement.len(), placement.len());
                self.lands(*job, placement, after, &[]);
                self.resizing.insert(*job);
                let run = Run { placement: placement.clone(), since: self.now };
                self.running.insert(*job, run);
            }
            Decision::Refuse { job, .. } => {
                self.jobs.remove(job);
                self.refused += 1;
            }
        }
    }

    /// Nodes that a job comes to must be open to it, and those who leave them must be waited for.
    fn lands(&self, job: JobId, placement: &[Placed], after: &[JobId], before: &[Placed]) {
        let spec = &self.jobs[&job];
        let mut seen = BTreeSet::new();
        for placed in placement {
            assert!(seen.insert(placed.node), "{job:?} is on {:?} twice", placed.node);
            if before.contains(placed) {
                continue;
            }
            let node = &self.nodes[&placed.node];
            assert!(!self.closed.contains(&placed.node), "{job:?} on a closed node");
            assert!(spec.zones.has(node.zone), "{job:?} may not be in {:?}", node.zone);
            assert!(spec.spot != Spot::Never || !node.spot, "{job:?} must not be on spot");
            let any_type = spec.per_node.gpu == GpuAsk::None || spec.per_node.gpu_type.is_none();
            assert!(any_type || spec.per_node.gpu_type == Some(node.gpu_type));
            for (other, nodes) in &self.leaving {
                if nodes.contains(&placed.node) {
                    assert!(after.contains(other), "{job:?} would not wait for {other:?}");
                }
            }
        }
    }

    /// What must hold at every moment.
    pub(crate) fn check(&self) {
        self.check_nodes();
        self.check_quotas();
        let unseen = self.scheduler.longest_unconsidered();
        assert!(unseen.is_none_or(|at| at == self.now), "some job was passed over");
        for id in self.running.keys() {
            let placement = self.scheduler.placement(*id).expect("it runs");
            assert_eq!(placement, &self.running[id].placement[..]);
        }
    }

    fn check_nodes(&self) {
        for (id, node) in &self.nodes {
            let (mut cpu, mut memory) = (0, 0);
            let mut parts = [0u64; 16];
            let mut eighths = [0u8; 16];
            let mut kinds: [BTreeSet<u8>; 16] = Default::default();
            for (job, run) in &self.running {
                let ask = &self.jobs[job].per_node;
                for placed in run.placement.iter().filter(|placed| placed.node == *id) {
                    cpu += ask.cpu;
                    memory += ask.memory;
                    let count = u64::from(placed.devices.count_ones());
                    match ask.gpu {
                        GpuAsk::None => assert_eq!(count, 0),
                        GpuAsk::Whole(gpus) => assert_eq!(count, u64::from(gpus)),
                        _ => assert_eq!(count, 1),
                    }
                    for at in (0..16).filter(|at| placed.devices >> at & 1 == 1) {
                        assert!(at < usize::from(node.gpus), "there is no such device");
                        match ask.gpu {
                            GpuAsk::Whole(_) => {
                                parts[at] += GPU_PARTS;
                                kinds[at].insert(0);
                            }
                            GpuAsk::Fraction(part) => {
                                parts[at] += u64::from(part);
                                kinds[at].insert(1);
                            }
                            GpuAsk::Mig(_) => {
                                assert!(node.mig);
                                assert_eq!(eighths[at] & placed.slice, 0, "slices overlap");
                                eighths[at] |= placed.slice;
                                kinds[at].insert(2);
                            }
                            GpuAsk::None => {}
                        }
                    }
                }
            }
            assert!(cpu <= node.cpu && memory <= node.memory, "{id:?} is overfull");
            assert!(parts.iter().all(|part| *part <= GPU_PARTS), "a GPU of {id:?} was given twice");
            assert!(kinds.iter().all(|kinds| kinds.len() <= 1), "a GPU is used in two ways");
        }
    }

    /// Quotas the slow way: what every queue holds, and what of it overflows to its parent.
    fn check_quotas(&self) {
        let mut total = Amounts::ZERO;
        for queue in self.queues.values().filter(|queue| queue.parent.is_none()) {
            let (owned, used) = self.account(queue);
            let home = minus(&owned, &owned.least(&queue.quota.lending));
            total = total.plus(&minus(&used, &home));
        }
        let all: Amounts = self
            .queues
            .values()
            .filter(|queue| queue.parent.is_none())
            .map(|queue| {
                let (owned, _) = self.account(queue);
                owned.least(&queue.quota.lending)
            })
            .fold(Amounts::ZERO, |sum, lent| sum.plus(&lent));
        assert!(total.fits(&all), "more is borrowed than is lent: {total:?} of {all:?}");
    }

    /// What a queue owns with its children, and what is charged to it. Checks its limit.
    fn account(&self, queue: &QueueSpec) -> (Amounts, Amounts) {
        let children: Vec<&QueueSpec> =
            self.queues.values().filter(|child| child.parent == Some(queue.id)).collect();
        let mut owned = queue.quota.nominal;
        let mut used = Amounts::ZERO;
        for child in &children {
            let (theirs, charged) = self.account(child);
            let lent = theirs.least(&child.quota.lending);
            owned = owned.plus(&lent);
            used = used.plus(&minus(&charged, &minus(&theirs, &lent)));
        }
        if children.is_empty() {
            for (id, run) in &self.running {
                let spec = &self.jobs[id];
                if spec.queue == queue.id {
                    let kind = self.nodes[&run.placement[0].node].gpu_type;
                    let shares = run.placement.len() as u64;
                    used = used.plus(&spec.per_node.amounts(kind).times(shares));
                }
            }
            assert_eq!(self.scheduler.held(queue.id), Some(used), "{:?}", queue.id);
        }
        let limit = owned.plus(&queue.quota.borrowing);
        assert!(used.fits(&limit), "{:?} holds {used:?}, may {limit:?}", queue.id);
        (owned, used)
    }

    /// GPUs that a queue holds.
    pub(crate) fn gpus(&self, queue: u32) -> u64 {
        let held = self.scheduler.held(QueueId(queue)).unwrap();
        held.get(Dimension::Gpu) / GPU_PARTS
    }
}

fn minus(a: &Amounts, b: &Amounts) -> Amounts {
    Amounts(std::array::from_fn(|i| a.0[i].saturating_sub(b.0[i])))
}
