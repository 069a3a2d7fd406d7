//! Pools: nodes, and the executor that reaches them. Fixed while the server runs.
//!
//! Must hold:
//! - A job is in one pool with all its nodes: what an executor starts, it starts whole.
//! - The scheduler's zones are pairs of a pool and a residency zone, so that both are one hard filter.

pub(crate) mod engine;
pub(crate) mod http;
pub mod kubernetes;
mod machine;
#[cfg(test)]
mod none;
mod service;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use falaj_base::{Error, Name, Result, code};
use falaj_executors::Executor;
use falaj_scheduler::model::MAX_GPU_TYPES;
use falaj_scheduler::{GpuType, NodeId, NodeSpec, Zone, ZoneSet};

pub use machine::Machine;
#[cfg(test)]
pub(crate) use none::no_engine;
pub use service::{AwayShown, NodeShown, PoolShown};

use crate::autoscale::NodeState;
use crate::autoscale::config::AutoscaleConfig;
use crate::config::{LOCAL, NodeConfig, PoolKind, TrainingConfig};
use crate::name::GpuTypeName;

/// Pairs of a pool and a zone that the scheduler can tell apart.
const MAX_ZONES: usize = 64;
const MILLIONTHS: f64 = 1_000_000.0;

/// One pool.
pub struct Pool {
    pub name: Name,
    pub kind: PoolKind,
    /// Whose contributors may use it; everybody's if absent.
    pub tenants: Option<Vec<Name>>,
    /// Whether its jobs are commands of the server's own user.
    pub is_server: bool,
    pub executor: Arc<dyn Executor>,
    /// How many of its nodes there should be, if they come and go.
    pub autoscale: Option<AutoscaleConfig>,
}

