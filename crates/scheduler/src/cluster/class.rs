//! Nodes that are alike, sorted by what is free on them.

use std::collections::BTreeSet;

use super::node::{Node, Status};
use crate::model::{GpuType, MigProfile, NodeSpec, Zone};

/// What makes nodes alike for those who look for a place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(crate) gpus: u8,
    pub(crate) gpu_type: GpuType,
    pub(crate) mig: bool,
    pub(crate) zone: Zone,
    pub(crate) spot: bool,
    pub(crate) price: u64,
}

impl Kind {
    pub(crate) fn of(spec: &NodeSpec) -> Self {
        Self {
            gpus: spec.gpus,
            gpu_type: spec.gpu_type,
            mig: spec.mig,
            zone: spec.zone,
            spot: spec.spot,
            price: spec.price,
        }
    }
}

/// The nodes of a kind that take new work. Looking for the best place goes up from the fullest.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) kind: Kind,
    /// By whole GPUs free: (CPU free, node).
    pub(crate) by_free: Vec<BTreeSet<(u32, u32)>>,
    /// (parts left on a shared device, node).
    pub(crate) shared: BTreeSet<(u16, u32)>,
    /// Nodes with a place for each profile on a device that is cut already.
    pub(crate) cut: [BTreeSet<u32>; 5],
    /// Every node of the kind, whatever its state.
    pub(crate) all: Vec<u32>,
}

impl Class {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            by_free: vec![BTreeSet::new(); usize::from(kind.gpus) + 1],
            kind,
            shared: BTreeSet::new(),
            cut: Default::default(),
            all: Vec::new(),
        }
    }

    /// Whether a node is listed for new work.
    fn lists(node: &Node) -> bool {
        node.status == Status::Up && node.kept_for.is_none()
    }

    pub(crate) fn list(&mut self, node: &Node) {
        if !Self::lists(node) {
            return;
        }
        let id = node.spec.id.0;
        self.by_free[usize::from(node.whole_free)].insert((node.cpu_free, id));
        if node.whole_free == node.spec.gpus {
            return;
        }
        let room = node.shared_room();
        if room > 0 {
            self.shared.insert((room, id));
        }
        if node.spec.mig {
            for (index, profile) in MigProfile::ALL.into_iter().enumerate() {
                if node.cut_room(profile) {
                    self.cut[index].insert(id);
                }
            }
        }
    }

    /// The reverse of `list`, of the node as it was then.
    pub(crate) fn unlist(&mut self, node: &Node) {
        if !Self::lists(node) {
            return;
        }
        let id = node.spec.id.0;
        self.by_free[usize::from(node.whole_free)].remove(&(node.cpu_free, id));
        if node.whole_free == node.spec.gpus {
            return;
        }
        let room = node.shared_room();
        if room > 0 {
            self.shared.remove(&(room, id));
        }
        if node.spec.mig {
            for set in &mut self.cut {
                set.remove(&id);
            }
        }
    }
}
