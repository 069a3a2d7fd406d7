//! Waiting jobs, by class.
//!
//! Jobs that ask for the same in the same queue are a class. If one of them cannot start in a pass
//! then none behind it in the class can, so a pass looks at one job of each class that is stuck, and
//! what it finds holds for all of them: a million waiting jobs cost as much as they have classes.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::model::{Ask, Dimension, JobId, Millis, Spot, Topology, Width, ZoneSet};
use crate::quota::Place;
use crate::ranked::RankedSet;

/// What makes jobs alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) queue: Place,
    pub(crate) ask: Ask,
    pub(crate) nodes: Width,
    pub(crate) zones: ZoneSet,
    pub(crate) spot: Spot,
    pub(crate) topology: Topology,
    pub(crate) time_limit: Option<Millis>,
    /// What the policy tells jobs apart by.
    pub(crate) tag: u32,
}

/// Why the first of a class did not start in the last pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No pass has looked yet.
    Unseen,
    /// A queue has no room in its quota.
    Quota(Dimension),
    /// Fewer nodes have room than are needed.
    NoRoom { found: u16, needs: u16 },
    /// The first in line cannot start, and nobody may pass it.
    Behind(JobId),
    /// There is room, but the last of it is left for short jobs to come.
    Headroom,
    /// There is room, but on nodes kept for another.
    Kept(JobId),
}

/// Scores in an order that sets can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score(u64);

impl Score {
    pub(crate) const FIRST: Self = Self(0);
    pub(crate) const LAST: Self = Self(u64::MAX);

    pub(crate) fn of(score: f64) -> Self {
        let bits = score.to_bits();
        Self(if bits >> 63 == 1 { !bits } else { bits | 1 << 63 })
    }
}

/// Jobs that never ran: all of one score, in the order they came.
pub(crate) type FreshKey = (Reverse<i16>, u64, u32);
/// Jobs with a score of their own.
pub(crate) type ScoredKey = (Reverse<i16>, Score, u64, u32);

#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) shape: Shape,
    pub(crate) fresh: RankedSet<FreshKey>,
    pub(crate) scored: RankedSet<ScoredKey>,
    pub(crate) considered: Millis,
    pub(crate) verdict: Verdict,
    /// Where it stands among the classes that have jobs.
    active: Option<u32>,
}

impl Class {
    pub(crate) fn len(&self) -> usize {
        self.fresh.len() + self.scored.len()
    }
}

/// Where a waiting job is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Fresh,
    Scored(Score),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    classes: Vec<Class>,
    by_shape: HashMap<Shape, u32>,
    active: Vec<u32>,
    /// Places of classes that nobody is in any more.
    free: Vec<u32>,
    len: usize,
}

impl Waiting {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn class(&self, at: u32) -> &Class {
        &self.classes[at as usize]
    }

    pub(crate) fn class_mut(&mut self, at: u32) -> &mut Class {
        &mut self.classes[at as usize]
    }

    /// The classes that have jobs.
    pub(crate) fn active(&self) -> &[u32] {
        &self.active
    }

    /// The class of a shape. A job must join it at once: classes that lose their last are forgotten.
    pub(crate) fn class_of(&mut self, shape: &Shape) -> u32 {
        if let Some(&at) = self.by_shape.get(shape) {
            return at;
        }
        let class = Class {
            shape: *shape,
            fresh: RankedSet::default(),
            scored: RankedSet::default(),
            considered: 0,
            verdict: Verdict::Unseen,
            active: None,
        };
        let at = if let Some(at) = self.free.pop() {
            self.classes[at as usize] = class;
            at
        } else {
            self.classes.push(class);
            self.classes.len() as u32 - 1
        };
        self.by_shape.insert(*shape, at);
        at
    }

    pub(crate) fn insert(&mut self, at: u32, priority: i16, lane: Lane, sequence: u64, slot: u32) {
        let position = self.active.len() as u32;
        let class = &mut self.classes[at as usize];
        match lane {
            Lane::Fresh => class.fresh.insert((Reverse(priority), sequence, slot)),
            Lane::Scored(score) => class.scored.insert((Reverse(priority), score, sequence, slot)),
        };
        if class.active.is_none() {
            class.active = Some(position);
            self.active.push(at);
        }
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, at: u32, priority: i16, lane: Lane, sequence: u64, slot: u32) {
        let class = &mut self.classes[at as usize];
        let there = match lane {
            Lane::Fresh => class.fresh.remove(&(Reverse(priority), sequence, slot)),
            Lane::Scored(score) => class.scored.remove(&(Reverse(priority), score, sequence, slot)),
        };
        debug_assert!(there, "a waiting job is in its class");
        self.len -= 1;
        if class.len() == 0
            && let Some(position) = class.active.take()
        {
            self.by_shape.remove(&class.shape);
            self.free.push(at);
            self.active.swap_remove(position as usize);
            if let Some(&moved) = self.active.get(position as usize) {
                self.classes[moved as usize].active = Some(position);
            }
        }
    }
}