impl Pool {
    /// How a node stands of which nobody has said anything.
    pub(crate) fn without_row(&self) -> NodeState {
        if self.autoscale.is_some() { NodeState::Away } else { NodeState::Up }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// One node of a pool.
#[derive(Clone, Debug)]
pub struct PoolNode {
    pub pool: usize,
    pub name: String,
    pub address: String,
    pub zone: Name,
    pub rack: Option<String>,
    pub block: Option<String>,
    /// What its machine calls the first of its GPUs: a machine may be several nodes.
    pub first_gpu: u8,
    pub spec: NodeSpec,
}

/// All pools and nodes.
#[derive(Debug)]
pub struct Pools {
    pub list: Vec<Pool>,
    /// By the scheduler's numbers.
    pub nodes: Vec<PoolNode>,
    gpu_types: Vec<GpuTypeName>,
    zones: Vec<(usize, Name)>,
    /// One node of each kind, by pool: those that differ in where they stand alone are of one kind.
    kinds: Vec<Vec<NodeSpec>>,
}

/// Makes the executor of a pool.
pub type Engines<'a> = dyn FnMut(&Name, PoolKind) -> Result<Arc<dyn Executor>> + 'a;

impl Pools {
    /// The pools of a configuration. `home` is the zone of the platform itself.
    pub fn new(
        config: &TrainingConfig,
        home: &Name,
        machine: &Machine,
        engines: &mut Engines<'_>,
    ) -> Result<Self> {
        config.check()?;
        let mut pools = Self {
            list: Vec::new(),
            nodes: Vec::new(),
            gpu_types: Vec::new(),
            zones: Vec::new(),
            kinds: Vec::new(),
        };
        let mut places = Places::default();
        if config.local.enabled {
            pools.add_local(config, home, machine, engines, &mut places)?;
        }
        for pool in &config.pool {
            let executor = engines(&pool.name, pool.kind)?;
            let at = pools.list.len();
            pools.list.push(Pool {
                name: pool.name.clone(),
                kind: pool.kind,
                tenants: pool.tenants.clone(),
                is_server: pool.kind == PoolKind::Local,
                executor,
                autoscale: pool.autoscale.clone(),
            });
            for node in &pool.node {
                pools.add_nodes(at, node, home, config, &mut places)?;
            }
        }
        pools.kinds.resize_with(pools.list.len(), Vec::new);
        for node in &pools.nodes {
            let kinds = &mut pools.kinds[node.pool];
            let alike = |kind: &NodeSpec| {
                let NodeSpec { id, rack, block, .. } = *kind;
                NodeSpec { id, rack, block, ..node.spec.clone() } == *kind
            };
            if !kinds.iter().any(alike) {
                kinds.push(node.spec.clone());
            }
        }
        Ok(pools)
    }

    /// This machine, as a pool.
    fn add_local(
        &mut self,
        config: &TrainingConfig,
        home: &Name,
        machine: &Machine,
        engines: &mut Engines<'_>,
        places: &mut Places,
    ) -> Result<()> {
        let name = Name::new(LOCAL)?;
        let executor = match engines(&name, PoolKind::Local) {
            Ok(executor) => executor,
            // It is there without being asked for: everything else must not suffer from it.
            Err(error) => {
                tracing::warn!(error = error.chain(), "no jobs can run on this machine");
                return Ok(());
            }
        };
        let tenants = Some(config.local.tenants.clone());
        let autoscale = None;
        let kind = PoolKind::Local;
        self.list.push(Pool { name, kind, tenants, is_server: true, executor, autoscale });
        let shared = machine.shared(&config.local);
        let (count, parts) = (config.local.nodes.max(1), f64::from(config.local.nodes.max(1)));
        let mut first_gpu = 0;
        for part in 0..count {
            // What does not divide evenly goes to the first ones.
            let gpus = shared.gpus / count + u8::from(part < shared.gpus % count);
            let node = NodeConfig {
                name: if count == 1 { LOCAL.to_owned() } else { format!("{LOCAL}-{part}") },
                count: 1,
                cpu: shared.cpu / parts,
                memory: falaj_base::ByteSize::mib(shared.memory_mib / u64::from(count)),
                gpus,
                gpu_type: shared.gpu_type.clone(),
                mig: config.local.mig,
                zone: None,
                rack: None,
                block: None,
                spot: false,
                price: None,
                address: Some("127.0.0.1".to_owned()),
            };
            let first = self.nodes.len();
            self.add_nodes(0, &node, home, config, places)?;
            if let Some(added) = self.nodes.get_mut(first) {
                added.first_gpu = first_gpu;
            }
            first_gpu += gpus;
        }
        Ok(())
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes and prices of nodes were checked"
    )]
    fn add_nodes(
        &mut self,
        pool: usize,
        node: &NodeConfig,
        home: &Name,
        config: &TrainingConfig,
        places: &mut Places,
    ) -> Result<()> {
        let gpu_type = match &node.gpu_type {
            Some(name) if node.gpus > 0 => self.number_type(name)?,
            _ => GpuType(0),
        };
        let zone_name = node.zone.clone().unwrap_or_else(|| home.clone());
        let zone = self.number_zone(pool, &zone_name)?;
        let listed = if node.gpus > 0 { config.prices.gpu } else { config.prices.core };
        let listed = if node.spot { listed * config.prices.spot } else { listed };
        let price = node.price.unwrap_or(listed);
        for number in 0..node.count.max(1) {
            let name =
                if node.count > 1 { format!("{}{number}", node.name) } else { node.name.clone() };
            let id = u32::try_from(self.nodes.len()).map_err(Error::internal)?;
            let rack = places.rack(pool, node.rack.as_deref());
            let spec = NodeSpec {
                id: NodeId(id),
                cpu: (node.cpu * 1000.0).round() as u32,
                memory: u32::try_from(node.memory.bytes() >> 20).unwrap_or(u32::MAX),
                gpus: node.gpus,
                gpu_type,
                mig: node.mig,
                zone,
                rack,
                block: places.block(pool, node.block.as_deref().or(node.rack.as_deref())),
                spot: node.spot,
                price: (price * MILLIONTHS).round() as u64,
            };
            let address = node.address.clone().unwrap_or_else(|| name.clone());
            let (rack, block) = (node.rack.clone(), node.block.clone());
            self.nodes.push(PoolNode {
                pool,
                name,
                address,
                zone: zone_name.clone(),
                rack,
                block,
                first_gpu: 0,
                spec,
            });
        }
        Ok(())
    }

    fn number_type(&mut self, name: &GpuTypeName) -> Result<GpuType> {
        let known = self.gpu_types.iter().position(|known| known == name);
        let at = known.unwrap_or(self.gpu_types.len());
        if at >= MAX_GPU_TYPES {
            let text = format!("a cluster has at most {MAX_GPU_TYPES} types of GPUs");
            return Err(Error::new(&code::INVALID_CONFIG, text).at("training.pool"));
        }
        if known.is_none() {
            self.gpu_types.push(name.clone());
        }
        Ok(GpuType(u8::try_from(at).map_err(Error::internal)?))
    }

    fn number_zone(&mut self, pool: usize, zone: &Name) -> Result<Zone> {
        let pair = (pool, zone.clone());
        let known = self.zones.iter().position(|known| *known == pair);
        let at = known.unwrap_or(self.zones.len());
        if at >= MAX_ZONES {
            let text = format!("pools have at most {MAX_ZONES} zones together");
            return Err(Error::new(&code::INVALID_CONFIG, text).at("training.pool"));
        }
        if known.is_none() {
            self.zones.push(pair);
        }
        Ok(Zone(u8::try_from(at).map_err(Error::internal)?))
    }

    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.list.iter().position(|pool| pool.name.as_str() == name)
    }

