//! Pools as they are shown.

use falaj_base::Resource;
use falaj_base::{Name, Result, Timestamp};
use falaj_mlflow::Call;
use schemars::JsonSchema;
use serde::Serialize;

use super::Pools;
use crate::autoscale::{AutoscaleShown, NodeState};
use crate::{POOL_READ, Training};

/// A pool and its nodes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PoolShown {
    pub name: Name,
    /// `local`, `slurm`, `ray` or `kubernetes`.
    pub kind: &'static str,
    /// Whether it is the one of jobs that name none.
    pub default: bool,
    /// Whether its jobs are commands of the server's own user.
    pub runs_as_server: bool,
    /// Since when its engine does not answer, and what it said, if this server schedules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away: Option<AwayShown>,
    /// How many of its nodes there should be, if they come and go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<AutoscaleShown>,
    pub nodes: Vec<NodeShown>,
}

/// An engine that does not answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AwayShown {
    pub since: Timestamp,
    /// What it said last.
    pub why: String,
}

/// A node, and what of it is in use.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodeShown {
    pub name: String,
    pub state: NodeState,
    pub zone: Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    pub spot: bool,
    /// Cores.
    pub cpu: f64,
    pub memory_mib: u32,
    pub gpus: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// Of each of its GPUs, where the server can read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_mib: Option<u64>,
    /// Of a GPU for an hour, or of a core where it has none.
    pub price: f64,
}

impl Training {
    /// The pools that the caller's tenant may use.
    pub async fn pools(&self, call: &Call) -> Result<Vec<PoolShown>> {
        let scope = call.place.scope();
        let of = Resource::new("pool", "pools", scope).with(call.place.attributes());
        call.ctx.authorize(&POOL_READ, &of).await?;
        let default = &self.config().default_pool;
        let away = |pool: usize| {
            let (since, why) = self.live().away(pool)?;
            Some(AwayShown { since, why })
        };
        let mut pools = shown(self.pool_list(), default, &call.place.tenant, away);
        self.tell_of_gpus(&mut pools);
        self.tell_of_nodes(&mut pools).await?;
        Ok(pools)
    }
}

impl Training {
    pub(crate) fn shown_node(&self, of: &super::PoolNode) -> NodeShown {
        node(self.pool_list(), of)
    }

    /// What this machine's GPUs say of themselves.
    fn tell_of_gpus(&self, pools: &mut [PoolShown]) {
        let devices = self.board().devices();
        for pool in pools.iter_mut().filter(|pool| pool.runs_as_server) {
            let Some(at) = self.pool_list().by_name(pool.name.as_str()) else { continue };
            for shown in pool.nodes.iter_mut().filter(|node| node.gpus > 0) {
                let node = self.pool_list().node_named(at, &shown.name);
                let first = u32::from(node.map_or(0, |node| node.first_gpu));
                let gpu = devices.iter().find(|gpu| gpu.index == first);
                shown.gpu_memory_mib = gpu.map(|gpu| gpu.memory_bytes >> 20);
            }
        }
    }
}

fn shown(
    pools: &Pools,
    default: &Name,
    tenant: &Name,
    away: impl Fn(usize) -> Option<AwayShown>,
) -> Vec<PoolShown> {
    let usable = |tenants: &Option<Vec<Name>>| tenants.as_ref().is_none_or(|t| t.contains(tenant));
    let list = pools.list.iter().enumerate();
    // That of the server itself is no secret: a platform admin may use it in any tenant.
    let list = list.filter(|(_, pool)| pool.is_server || usable(&pool.tenants));
    list.map(|(at, pool)| PoolShown {
        name: pool.name.clone(),
        kind: pool.kind.as_str(),
        default: pool.name == *default,
        runs_as_server: pool.is_server,
        away: away(at),
        autoscale: None,
        nodes: pools.nodes.iter().filter(|node| node.pool == at).map(|n| node(pools, n)).collect(),
    })
    .collect()
}

#[allow(clippy::cast_precision_loss, reason = "prices are far below 2^52")]
fn node(pools: &Pools, node: &super::PoolNode) -> NodeShown {
    let spec = &node.spec;
    let kind = if spec.gpus > 0 { pools.gpu_type_name(spec.gpu_type) } else { None };
    NodeShown {
        name: node.name.clone(),
        state: pools.list[node.pool].without_row(),
        zone: node.zone.clone(),
        rack: node.rack.clone(),
        block: node.block.clone(),
        spot: spec.spot,
        cpu: f64::from(spec.cpu) / 1000.0,
        memory_mib: spec.memory,
        gpus: spec.gpus,
        gpu_type: kind.map(ToString::to_string),
        gpu_memory_mib: None,
        price: spec.price as f64 / super::MILLIONTHS,
    }
}
