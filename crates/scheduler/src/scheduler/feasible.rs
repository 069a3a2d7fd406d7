//! Whether a job could run if everything were idle. Asked once for each shape, not for each job.

use std::collections::HashMap;

use super::Scheduler;
use crate::cluster::Filter;
use crate::decision::Refusal;
use crate::model::{GpuAsk, GpuType, JobSpec, Spot};
use crate::quota::Place;
use crate::waiting::Shape;

/// What was found for shapes, until nodes or quotas change.
#[derive(Clone, Debug, Default)]
pub(super) struct Feasible {
    known: HashMap<Shape, Option<Refusal>>,
}

/// More shapes than this are not remembered.
const REMEMBERED: usize = 100_000;

impl Feasible {
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }
}

impl Scheduler {
    pub(super) fn could_ever_run(&mut self, queue: Place, spec: &JobSpec) -> Result<(), Refusal> {
        let shape = Shape {
            queue,
            ask: spec.per_node,
            nodes: spec.nodes,
            zones: spec.zones,
            spot: spec.spot,
            topology: spec.topology,
            time_limit: None,
            tag: 0,
        };
        if let Some(known) = self.feasible.known.get(&shape) {
            return known.clone().map_or(Ok(()), Err);
        }
        let found = self.look_whether(&shape, spec).err();
        if self.feasible.known.len() < REMEMBERED {
            self.feasible.known.insert(shape, found.clone());
        }
        found.map_or(Ok(()), Err)
    }

    fn look_whether(&self, shape: &Shape, spec: &JobSpec) -> Result<(), Refusal> {
        let needs = shape.nodes.min;
        let kinds: Vec<GpuType> = match (shape.ask.gpu, shape.ask.gpu_type) {
            (GpuAsk::None, _) => vec![GpuType(0)],
            (_, Some(kind)) => vec![kind],
            _ => (0..8).filter(|t| self.cluster.gpu_types() >> t & 1 == 1).map(GpuType).collect(),
        };
        let most = self.quota.ceiling(shape.queue);
        let short = kinds
            .iter()
            .map(|&kind| shape.ask.amounts(kind).times(needs.into()))
            .map(|amounts| amounts.short_of(&most).map(|dimension| (amounts, dimension)));
        let short: Vec<_> = short.collect();
        if let Some(Some((amounts, dimension))) = short.first()
            && short.iter().all(Option::is_some)
        {
            return Err(Refusal::OverQuota {
                queue: spec.queue,
                dimension: *dimension,
                needs: amounts.get(*dimension),
                at_most: most.get(*dimension),
            });
        }
        if self.cluster.is_empty() {
            // Nodes have not come up yet; what they will be is not known.
            return Ok(());
        }
        // On demand is the fallback of whoever waits for spot.
        let spot = if shape.spot == Spot::Never { Spot::Never } else { Spot::Allowed };
        let filter = Filter { zones: shape.zones, spot, types: u8::MAX, slot: u32::MAX };
        let (hold, admitted) = self.cluster.could_hold(&shape.ask, shape.topology, &filter);
        if hold >= needs.into() {
            return Ok(());
        }
        let zones_only = self.cluster.nodes().any(|node| shape.zones.has(node.spec.zone));
        Err(if !zones_only {
            Refusal::NoNodeInZones
        } else if hold == 0 || admitted == 0 {
            Refusal::NoNodeLargeEnough
        } else {
            Refusal::TooFewNodes { needs, there_are: hold as u16 }
        })
    }
}
