//! What each rank is told about itself and the others. Pure.
//!
//! Ranks are numbered node by node: those of the first node come first. Every framework finds the
//! words it knows; what `torch.distributed` reads is told to all but those who want none of it.

use std::collections::BTreeMap;

use falaj_executors::RankPlace;
use serde_json::json;

use crate::job::Framework;

/// A gang that is about to start.
#[derive(Clone, Debug)]
pub(crate) struct Gang<'a> {
    pub(crate) framework: Framework,
    /// Names, addresses and GPUs (by bit) of its nodes.
    pub(crate) nodes: Vec<(&'a str, &'a str, u16)>,
    pub(crate) ranks_per_node: u16,
    /// Where the ranks meet, on the first node.
    pub(crate) port: u16,
    /// Thousandths of a core of each node.
    pub(crate) cpu_millis: u32,
    /// What all starts of the task have in common.
    pub(crate) run_id: &'a str,
    /// Counted from 1.
    pub(crate) attempt: u32,
    pub(crate) retries: u32,
    /// Whether its executor shows a rank no GPU but its own.
    pub(crate) apart: bool,
}

/// Whether ranks of a node see all its GPUs, and pick one by their number there: the habit of `torchrun` and
/// `horovodrun`. A worker of `TensorFlow` takes every GPU that it sees, so it sees its own.
pub(crate) const fn shares_gpus(framework: Framework) -> bool {
    matches!(framework, Framework::Torch | Framework::Horovod)
}

/// Where each rank runs and what it alone is told.
pub(crate) fn ranks(gang: &Gang<'_>) -> Vec<RankPlace> {
    let local = u32::from(gang.ranks_per_node.max(1));
    let nodes = u32::try_from(gang.nodes.len()).unwrap_or(u32::MAX);
    let world = nodes.saturating_mul(local);
    let mut places = Vec::new();
    for (node_rank, (node, _, devices)) in (0u32..).zip(&gang.nodes) {
        let gpus = bits(*devices);
        for local_rank in 0..local {
            let rank = node_rank * local + local_rank;
            let place = if gang.apart && !gpus.is_empty() {
                // Its GPU is the first that it sees, as if it were alone on a node.
                Place { rank, local_rank: 0, node_rank: rank, nodes: world, world, local: 1 }
            } else {
                Place { rank, local_rank, node_rank, nodes, world, local }
            };
            places.push(RankPlace {
                node: (*node).to_owned(),
                gpus: share(&gpus, local_rank, local),
                env: told(gang, &place, local),
            });
        }
    }
    places
}

/// Where a rank stands in its gang.
struct Place {
    rank: u32,
    local_rank: u32,
    node_rank: u32,
    nodes: u32,
    world: u32,
    local: u32,
}

