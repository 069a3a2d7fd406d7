//! The tree of queues: what each may hold, and what it holds.
//!
//! A queue uses its own first, then what relatives lend. Of what it owns (its nominal quota and
//! what its children bring), the part above its lending limit stays at home; the rest is its
//! parent's to share out. So a charge fills a queue's home and only the overflow is charged to the
//! parent, and the room of a queue is what is left at home and what the parent has room for, up to
//! the borrowing limit.
//!
//! Must hold, at every node: what is used is at most what it owns and may borrow; at the root, at
//! most what all own together. A charge that would break this is never made (`charge` is called
//! after `fits`); a quota that is cut afterwards is mended by stopping jobs.

use crate::model::{Amounts, DIMENSIONS, Dimension, Millis, QueueId, QueueSpec, Quota, UNLIMITED};
use crate::usage::{HalfLife, Seconds, Usage};
use crate::waiting::Score;

/// Where a queue is kept. The root of all tenants is the first.
pub(crate) type Place = u32;
const ROOT: Place = 0;
/// Deeper trees are not accepted: tenants, teams, queues and some levels to spare.
pub const MAX_DEPTH: usize = 8;
/// A place for every queue number up to this.
pub const MAX_QUEUES: u32 = 1 << 20;

#[derive(Clone, Debug)]
struct Node {
    id: Option<QueueId>,
    parent: Option<Place>,
    quota: Quota,
    weight: u32,
    children: u32,
    /// What it owns, with what its children bring.
    owned: Amounts,
    /// The part of that which it does not lend.
    home: Amounts,
    /// Charged here: by jobs of its own, and the overflow of its children.
    used: Amounts,
    /// Held by all jobs below it, whoever owns it.
    held: Amounts,
    /// What they have used of late.
    usage: Usage,
}

#[derive(Clone, Debug)]
pub struct QuotaTree {
    nodes: Vec<Node>,
    by_id: Vec<Option<Place>>,
    /// Whether any quota limits anything.
    governs: bool,
    half_life: HalfLife,
    now: Millis,
}

/// How much those on the way down to a queue have of what is there, and have had: whoever has less on
/// the highest level that differs goes first.
pub(crate) type Fair = [Score; MAX_DEPTH];

impl Default for QuotaTree {
    fn default() -> Self {
        let root = Node::new(None, None, Quota::of_children(), 1);
        let half_life = HalfLife::default();
        Self { nodes: vec![root], by_id: Vec::new(), governs: false, half_life, now: 0 }
    }
}

impl Node {
    fn new(id: Option<QueueId>, parent: Option<Place>, quota: Quota, weight: u32) -> Self {
        let zero = Amounts::ZERO;
        Self {
            id,
            parent,
            quota,
            weight,
            children: 0,
            owned: zero,
            home: zero,
            used: zero,
            held: zero,
            usage: Usage::default(),
        }
    }

    /// What this node charges to its parent.
    fn overflow(&self) -> Amounts {
        Amounts(std::array::from_fn(|i| self.used.0[i].saturating_sub(self.home.0[i])))
    }
}

impl QuotaTree {
    /// With usage that fades so fast.
    pub(crate) fn fading(half_life: HalfLife) -> Self {
        Self { half_life, ..Self::default() }
    }

    pub(crate) fn pass_time(&mut self, now: Millis) {
        self.now = now;
    }

    pub(crate) fn place(&self, id: QueueId) -> Option<Place> {
        self.by_id.get(id.0 as usize).copied().flatten()
    }

    /// Adds a queue or changes its quota and weight. A queue does not move: that would move what its
    /// jobs are charged to. False if it cannot be so.
    pub(crate) fn set(&mut self, spec: &QueueSpec) -> bool {
        let parent = match spec.parent {
            None => Some(ROOT),
            Some(id) => self.place(id),
        };
        let Some(parent) = parent else { return false };
        if spec.id.0 >= MAX_QUEUES || self.path(parent).count() >= MAX_DEPTH {
            return false;
        }
        if let Some(place) = self.place(spec.id) {
            if self.nodes[place as usize].parent != Some(parent) {
                return false;
            }
            self.nodes[place as usize].weight = spec.weight.max(1);
            self.nodes[place as usize].quota = spec.quota;
        } else {
            let place = self.nodes.len() as Place;
            let node = Node::new(Some(spec.id), Some(parent), spec.quota, spec.weight.max(1));
            self.nodes.push(node);
            self.nodes[parent as usize].children += 1;
            let index = spec.id.0 as usize;
            if self.by_id.len() <= index {
                self.by_id.resize(index + 1, None);
            }
            self.by_id[index] = Some(place);
        }
        self.add_up();
        true
    }

