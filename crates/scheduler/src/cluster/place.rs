//! Finding nodes for a gang.
//!
//! One node is found by best fit: the fewest GPUs left over, then the least CPU. Of partly used
//! GPUs the fullest that still has room. A gang that wants to stay together takes the rack or block
//! in which the fewest nodes would be left over. Nodes without GPUs come first for those who want
//! none; spot before on demand for those who may; cheap before dear.

use std::collections::BTreeMap;

use super::Cluster;
use super::class::{Class, Kind};
use super::node::Node;
use crate::model::{Ask, GpuAsk, GpuType, Level, NodeId, Spot, Topology, ZoneSet};

/// Which nodes may be used at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter {
    pub(crate) zones: ZoneSet,
    pub(crate) spot: Spot,
    /// Types of GPUs that quotas leave room for, by bit.
    pub(crate) types: u8,
    /// The slot of the job, for whom nodes may be kept.
    pub(crate) slot: u32,
}

impl Filter {
    pub(crate) fn admits(&self, kind: &Kind, ask: &Ask) -> bool {
        self.zones.has(kind.zone)
            && match self.spot {
                Spot::Never => !kind.spot,
                Spot::Allowed => true,
                Spot::UntilDeadlineNears => kind.spot,
            }
            && (ask.gpu == GpuAsk::None
                || (kind.gpus > 0
                    && self.types >> kind.gpu_type.0 & 1 == 1
                    && ask.gpu_type.is_none_or(|wanted| wanted == kind.gpu_type)))
    }

    pub(crate) fn admits_node(&self, node: &Node, ask: &Ask) -> bool {
        self.admits(&Kind::of(&node.spec), ask)
    }
}

impl Cluster {
    /// Nodes on which `count` shares fit now, best first; fewer if there are no more.
    pub(crate) fn find(
        &self,
        ask: &Ask,
        count: u16,
        topology: Topology,
        filter: &Filter,
    ) -> Vec<NodeId> {
        let count = usize::from(count);
        match topology {
            Topology::Prefer(level) | Topology::Require(level) if count > 1 => {
                let together = self.find_together(ask, count, level, filter);
                if together.len() >= count || matches!(topology, Topology::Require(_)) {
                    return together;
                }
            }
            _ => {}
        }
        if ask.gpu == GpuAsk::None || count == 1 {
            return self.find_among(ask, count, filter, None);
        }
        // A gang has one type of GPU throughout.
        let mut best = Vec::new();
        for kind in self.types_of(ask, filter) {
            let found = self.find_among(ask, count, filter, Some(kind));
            if found.len() >= count {
                return found;
            }
            if found.len() > best.len() {
                best = found;
            }
        }
        best
    }

    fn types_of(&self, ask: &Ask, filter: &Filter) -> Vec<GpuType> {
        let mut types = Vec::new();
        for &at in &self.preference {
            let kind = &self.classes[at as usize].kind;
            if filter.admits(kind, ask) && !types.contains(&kind.gpu_type) {
                types.push(kind.gpu_type);
            }
        }
        types
    }

    fn find_among(
        &self,
        ask: &Ask,
        count: usize,
        filter: &Filter,
        only: Option<GpuType>,
    ) -> Vec<NodeId> {
        let mut found = Vec::with_capacity(count);
        for &at in &self.preference {
            let class = &self.classes[at as usize];
            if !filter.admits(&class.kind, ask) || only.is_some_and(|t| t != class.kind.gpu_type) {
                continue;
            }
            self.find_in(class, ask, count, &mut found);
            if found.len() >= count {
                break;
            }
        }
        found
    }

