//! A definition in the scheduler's words, and the scheduler's refusals in ours.

use falaj_base::{Error, Result, Timestamp, code};
use falaj_scheduler::model::{Dimension, GPU_PARTS, Level};
use falaj_scheduler::{
    Ask, GpuAsk, JobId as Number, JobSpec, MigProfile, Millis, QueueId, Refusal, Spot, Topology,
    Width, ZoneSet,
};

use super::definition::{Definition, MigSlice, Resources, SpotUse, TopologyLevel};
use crate::pool::{PoolNode, Pools};
use crate::queue::tree::{QueueKey, QueueTree};

/// Milliseconds since 1970.
pub(crate) fn millis(at: Timestamp) -> Millis {
    u64::try_from(at.micros() / 1000).unwrap_or(0)
}

pub(crate) fn to_spec(
    definition: &Definition,
    number: Number,
    queue: QueueId,
    zones: ZoneSet,
    pools: &Pools,
) -> Result<JobSpec> {
    let resources = &definition.resources;
    let gpu_type = match &resources.gpu_type {
        Some(name) => Some(pools.gpu_type(name).ok_or_else(|| {
            let allowed = "a type that some pool has";
            Error::invalid("resources.gpu_type", name, allowed)
        })?),
        None => None,
    };
    let nodes = Width {
        min: resources.nodes,
        max: resources.max_nodes.unwrap_or(resources.nodes).max(resources.nodes),
    };
    let limit = definition.time_limit;
    let limit = limit.map(|limit| u64::try_from(limit.get().as_millis()).unwrap_or(u64::MAX));
    Ok(JobSpec {
        id: number,
        queue,
        priority: definition.priority,
        per_node: Ask {
            cpu: resources.cpu_millis(),
            memory: resources.memory_mib(),
            gpu: gpu_ask(resources),
            gpu_type,
        },
        nodes,
        zones,
        spot: match definition.spot {
            SpotUse::Never => Spot::Never,
            SpotUse::Allowed => Spot::Allowed,
            SpotUse::UntilDeadlineNears => Spot::UntilDeadlineNears,
        },
        topology: match resources.topology {
            None => Topology::Anywhere,
            Some(topology) => {
                let level = match topology.level {
                    TopologyLevel::Rack => Level::Rack,
                    TopologyLevel::Block => Level::Block,
                };
                if topology.required { Topology::Require(level) } else { Topology::Prefer(level) }
            }
        },
        deadline: definition.deadline.map(millis),
        time_limit: limit,
        minimum_run: 0,
        oracle: None,
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a fraction of 700 parts"
)]
fn gpu_ask(resources: &Resources) -> GpuAsk {
    if let Some(slice) = resources.mig {
        return GpuAsk::Mig(profile(slice));
    }
    if let Some(part) = resources.gpu_fraction {
        return GpuAsk::Fraction((part * GPU_PARTS as f64).round().max(1.0) as u16);
    }
    if resources.gpus > 0 { GpuAsk::Whole(resources.gpus) } else { GpuAsk::None }
}

fn profile(slice: MigSlice) -> MigProfile {
    match slice {
        MigSlice::G1 => MigProfile::G1,
        MigSlice::G2 => MigProfile::G2,
        MigSlice::G3 => MigProfile::G3,
        MigSlice::G4 => MigProfile::G4,
        MigSlice::G7 => MigProfile::G7,
    }
}

/// How much of a GPU a slice is.
pub(crate) fn mig_sevenths(slice: MigSlice) -> u64 {
    profile(slice).sevenths()
}

/// How much of a dimension, for people.
#[allow(clippy::cast_precision_loss, reason = "amounts are far below 2^52")]
pub(crate) fn amount(dimension: Dimension, amount: u64, pools: &Pools) -> String {
    match dimension {
        Dimension::Cpu => format!("{} cores", amount as f64 / 1000.0),
        Dimension::Memory => format!("{amount} MiB of memory"),
        Dimension::Gpu => format!("{} GPUs", amount as f64 / GPU_PARTS as f64),
        Dimension::GpuOf(kind) => {
            let name = pools.gpu_type_name(kind).map_or("?", |name| name.as_str());
            format!("{} GPUs of type {name}", amount as f64 / GPU_PARTS as f64)
        }
    }
}

/// Why a job can never run, as an error of whoever submits it.
pub(crate) fn explain(
    refusal: &Refusal,
    definition: &Definition,
    pool: &str,
    (tree, pools): (&QueueTree, &Pools),
) -> Error {
    let resources = &definition.resources;
    let queue = definition.queue.as_ref().map_or("", |name| name.as_str());
    match refusal {
        Refusal::UnknownQueue(_) => Error::invalid("queue", queue, "a queue of the tenant"),
        Refusal::QueueHasChildren(_) => {
            Error::invalid("queue", queue, "a queue that has none below it")
        }
        Refusal::Duplicate => Error::internal("a number was used twice"),
        Refusal::Invalid(text) => Error::new(&code::INVALID_INPUT, (*text).to_owned()),
        Refusal::NoNodeLargeEnough => {
            let nodes = pools.nodes.iter();
            let nodes = nodes.filter(|node| pools.list[node.pool].name.as_str() == pool);
            let would_do = |node: &PoolNode| {
                node.spec.cpu >= resources.cpu_millis()
                    && node.spec.memory >= resources.memory_mib()
                    && node.spec.gpus >= resources.gpus
            };
            if definition.spot == SpotUse::Never
                && nodes.clone().any(|node| node.spec.spot && would_do(node))
            {
                let allowed = format!(
                    "`allowed`: nodes of pool `{pool}` that are large enough may be taken away at any time"
                );
                return Error::invalid("spot", "never", allowed);
            }
            let largest = nodes.max_by_key(|node| (node.spec.gpus, node.spec.cpu));
            let allowed = largest.map_or_else(String::new, |node| {
                format!(
                    "what a node of pool `{pool}` has; the largest has {} cores, {} MiB and {} GPUs",
                    f64::from(node.spec.cpu) / 1000.0,
                    node.spec.memory,
                    node.spec.gpus
                )
            });
            let asked = format!(
                "{} cores, {} and {} GPUs on each node",
                resources.cpu, resources.memory, resources.gpus
            );
            Error::invalid("resources", asked, allowed)
        }
        Refusal::TooFewNodes { needs, there_are } => {
            let allowed =
                format!("at most {there_are}: so many nodes of pool `{pool}` are fit for it");
            Error::invalid("resources.nodes", needs, allowed)
        }
        Refusal::NoNodeInZones => {
            let zones: Vec<_> = definition.zones.iter().map(ToString::to_string).collect();
            Error::invalid("zones", zones.join(", "), format!("zones that pool `{pool}` has"))
        }
        Refusal::OverQuota { queue, dimension, needs, at_most } => {
            let whose = tree.key(*queue).map_or_else(|| "its queue".to_owned(), QueueKey::shown);
            let needs = amount(*dimension, *needs, pools);
            let most = amount(*dimension, *at_most, pools);
            let allowed = format!("at most {most}: {whose} can never have more");
            Error::invalid("resources", needs, allowed)
        }
        Refusal::DeadlinePassed { .. } => {
            let given = definition.deadline.map(|at| at.to_string()).unwrap_or_default();
            Error::invalid("deadline", given, "a time to come")
        }
    }
}