    pub(crate) fn set_quota(&mut self, id: QueueId, quota: Quota) -> bool {
        let Some(place) = self.place(id) else { return false };
        self.nodes[place as usize].quota = quota;
        self.add_up();
        true
    }

    /// Computes what every node owns and what flows up, from the leaves. Children come after their
    /// parents, so one walk backwards does it.
    fn add_up(&mut self) {
        self.governs = self.nodes[1..].iter().any(|node| node.quota != Quota::NONE);
        for node in &mut self.nodes {
            node.owned = node.quota.nominal;
            // A node with children is charged by them alone; jobs are in leaves.
            if node.children > 0 {
                node.used = Amounts::ZERO;
            } else {
                node.used = node.held;
            }
        }
        for place in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[place];
            let lent = node.owned.least(&node.quota.lending);
            node.home = Amounts(std::array::from_fn(|i| node.owned.0[i].saturating_sub(lent.0[i])));
            let overflow = node.overflow();
            if let Some(parent) = node.parent {
                let parent = &mut self.nodes[parent as usize];
                parent.owned = parent.owned.plus(&lent);
                parent.used = parent.used.plus(&overflow);
            }
        }
    }

    /// A node and its ancestors, the root last.
    pub(crate) fn path(&self, place: Place) -> impl Iterator<Item = Place> + '_ {
        std::iter::successors(Some(place), |&at| self.nodes[at as usize].parent)
    }

    pub(crate) fn is_leaf(&self, place: Place) -> bool {
        self.nodes[place as usize].children == 0
    }

    pub(crate) fn id(&self, place: Place) -> Option<QueueId> {
        self.nodes[place as usize].id
    }

    /// The tenant that a queue belongs to: the ancestor below the root.
    pub(crate) fn tenant(&self, place: Place) -> Place {
        self.path(place).filter(|&at| at != ROOT).last().unwrap_or(place)
    }

    /// What all jobs below it hold.
    pub(crate) fn held(&self, place: Place) -> &Amounts {
        &self.nodes[place as usize].held
    }

    /// What all jobs hold.
    pub(crate) fn all_held(&self) -> &Amounts {
        self.held(ROOT)
    }

    pub(crate) fn weight(&self, place: Place) -> u32 {
        self.nodes[place as usize].weight
    }

    pub(crate) fn owned(&self, place: Place) -> &Amounts {
        &self.nodes[place as usize].owned
    }

    /// How much more a queue can be charged now.
    pub(crate) fn room(&self, place: Place) -> Amounts {
        let mut room = Amounts::UNLIMITED;
        let mut at_home = Amounts::ZERO;
        // From the leaf up: at each step `room` is a limit on the whole, and `at_home` what has been
        // found below the step.
        for at in self.path(place) {
            let node = &self.nodes[at as usize];
            for i in 0..DIMENSIONS {
                if node.parent.is_none() {
                    let left = node.owned.0[i].saturating_sub(node.used.0[i]);
                    room.0[i] = room.0[i].min(at_home.0[i].saturating_add(left).min(UNLIMITED));
                    continue;
                }
                let ceiling = node.owned.0[i].saturating_add(node.quota.borrowing.0[i]);
                let left = ceiling.min(UNLIMITED).saturating_sub(node.used.0[i]);
                room.0[i] = room.0[i].min(at_home.0[i].saturating_add(left).min(UNLIMITED));
                let home = node.home.0[i].saturating_sub(node.used.0[i]);
                at_home.0[i] = at_home.0[i].saturating_add(home).min(UNLIMITED);
            }
        }
        room
    }

    /// The most that the queue could ever be charged, were everything else idle.
    pub(crate) fn ceiling(&self, place: Place) -> Amounts {
        let mut most = Amounts::UNLIMITED;
        let mut at_home = Amounts::ZERO;
        for at in self.path(place) {
            let node = &self.nodes[at as usize];
            let own = if node.parent.is_none() {
                node.owned
            } else {
                node.owned.plus(&node.quota.borrowing)
            };
            most = most.least(&at_home.plus(&own));
            at_home = at_home.plus(&node.home);
        }
        most
    }

    /// The first queue from the leaf up whose limit leaves too little room, and of what.
    pub(crate) fn blocked_at(&self, place: Place, amounts: &Amounts) -> Option<(Place, Dimension)> {
        let mut needs = *amounts;
        for at in self.path(place) {
            let node = &self.nodes[at as usize];
            let ceiling = if node.parent.is_none() {
                node.owned
            } else {
                node.owned.plus(&node.quota.borrowing)
            };
            if let Some(dimension) = needs.short_of(&ceiling.less(&node.used)) {
                return Some((at, dimension));
            }
            let after = node.used.plus(&needs);
            let before = node.overflow();
            needs = Amounts(std::array::from_fn(|i| {
                after.0[i].saturating_sub(node.home.0[i]).saturating_sub(before.0[i])
            }));
        }
        None
    }

    pub(crate) fn fits(&self, place: Place, amounts: &Amounts) -> bool {
        self.blocked_at(place, amounts).is_none()
    }

    pub(crate) fn charge(&mut self, place: Place, amounts: &Amounts) {
        self.shift(place, amounts, true);
    }

    pub(crate) fn release(&mut self, place: Place, amounts: &Amounts) {
        self.shift(place, amounts, false);
    }

    fn shift(&mut self, place: Place, amounts: &Amounts, more: bool) {
        let mut change = *amounts;
        let mut at = Some(place);
        while let Some(here) = at {
            let node = &mut self.nodes[here as usize];
            node.usage.bring(self.now, &node.held, self.half_life);
            for i in 0..DIMENSIONS {
                let over = node.used.0[i].saturating_sub(node.home.0[i]);
                if more {
                    node.used.0[i] = node.used.0[i].saturating_add(change.0[i]);
                    node.held.0[i] = node.held.0[i].saturating_add(amounts.0[i]);
                    change.0[i] = node.used.0[i].saturating_sub(node.home.0[i]) - over;
                } else {
                    node.used.0[i] = node.used.0[i].saturating_sub(change.0[i]);
                    node.held.0[i] = node.held.0[i].saturating_sub(amounts.0[i]);
                    change.0[i] = over - node.used.0[i].saturating_sub(node.home.0[i]);
                }
            }
            at = node.parent;
        }
    }

    /// Whether a queue would hold more than it owns with this much more, in a dimension it asks of.
    pub(crate) fn would_borrow(&self, place: Place, amounts: &Amounts) -> bool {
        let node = &self.nodes[place as usize];
        (0..DIMENSIONS).any(|i| {
            amounts.0[i] > 0 && node.used.0[i].saturating_add(amounts.0[i]) > node.owned.0[i]
        })
    }

    /// Whether a queue holds more than it owns of something that `amounts` asks for.
    pub(crate) fn borrows(&self, place: Place, amounts: &Amounts) -> bool {
        let node = &self.nodes[place as usize];
        (0..DIMENSIONS).any(|i| amounts.0[i] > 0 && node.used.0[i] > node.owned.0[i])
    }

    /// Whether any quota limits anything.
    pub(crate) fn governs(&self) -> bool {
        self.governs
    }

    /// Whether work of `place` may take back what `from` has borrowed: below the queue in which both
    /// meet, the one stays within what it owns with `amounts` more, and the other is above what it
    /// owns in something that is asked for.
    pub(crate) fn may_reclaim(&self, place: Place, amounts: &Amounts, from: Place) -> bool {
        let mut needs = *amounts;
        for at in self.path(place) {
            let node = &self.nodes[at as usize];
            let Some(parent) = node.parent else { return false };
            let within = (0..DIMENSIONS).all(|i| {
                needs.0[i] == 0 || node.used.0[i].saturating_add(needs.0[i]) <= node.owned.0[i]
            });
            if !within {
                return false;
            }
            if let Some(branch) = self.branch_below(parent, from)
                && branch != at
            {
                let other = &self.nodes[branch as usize];
                return (0..DIMENSIONS)
                    .any(|i| amounts.0[i] > 0 && other.used.0[i] > other.owned.0[i]);
            }
            let before = node.overflow();
            let after = node.used.plus(&needs);
            needs = Amounts(std::array::from_fn(|i| {
                after.0[i].saturating_sub(node.home.0[i]).saturating_sub(before.0[i])
            }));
        }
        false
    }

    /// The child of `ancestor` on the way down to `place`, if it is below it.
    fn branch_below(&self, ancestor: Place, place: Place) -> Option<Place> {
        self.path(place).find(|&at| self.nodes[at as usize].parent == Some(ancestor))
    }

    /// Queues that hold more than their limits allow since those were cut.
    pub(crate) fn overdrawn(&self) -> Option<(Place, Dimension)> {
        (0..self.nodes.len()).rev().find_map(|at| {
            let node = &self.nodes[at];
            let ceiling = if node.parent.is_none() {
                node.owned
            } else {
                node.owned.plus(&node.quota.borrowing)
            };
            node.used.short_of(&ceiling).map(|dimension| (at as Place, dimension))
        })
    }

    /// The queues below a place that jobs are in.
    pub(crate) fn leaves_below(&self, at: Place) -> impl Iterator<Item = (Place, QueueId)> + '_ {
        (0..self.nodes.len() as Place)
            .filter(move |&place| self.is_leaf(place) && self.is_below(place, at))
            .filter_map(|place| Some((place, self.id(place)?)))
    }

    /// Whether `place` is `ancestor` or below it.
    pub(crate) fn is_below(&self, place: Place, ancestor: Place) -> bool {
        self.path(place).any(|at| at == ancestor)
    }

    /// What a queue and all above it used before anybody counted here.
    pub(crate) fn used_before(&mut self, place: Place, seconds: &Seconds) {
        let path: Vec<Place> = self.path(place).collect();
        for at in path {
            let node = &mut self.nodes[at as usize];
            node.usage.bring(self.now, &node.held, self.half_life);
            node.usage.add(seconds);
        }
    }

    /// What a queue has used of late, as a share of `capacity`.
    pub(crate) fn used(&self, place: Place, capacity: &Amounts) -> f64 {
        let node = &self.nodes[place as usize];
        let mut usage = node.usage;
        usage.bring(self.now, &node.held, self.half_life);
        usage.share(capacity, self.half_life)
    }

    /// Whether what was used counts.
    pub(crate) fn remembers(&self) -> bool {
        !self.half_life.is_off()
    }

    /// Where a queue stands among those that borrow: what it has and has had, by its weight, from the
    /// tenant down.
    pub(crate) fn fair(&self, place: Place, capacity: &Amounts) -> Fair {
        let mut fair = [Score::of(0.0); MAX_DEPTH];
        if !self.remembers() {
            return fair;
        }
        let levels = self.path(place).filter(|&at| at != ROOT);
        let mut depth = 0;
        for at in levels {
            let weight = f64::from(self.nodes[at as usize].weight);
            let used = self.used(at, capacity) / weight;
            fair[depth.min(MAX_DEPTH - 1)] = Score::of(used + self.share(at, capacity));
            depth += 1;
        }
        fair[..depth.min(MAX_DEPTH)].reverse();
        fair
    }

    /// The weighted dominant share of what a queue holds of `capacity`.
    pub(crate) fn share(&self, place: Place, capacity: &Amounts) -> f64 {
        let node = &self.nodes[place as usize];
        let share = (0..DIMENSIONS)
            .filter(|&i| capacity.0[i] > 0)
            .map(|i| node.held.0[i] as f64 / capacity.0[i] as f64)
            .fold(0.0, f64::max);
        share / f64::from(node.weight)
    }
}