    /// Adds nodes of a class until there are `count`.
    fn find_in(&self, class: &Class, ask: &Ask, count: usize, found: &mut Vec<NodeId>) {
        let mut add = |id: u32| {
            let node = self.nodes[id as usize].as_ref();
            if node.is_some_and(|node| node.fits(ask)) && !found.contains(&NodeId(id)) {
                found.push(NodeId(id));
            }
            found.len() >= count
        };
        let least = match ask.gpu {
            GpuAsk::None => 0,
            GpuAsk::Whole(gpus) => usize::from(gpus),
            GpuAsk::Fraction(parts) => {
                if class.shared.range((parts, 0)..).any(|&(_, id)| add(id)) {
                    return;
                }
                1
            }
            GpuAsk::Mig(profile) => {
                if !class.kind.mig || class.cut[profile as usize].iter().any(|&id| add(id)) {
                    return;
                }
                1
            }
        };
        for bucket in class.by_free.iter().skip(least) {
            if bucket.range((ask.cpu, 0)..).any(|&(_, id)| add(id)) {
                return;
            }
        }
    }

    /// A rack or block with room for all, with the fewest such nodes left over; all that fit in the
    /// roomiest one if there is none.
    fn find_together(&self, ask: &Ask, count: usize, level: Level, filter: &Filter) -> Vec<NodeId> {
        let mut domains: BTreeMap<(GpuType, u32), Vec<NodeId>> = BTreeMap::new();
        for class in &self.classes {
            if !filter.admits(&class.kind, ask) {
                continue;
            }
            for &id in &class.all {
                let Some(node) = self.nodes[id as usize].as_ref() else { continue };
                if !self.takes_new(node, filter) || !node.fits(ask) {
                    continue;
                }
                let domain = domain_of(node, level);
                let kind = if ask.gpu == GpuAsk::None { GpuType(0) } else { node.spec.gpu_type };
                domains.entry((kind, domain)).or_default().push(NodeId(id));
            }
        }
        let enough = domains.iter().filter(|(_, nodes)| nodes.len() >= count);
        let best = enough.min_by_key(|(key, nodes)| (nodes.len(), **key));
        let best = best.or_else(|| domains.iter().max_by_key(|(_, nodes)| nodes.len()));
        let Some((_, nodes)) = best else { return Vec::new() };
        let mut nodes = nodes.clone();
        nodes.sort_by_key(|&id| (self.node(id).map_or(0, |node| node.whole_free), id));
        nodes.truncate(count);
        nodes
    }

    #[allow(clippy::unused_self, reason = "reads as a question to the cluster")]
    fn takes_new(&self, node: &Node, filter: &Filter) -> bool {
        node.status == super::Status::Up && node.kept_for.is_none_or(|slot| slot == filter.slot)
    }

    /// How many nodes could ever hold a share, and how many the filter leaves of whatever size;
    /// for gangs that must stay together, of the largest rack or block.
    pub(crate) fn could_hold(&self, ask: &Ask, topology: Topology, filter: &Filter) -> (u32, u32) {
        let mut domains: BTreeMap<(GpuType, u32), u32> = BTreeMap::new();
        let mut admitted = 0;
        for class in &self.classes {
            if !filter.admits(&class.kind, ask) {
                continue;
            }
            admitted += class.all.len() as u32;
            for &id in &class.all {
                let Some(node) = self.nodes[id as usize].as_ref() else { continue };
                if node.could_fit(ask) {
                    let domain = match topology {
                        Topology::Require(level) => domain_of(node, level),
                        _ => 0,
                    };
                    let kind =
                        if ask.gpu == GpuAsk::None { GpuType(0) } else { node.spec.gpu_type };
                    *domains.entry((kind, domain)).or_default() += 1;
                }
            }
        }
        (domains.values().copied().max().unwrap_or(0), admitted)
    }
}

pub(crate) fn domain_of(node: &Node, level: Level) -> u32 {
    match level {
        Level::Rack => node.spec.rack,
        Level::Block => node.spec.block,
    }
}

impl Cluster {
    pub(crate) fn domain(&self, id: NodeId, level: Level) -> Option<u32> {
        self.node(id).map(|node| domain_of(node, level))
    }
}