    #[must_use]
    pub fn gpu_type(&self, name: &GpuTypeName) -> Option<GpuType> {
        let at = self.gpu_types.iter().position(|known| known == name)?;
        u8::try_from(at).ok().map(GpuType)
    }

    #[must_use]
    pub fn gpu_type_name(&self, kind: GpuType) -> Option<&GpuTypeName> {
        self.gpu_types.get(usize::from(kind.0))
    }

    /// The zones that nodes of a pool are in.
    #[must_use]
    pub fn zones_of(&self, pool: usize) -> Vec<Name> {
        let zones = self.zones.iter().filter(|(of, _)| *of == pool);
        zones.map(|(_, zone)| zone.clone()).collect()
    }

    /// The scheduler's zones for a pool and some zones of it.
    #[must_use]
    pub fn zone_set(&self, pool: usize, zones: &[Name]) -> ZoneSet {
        let within = self.zones.iter().enumerate();
        let within = within.filter(|(_, (of, zone))| *of == pool && zones.contains(zone));
        let numbers: Vec<Zone> =
            within.filter_map(|(at, _)| u8::try_from(at).ok().map(Zone)).collect();
        ZoneSet::of(&numbers)
    }

    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&PoolNode> {
        self.nodes.get(usize::try_from(id.0).ok()?)
    }

    /// One node of each kind that a pool has.
    #[must_use]
    pub fn kinds(&self, pool: usize) -> &[NodeSpec] {
        self.kinds.get(pool).map_or(&[], Vec::as_slice)
    }

    #[must_use]
    pub fn node_named(&self, pool: usize, name: &str) -> Option<&PoolNode> {
        self.nodes.iter().find(|node| node.pool == pool && node.name == name)
    }
}

/// Racks and blocks by number. Nodes that name none are each alone.
#[derive(Default)]
struct Places {
    known: BTreeMap<(usize, &'static str, String), u32>,
    next: u32,
}

impl Places {
    fn rack(&mut self, pool: usize, name: Option<&str>) -> u32 {
        self.number(pool, "rack", name)
    }

    fn block(&mut self, pool: usize, name: Option<&str>) -> u32 {
        self.number(pool, "block", name)
    }

    fn number(&mut self, pool: usize, level: &'static str, name: Option<&str>) -> u32 {
        let next = self.next;
        let Some(name) = name else {
            self.next += 1;
            return next;
        };
        *self.known.entry((pool, level, name.to_owned())).or_insert_with(|| {
            self.next += 1;
            next
        })
    }
}

/// The executors that are configured, with what they keep below a folder, for the installation of some id.
pub(crate) fn from_config(
    config: &TrainingConfig,
    home: &Name,
    place: (&Path, &str),
) -> Result<Pools> {
    let mut engines = |name: &Name, kind: PoolKind| engine::make(config, name, kind, place);
    Pools::new(config, home, &Machine::found(), &mut engines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LocalConfig;

    #[test]
    fn nodes_of_one_machine_have_each_their_own_gpus() {
        let local = LocalConfig { nodes: 3, ..LocalConfig::default() };
        let config = TrainingConfig { local, ..TrainingConfig::default() };
        let machine = Machine { cpu: 6.0, memory_mib: 4000, gpus: 8, gpu_type: None };
        let home = Name::new("home").unwrap();
        let pools = Pools::new(&config, &home, &machine, &mut no_engine).unwrap();
        let found: Vec<_> = pools.nodes.iter().map(|it| (it.first_gpu, it.spec.gpus)).collect();
        assert_eq!(found, [(0, 3), (3, 3), (6, 2)]);
    }
}
