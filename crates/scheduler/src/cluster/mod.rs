//! The nodes, and where something fits.
//!
//! Must hold: every change of a node goes through [`Cluster::change`], which takes it out of the
//! lists of its class before and puts it back after.

mod class;
mod device;
mod node;
mod place;

use std::collections::HashMap;

pub use device::Device;
pub use node::{Node, Status};
pub(crate) use place::Filter;

use crate::decision::Placed;
use crate::model::{
    Amounts, Ask, Dimension, GPU_PARTS, GpuType, JobId, MAX_GPU_TYPES, MAX_GPUS, NodeId, NodeSpec,
};
use class::{Class, Kind};

/// Node numbers are below this.
pub const MAX_NODES: u32 = 1 << 20;

#[derive(Clone, Debug, Default)]
pub struct Cluster {
    nodes: Vec<Option<Node>>,
    classes: Vec<Class>,
    by_kind: HashMap<Kind, u32>,
    /// Classes as they are looked through: without GPUs first, then cheap before dear.
    preference: Vec<u32>,
    capacity: Amounts,
    count: u32,
}

impl Cluster {
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)?.as_ref()
    }

    /// Everything on nodes that are up or drained.
    #[must_use]
    pub fn capacity(&self) -> &Amounts {
        &self.capacity
    }

    #[must_use]
    pub fn len(&self) -> u32 {
        self.count
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().flatten()
    }

    /// Types of GPUs that some node has.
    pub(crate) fn gpu_types(&self) -> u8 {
        let with = self.classes.iter().filter(|class| class.kind.gpus > 0);
        with.fold(0, |set, class| set | 1 << class.kind.gpu_type.0)
    }

    pub(crate) fn is_valid(spec: &NodeSpec) -> bool {
        spec.id.0 < MAX_NODES
            && spec.gpus <= MAX_GPUS
            && usize::from(spec.gpu_type.0) < MAX_GPU_TYPES
            && spec.zone.0 < 64
    }

    fn size(spec: &NodeSpec) -> Amounts {
        let parts = u64::from(spec.gpus) * GPU_PARTS;
        let mut size = Amounts::ZERO
            .with(Dimension::Cpu, spec.cpu.into())
            .with(Dimension::Memory, spec.memory.into());
        if parts > 0 {
            size = size.with(Dimension::Gpu, parts).with(Dimension::GpuOf(spec.gpu_type), parts);
        }
        size
    }

    /// Adds a node. One that was there must have been emptied and removed.
    pub(crate) fn add(&mut self, spec: NodeSpec) {
        let kind = Kind::of(&spec);
        let class = if let Some(&class) = self.by_kind.get(&kind) {
            class
        } else {
            let class = self.classes.len() as u32;
            self.classes.push(Class::new(kind.clone()));
            self.by_kind.insert(kind, class);
            self.preference.push(class);
            let classes = &self.classes;
            self.preference.sort_by_key(|&at| {
                let kind = &classes[at as usize].kind;
                (kind.gpus > 0, !kind.spot, kind.price, at)
            });
            class
        };
        let index = spec.id.0 as usize;
        if self.nodes.len() <= index {
            self.nodes.resize_with(index + 1, || None);
        }
        self.capacity = self.capacity.plus(&Self::size(&spec));
        self.count += 1;
        self.classes[class as usize].all.push(spec.id.0);
        let node = Node::new(spec, class);
        self.classes[class as usize].list(&node);
        self.nodes[index] = Some(node);
    }

    /// Forgets a node. Nobody may be on it.
    pub(crate) fn remove(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id.0 as usize).and_then(Option::take) else { return };
        let class = &mut self.classes[node.class as usize];
        class.unlist(&node);
        class.all.retain(|&other| other != id.0);
        self.count -= 1;
        if node.status != Status::Down {
            self.capacity = self.capacity.less(&Self::size(&node.spec));
        }
    }

    pub(crate) fn set_status(&mut self, id: NodeId, status: Status) {
        let Some(before) = self.node(id).map(|node| node.status) else { return };
        self.change(id, |node| node.status = status);
        let Some(node) = self.node(id) else { return };
        let size = Self::size(&node.spec);
        match (before, status) {
            (Status::Down, Status::Up | Status::Drained) => {
                self.capacity = self.capacity.plus(&size);
            }
            (Status::Up | Status::Drained, Status::Down) => {
                self.capacity = self.capacity.less(&size);
            }
            _ => {}
        }
    }

    /// Changes a node and keeps the lists true.
    pub(crate) fn change<T>(
        &mut self,
        id: NodeId,
        change: impl FnOnce(&mut Node) -> T,
    ) -> Option<T> {
        let node = self.nodes.get_mut(id.0 as usize)?.as_mut()?;
        let class = &mut self.classes[node.class as usize];
        class.unlist(node);
        let result = change(node);
        class.list(node);
        Some(result)
    }

    /// Takes a share on each of the nodes; on none if one of them has no room after all.
    pub(crate) fn take(&mut self, slot: u32, ask: &Ask, nodes: &[NodeId]) -> Option<Vec<Placed>> {
        let mut placement = Vec::with_capacity(nodes.len());
        for &id in nodes {
            let placed = self.change(id, |node| {
                let placed = node.take(ask)?;
                node.jobs.push(slot);
                Some(placed)
            });
            let Some(Some(placed)) = placed else {
                self.give_back(slot, ask, &placement);
                return None;
            };
            placement.push(placed);
        }
        Some(placement)
    }

    /// Takes again exactly what was given back a moment ago.
    pub(crate) fn retake(&mut self, slot: u32, ask: &Ask, placement: &[Placed]) {
        for placed in placement {
            self.change(placed.node, |node| {
                node.retake(ask, placed);
                node.jobs.push(slot);
            });
        }
    }

    pub(crate) fn give_back(&mut self, slot: u32, ask: &Ask, placement: &[Placed]) {
        for placed in placement {
            self.change(placed.node, |node| {
                node.give_back(ask, placed);
                if let Some(at) = node.jobs.iter().position(|&job| job == slot) {
                    node.jobs.swap_remove(at);
                }
            });
        }
    }

    pub(crate) fn gpu_type_of(&self, id: NodeId) -> GpuType {
        self.node(id).map_or(GpuType(0), |node| node.spec.gpu_type)
    }
}

impl Cluster {
    /// Somebody was told to leave a node. The lists do not change by that.
    pub(crate) fn note_leaving(&mut self, id: NodeId, job: JobId) {
        if let Some(Some(node)) = self.nodes.get_mut(id.0 as usize)
            && node.status != Status::Down
        {
            node.leaving.push(job);
        }
    }

    pub(crate) fn note_left(&mut self, id: NodeId, job: JobId) {
        if let Some(Some(node)) = self.nodes.get_mut(id.0 as usize) {
            node.leaving.retain(|&other| other != job);
        }
    }
}