/// What a rank of a node with so many is told.
fn told(gang: &Gang<'_>, place: &Place, on_node: u32) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: String| drop(env.insert(name.to_owned(), value));
    set("FALAJ_RANK", place.rank.to_string());
    set("FALAJ_WORLD_SIZE", place.world.to_string());
    let threads = gang.cpu_millis / 1000 / on_node.max(1);
    set("OMP_NUM_THREADS", threads.max(1).to_string());
    let master = gang.nodes.first().map_or("127.0.0.1", |(_, address, _)| address);
    if gang.framework != Framework::None {
        set("RANK", place.rank.to_string());
        set("LOCAL_RANK", place.local_rank.to_string());
        set("WORLD_SIZE", place.world.to_string());
        set("LOCAL_WORLD_SIZE", place.local.to_string());
        set("NODE_RANK", place.node_rank.to_string());
        set("GROUP_RANK", place.node_rank.to_string());
        set("GROUP_WORLD_SIZE", place.nodes.to_string());
        set("ROLE_RANK", place.rank.to_string());
        set("ROLE_WORLD_SIZE", place.world.to_string());
        set("MASTER_ADDR", master.to_owned());
        set("MASTER_PORT", gang.port.to_string());
        set("TORCHELASTIC_RUN_ID", gang.run_id.to_owned());
        set("TORCHELASTIC_RESTART_COUNT", (gang.attempt.saturating_sub(1)).to_string());
        set("TORCHELASTIC_MAX_RESTARTS", gang.retries.to_string());
    }
    match gang.framework {
        Framework::Horovod => {
            set("HOROVOD_RANK", place.rank.to_string());
            set("HOROVOD_SIZE", place.world.to_string());
            set("HOROVOD_LOCAL_RANK", place.local_rank.to_string());
            set("HOROVOD_LOCAL_SIZE", place.local.to_string());
            set("HOROVOD_CROSS_RANK", place.node_rank.to_string());
            set("HOROVOD_CROSS_SIZE", place.nodes.to_string());
            set("HOROVOD_CONTROLLER", "gloo".to_owned());
            set("HOROVOD_CPU_OPERATIONS", "gloo".to_owned());
            set("HOROVOD_GLOO_RENDEZVOUS_ADDR", master.to_owned());
            set("HOROVOD_GLOO_RENDEZVOUS_PORT", gang.port.to_string());
        }
        Framework::Tensorflow => {
            let workers: Vec<String> = gang
                .nodes
                .iter()
                .flat_map(|(_, address, _)| (0..on_node).map(move |rank| (address, rank)))
                .map(|(address, rank)| format!("{address}:{}", port_of(gang.port, rank)))
                .collect();
            let config = json!({
                "cluster": { "worker": workers },
                "task": { "type": "worker", "index": place.rank },
            });
            set("TF_CONFIG", config.to_string());
        }
        Framework::Torch | Framework::None => {}
    }
    env
}

/// Workers of one node each need a port of their own.
fn port_of(first: u16, local_rank: u32) -> u16 {
    first.saturating_add(u16::try_from(local_rank).unwrap_or(u16::MAX))
}

fn bits(devices: u16) -> Vec<u8> {
    (0..16).filter(|bit| devices >> bit & 1 == 1).collect()
}

