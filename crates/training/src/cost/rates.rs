//! What a start has reserved, and what that costs by the hour. Pure.

use falaj_base::{Name, Timestamp};
use falaj_scheduler::model::GPU_PARTS;
use falaj_scheduler::{NodeSpec, Placed};

use crate::config::TrainingConfig;
use crate::job::{Definition, Resources, SpotUse};
use crate::pool::Pools;

/// What all nodes of a start have reserved together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    /// Thousandths of a core.
    pub(crate) cpu_millis: u64,
    pub(crate) memory_mib: u64,
    /// [`GPU_PARTS`] are one GPU.
    pub(crate) gpu_parts: u64,
    /// For an hour, in millionths of the currency.
    pub(crate) price: u64,
}

const MILLIONTHS: f64 = 1_000_000.0;

impl Rates {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "amounts and prices are far below 2^52"
    )]
    pub(crate) fn of(
        resources: &Resources,
        placement: &[Placed],
        pools: &Pools,
        config: &TrainingConfig,
    ) -> Self {
        let parts = if resources.mig.is_some() || resources.gpu_fraction.is_some() {
            let mig =
                resources.mig.map_or(0, |slice| crate::job::mig_sevenths(slice) * (GPU_PARTS / 7));
            let fraction = resources.gpu_fraction.unwrap_or(0.0) * GPU_PARTS as f64;
            mig + fraction.round() as u64
        } else {
            u64::from(resources.gpus) * GPU_PARTS
        };
        let nodes = placement.len() as u64;
        let cores = f64::from(resources.cpu_millis()) / 1000.0;
        let gpus = parts as f64 / GPU_PARTS as f64;
        let of_node = |placed: &Placed| {
            let spec = pools.node(placed.node).map(|node| &node.spec)?;
            let own = spec.price as f64;
            let spot = if spec.spot { config.prices.spot } else { 1.0 };
            Some(match (spec.gpus > 0, parts > 0) {
                // Its price is that of a GPU; what uses none pays for cores by the book.
                (true, false) => config.prices.core * spot * MILLIONTHS * cores,
                (true, true) => own * gpus,
                (false, _) => own * cores,
            })
        };
        let price: f64 = placement.iter().filter_map(of_node).sum();
        Self {
            cpu_millis: u64::from(resources.cpu_millis()) * nodes,
            memory_mib: u64::from(resources.memory_mib()) * nodes,
            gpu_parts: parts * nodes,
            price: price.round() as u64,
        }
    }
}

/// What a start costs by the hour on the cheapest nodes of a pool that it could ever have, in millionths;
/// nothing if there are none.
pub(crate) fn cheapest(
    definition: &Definition,
    (pool, zones): (usize, &[Name]),
    pools: &Pools,
    config: &TrainingConfig,
) -> Option<u64> {
    let resources = &definition.resources;
    let zones = pools.zone_set(pool, zones);
    let kind = resources.gpu_type.as_ref().map(|name| pools.gpu_type(name));
    let shares = resources.gpu_fraction.is_some() || resources.mig.is_some();
    let gpus = resources.gpus.max(u8::from(shares));
    let would_do = |node: &&NodeSpec| {
        zones.has(node.zone)
            && (definition.spot != SpotUse::Never || !node.spot)
            && node.gpus >= gpus
            && (gpus == 0 || kind.is_none_or(|kind| kind == Some(node.gpu_type)))
            && node.cpu >= resources.cpu_millis()
            && node.memory >= resources.memory_mib()
    };
    let price = |node: &NodeSpec| {
        let placed = Placed { node: node.id, devices: 0, slice: 0 };
        let placement = vec![placed; usize::from(resources.nodes)];
        Rates::of(resources, &placement, pools, config).price
    };
    pools.kinds(pool).iter().filter(would_do).map(price).min()
}

/// What a price by the hour, in millionths, comes to between two moments.
#[allow(clippy::cast_precision_loss, reason = "prices are far below 2^52")]
pub(crate) fn money(price: u64, from: Timestamp, to: Timestamp) -> f64 {
    price as f64 / MILLIONTHS * to.since(from).as_secs_f64() / 3600.0
}

#[cfg(test)]
mod tests {
    use falaj_base::Name;
    use falaj_scheduler::NodeId;

    use super::*;
    use crate::config::{LocalConfig, PoolConfig, PriceBook};
    use crate::pool::{Machine, no_engine};

    #[test]
    fn what_is_reserved_has_its_price() {
        let pool = r#"{"name": "p", "node": [
            {"name": "gpu", "cpu": 8.0, "memory": "8GiB", "gpus": 4, "price": 2.0},
            {"name": "spot", "cpu": 8.0, "memory": "8GiB", "gpus": 4, "spot": true},
            {"name": "cpu", "cpu": 8.0, "memory": "8GiB"}]}"#;
        let config = TrainingConfig {
            local: LocalConfig { enabled: false, ..LocalConfig::default() },
            pool: vec![serde_json::from_str::<PoolConfig>(pool).unwrap()],
            prices: PriceBook { core: 0.1, gpu: 4.0, spot: 0.5 },
            ..TrainingConfig::default()
        };
        let machine = Machine { cpu: 1.0, memory_mib: 1, gpus: 0, gpu_type: None };
        let home = Name::new("home").unwrap();
        let pools = Pools::new(&config, &home, &machine, &mut no_engine).unwrap();
        let at = |node: u32| vec![Placed { node: NodeId(node), devices: 0, slice: 0 }];
        let gpus = Resources { gpus: 2, cpu: 4.0, ..Resources::default() };
        let cores = Resources { cpu: 4.0, ..Resources::default() };
        let half = Resources { gpu_fraction: Some(0.5), ..Resources::default() };
        for (resources, node, price) in [
            (&gpus, 0, 4_000_000),
            (&gpus, 1, 4_000_000),
            (&cores, 0, 400_000),
            (&cores, 1, 200_000),
            (&cores, 2, 400_000),
            (&half, 0, 1_000_000),
        ] {
            let rates = Rates::of(resources, &at(node), &pools, &config);
            assert_eq!(rates.price, price, "{resources:?} on {node}");
        }
        let asks = |text: &str| serde_json::from_str::<Definition>(text).unwrap();
        for (text, price) in [
            (r#"{"name": "j", "command": ["x"], "resources": {"gpus": 2}}"#, Some(4_000_000)),
            (
                r#"{"name": "j", "command": ["x"], "spot": "allowed", "resources": {"cpu": 4.0}}"#,
                Some(200_000),
            ),
            (r#"{"name": "j", "command": ["x"], "resources": {"cpu": 4.0}}"#, Some(400_000)),
            (
                r#"{"name": "j", "command": ["x"], "resources": {"cpu": 4.0, "nodes": 2}}"#,
                Some(800_000),
            ),
            (r#"{"name": "j", "command": ["x"], "resources": {"cpu": 9.0}}"#, None),
        ] {
            let found = cheapest(&asks(text), (0, std::slice::from_ref(&home)), &pools, &config);
            assert_eq!(found, price, "{text}");
        }
        let from = Timestamp::from_micros(0);
        let half_an_hour = Timestamp::from_micros(1_800_000_000);
        assert!((money(4_000_000, from, half_an_hour) - 2.0).abs() < 1e-9);
    }
}