/// The GPUs of one of the ranks of a node: each has its own where there are enough, and all share
/// them where there are not.
fn share(gpus: &[u8], local_rank: u32, local: u32) -> Vec<u8> {
    let each = gpus.len() / usize::try_from(local.max(1)).unwrap_or(1);
    if each == 0 {
        return gpus.to_vec();
    }
    let first = usize::try_from(local_rank).unwrap_or(0) * each;
    gpus.get(first..first + each).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gang(framework: Framework) -> Gang<'static> {
        Gang {
            framework,
            nodes: vec![("a", "10.0.0.1", 0b1111), ("b", "10.0.0.2", 0b11_1100)],
            ranks_per_node: 2,
            port: 29_500,
            cpu_millis: 8000,
            run_id: "job_x-0",
            attempt: 3,
            retries: 5,
            apart: false,
        }
    }

    #[test]
    fn every_rank_knows_its_place() {
        let places = ranks(&gang(Framework::Torch));
        let of = |rank: usize, name: &str| places[rank].env[name].clone();
        assert_eq!(places.len(), 4);
        for (rank, local, node, name, gpus) in [
            (0, "0", "0", "a", vec![0, 1]),
            (1, "1", "0", "a", vec![2, 3]),
            (2, "0", "1", "b", vec![2, 3]),
            (3, "1", "1", "b", vec![4, 5]),
        ] {
            assert_eq!(places[rank].node, name);
            assert_eq!(places[rank].gpus, gpus);
            assert_eq!(of(rank, "RANK"), rank.to_string());
            assert_eq!(of(rank, "LOCAL_RANK"), local);
            assert_eq!((of(rank, "NODE_RANK"), of(rank, "GROUP_RANK")), (node.into(), node.into()));
            assert_eq!(of(rank, "WORLD_SIZE"), "4");
            assert_eq!(of(rank, "LOCAL_WORLD_SIZE"), "2");
            assert_eq!(of(rank, "MASTER_ADDR"), "10.0.0.1");
            assert_eq!(of(rank, "MASTER_PORT"), "29500");
            assert_eq!(of(rank, "TORCHELASTIC_RESTART_COUNT"), "2");
            assert_eq!(of(rank, "TORCHELASTIC_MAX_RESTARTS"), "5");
            assert_eq!(of(rank, "TORCHELASTIC_RUN_ID"), "job_x-0");
            assert_eq!(of(rank, "OMP_NUM_THREADS"), "4");
        }
    }

    #[test]
    fn a_rank_that_sees_its_own_gpus_alone_picks_the_first() {
        let apart = |framework, devices| {
            let mut gang = gang(framework);
            gang.apart = true;
            gang.nodes.iter_mut().for_each(|node| node.2 = devices);
            ranks(&gang)
        };
        let places = apart(Framework::Horovod, 0b1111);
        assert_eq!(places[3].gpus, [2, 3]);
        for (name, expected) in [
            ("RANK", "3"),
            ("LOCAL_RANK", "0"),
            ("LOCAL_WORLD_SIZE", "1"),
            ("NODE_RANK", "3"),
            ("GROUP_WORLD_SIZE", "4"),
            ("WORLD_SIZE", "4"),
            ("OMP_NUM_THREADS", "4"),
            ("HOROVOD_LOCAL_RANK", "0"),
            ("HOROVOD_CROSS_RANK", "3"),
            ("HOROVOD_CROSS_SIZE", "4"),
        ] {
            assert_eq!(places[3].env[name], expected, "{name}");
        }
        // Nothing is to be picked where there is none.
        assert_eq!(apart(Framework::Torch, 0)[3].env["LOCAL_RANK"], "1");
        // Workers have an address each all the same.
        let workers = &apart(Framework::Tensorflow, 0b1111)[3].env["TF_CONFIG"];
        assert!(workers.contains("10.0.0.2:29501"), "{workers}");
    }

    #[test]
    fn each_framework_finds_its_own_words() {
        let horovod = ranks(&gang(Framework::Horovod));
        for (name, expected) in [
            ("HOROVOD_RANK", "3"),
            ("HOROVOD_SIZE", "4"),
            ("HOROVOD_LOCAL_RANK", "1"),
            ("HOROVOD_LOCAL_SIZE", "2"),
            ("HOROVOD_CROSS_RANK", "1"),
            ("HOROVOD_CROSS_SIZE", "2"),
            ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"),
            ("HOROVOD_GLOO_RENDEZVOUS_PORT", "29500"),
        ] {
            assert_eq!(horovod[3].env[name], expected, "{name}");
        }
        let tensorflow = ranks(&gang(Framework::Tensorflow));
        let config: serde_json::Value =
            serde_json::from_str(&tensorflow[2].env["TF_CONFIG"]).unwrap();
        assert_eq!(
            config,
            json!({
                "cluster": { "worker": [
                    "10.0.0.1:29500", "10.0.0.1:29501", "10.0.0.2:29500", "10.0.0.2:29501",
                ] },
                "task": { "type": "worker", "index": 2 },
            })
        );
        let none = ranks(&gang(Framework::None));
        assert!(!none[0].env.contains_key("RANK") && none[3].env["FALAJ_RANK"] == "3");
    }

    #[test]
    fn gpus_are_shared_out_or_shared() {
        for (gpus, rank, local, expected) in [
            (vec![], 0, 2, vec![]),
            (vec![5], 1, 2, vec![5]),
            (vec![0, 1, 2], 0, 1, vec![0, 1, 2]),
            (vec![0, 1, 2, 3], 3, 4, vec![3]),
        ] {
            assert_eq!(share(&gpus, rank, local), expected);
        }
    }
}
