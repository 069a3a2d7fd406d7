//! Plans by example, and what must hold of any.

use falaj_scheduler::cluster::Status;
use falaj_scheduler::{Width, Zone, ZoneSet};

use super::*;

const LIMITS: Limits = Limits {
    min: 0,
    max: 8,
    step: 10,
    max_price: None,
    up_after: 0,
    up_pause: 60,
    down_after: 600,
    down_pause: 300,
};

fn node(id: u32) -> NodeSpec {
    NodeSpec::plain(id)
}

fn up(spec: &NodeSpec, jobs: usize, empty_since: Option<Millis>) -> Stand {
    let busy = jobs > 0;
    let free = NodeStanding {
        status: Status::Up,
        jobs,
        cpu: if busy { 0 } else { spec.cpu },
        memory: if busy { 0 } else { spec.memory },
        gpus: if busy { 0 } else { spec.gpus },
    };
    Stand::Up { free, empty_since }
}

fn demand(jobs: usize, gpus: u8, nodes: u16) -> Demand {
    let gpu = if gpus == 0 { GpuAsk::None } else { GpuAsk::Whole(gpus) };
    Demand {
        ask: Ask { cpu: 1000, memory: 1000, gpu, gpu_type: None },
        nodes: Width::exactly(nodes),
        zones: ZoneSet::ANY,
        spot: Spot::Allowed,
        topology: Topology::Anywhere,
        jobs,
        since: 0,
    }
}

/// Eight nodes: the first ones stand as is said, the others are away.
fn check(
    limits: &Limits,
    stands: &[fn(&NodeSpec) -> Stand],
    change: fn(&mut NodeSpec),
    demand: &[Demand],
    last: Last,
) -> (Vec<u32>, Vec<u32>, usize) {
    let specs: Vec<NodeSpec> = (0..8)
        .map(|id| {
            let mut spec = node(id);
            change(&mut spec);
            spec
        })
        .collect();
    let slots: Vec<Slot<'_>> = specs
        .iter()
        .enumerate()
        .map(|(at, spec)| Slot { spec, stand: stands.get(at).map_or(Stand::Away, |it| it(spec)) })
        .collect();
    let plan = plan(limits, &slots, demand, 10_000, &last);
    let ids = |nodes: &[NodeId]| nodes.iter().map(|id| id.0).collect();
    (ids(&plan.add), ids(&plan.remove), plan.unmet)
}

#[test]
fn nodes_are_asked_for_by_what_waits() {
    let plain = |_: &mut NodeSpec| {};
    let none = Last::default();
    let asked: fn(&NodeSpec) -> Stand = |_| Stand::Asked;
    let free: fn(&NodeSpec) -> Stand = |spec| up(spec, 0, Some(9_990));
    let busy: fn(&NodeSpec) -> Stand = |spec| up(spec, 1, None);
    let closed: fn(&NodeSpec) -> Stand = |_| Stand::Closed;
    // Two jobs of four GPUs share a node.
    assert_eq!(check(&LIMITS, &[], plain, &[demand(4, 4, 1)], none), (vec![0, 1], vec![], 0));
    // What was asked for is on its way.
    assert_eq!(check(&LIMITS, &[asked], plain, &[demand(2, 4, 1)], none), (vec![], vec![], 0));
    // A gang takes what is free, and asks for the rest.
    let two = [free, busy];
    assert_eq!(check(&LIMITS, &two, plain, &[demand(1, 8, 3)], none), (vec![2, 3], vec![], 0));
    // A gang of nine is none.
    assert_eq!(check(&LIMITS, &[], plain, &[demand(1, 8, 9)], none), (vec![], vec![], 1));
    // One that is closed counts as there, and takes nobody.
    let small = Limits { max: 2, ..LIMITS };
    assert_eq!(check(&small, &[closed], plain, &[demand(1, 8, 2)], none), (vec![], vec![], 1));
    assert_eq!(check(&small, &[closed], plain, &[demand(3, 8, 1)], none), (vec![1], vec![], 2));
    // In steps; a gang is not cut by them.
    let slow = Limits { step: 2, ..LIMITS };
    assert_eq!(check(&slow, &[], plain, &[demand(8, 8, 1)], none).0, [0, 1]);
    assert_eq!(check(&slow, &[], plain, &[demand(1, 8, 5)], none).0, [0, 1, 2, 3, 4]);
    // A fraction fills a GPU before another is begun.
    let mut part = demand(16, 1, 1);
    part.ask.gpu = GpuAsk::Fraction(350);
    assert_eq!(check(&LIMITS, &[], plain, &[part], none).0, [0]);
}

#[test]
fn nobody_gets_a_node_that_it_may_not_use() {
    let none = Last::default();
    let in_zone: fn(&mut NodeSpec) = |spec| spec.zone = Zone(u8::from(spec.id.0 >= 4));
    let second = Demand { zones: ZoneSet::of(&[Zone(1)]), ..demand(1, 8, 1) };
    assert_eq!(check(&LIMITS, &[], in_zone, &[second], none).0, [4]);
    let nowhere = Demand { zones: ZoneSet::of(&[Zone(7)]), ..demand(3, 8, 1) };
    assert_eq!(check(&LIMITS, &[], in_zone, &[nowhere], none), (vec![], vec![], 3));
    // Spot first for those who take it, never for those who do not.
    let spot: fn(&mut NodeSpec) = |spec| spec.spot = spec.id.0 == 6;
    assert_eq!(check(&LIMITS, &[], spot, &[demand(1, 8, 1)], none).0, [6]);
    let never = Demand { spot: Spot::Never, ..demand(1, 8, 1) };
    assert_eq!(check(&LIMITS, &[], spot, &[never], none).0, [0]);
    let waits = Demand { spot: Spot::UntilDeadlineNears, ..demand(2, 8, 1) };
    assert_eq!(check(&LIMITS, &[], spot, &[waits], none), (vec![6], vec![], 1));
    // One rack: its nodes are those that stand together.
    let racks: fn(&mut NodeSpec) = |spec| spec.rack = spec.id.0 / 3;
    let together = Demand { topology: Topology::Require(Level::Rack), ..demand(1, 8, 3) };
    assert_eq!(check(&LIMITS, &[], racks, &[together], none).0, [0, 1, 2]);
    let kinds: fn(&mut NodeSpec) = |spec| spec.gpu_type = GpuType(u8::from(spec.id.0 % 2 == 1));
    // One type for a gang.
    assert_eq!(check(&LIMITS, &[], kinds, &[demand(1, 8, 3)], none).0, [0, 2, 4]);
    // Eight GPUs at 2 an hour are 16: there is money for two nodes.
    let poor = Limits { max_price: Some(40_000_000), ..LIMITS };
    assert_eq!(check(&poor, &[], |_| {}, &[demand(5, 8, 1)], none), (vec![0, 1], vec![], 3));
}

#[test]
fn time_passes_before_anything_is_done() {
    let plain = |_: &mut NodeSpec| {};
    let one = [demand(1, 8, 1)];
    let patient = Limits { up_after: 100, ..LIMITS };
    let wanting = |since| Last { wanting: since, ..Last::default() };
    assert!(check(&patient, &[], plain, &one, wanting(None)).0.is_empty());
    assert!(check(&patient, &[], plain, &one, wanting(Some(9_950))).0.is_empty());
    assert_eq!(check(&patient, &[], plain, &one, wanting(Some(9_900))).0, [0]);
    let just = Last { up: Some(9_950), ..Last::default() };
    assert!(check(&LIMITS, &[], plain, &one, just).0.is_empty());
    // Down: empty for long, dearest first, never below the least, not right after anything else.
    let empty: fn(&NodeSpec) -> Stand = |spec| up(spec, 0, Some(9_000));
    let fresh: fn(&NodeSpec) -> Stand = |spec| up(spec, 0, Some(9_500));
    let busy: fn(&NodeSpec) -> Stand = |spec| up(spec, 2, None);
    let asked: fn(&NodeSpec) -> Stand = |_| Stand::Asked;
    let stands = [empty, fresh, busy, empty, asked];
    let none = Last::default();
    let dear: fn(&mut NodeSpec) = |spec| spec.price += u64::from(spec.id.0 == 0);
    assert_eq!(check(&LIMITS, &stands, dear, &[], none).1, [0, 4, 3]);
    let least = Limits { min: 4, ..LIMITS };
    assert_eq!(check(&least, &stands, dear, &[], none).1, [0]);
    let slow = Limits { step: 1, ..LIMITS };
    assert_eq!(check(&slow, &stands, dear, &[], none).1, [0]);
    for last in
        [Last { up: Some(9_800), ..Last::default() }, Last { down: Some(9_800), ..Last::default() }]
    {
        assert!(check(&LIMITS, &stands, dear, &[], last).1.is_empty());
    }
    // The least is there whatever waits, and in spite of pauses.
    let least = Limits { min: 3, ..LIMITS };
    let just = Last { up: Some(9_999), ..Last::default() };
    assert_eq!(check(&least, &[busy], plain, &[], just).0, [1, 2]);
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
fn what_holds_of_any_plan() {
    for seed in 0..3000 {
        let mut dice = Dice(seed);
        let count = 1 + dice.below(12) as u32;
        let specs: Vec<NodeSpec> = (0..count)
            .map(|id| NodeSpec {
                gpus: [0, 4, 8][dice.below(3) as usize],
                gpu_type: GpuType(dice.below(2) as u8),
                zone: Zone(dice.below(2) as u8),
                spot: dice.below(3) == 0,
                rack: id / 3,
                price: 1_000_000 * (1 + dice.below(4)),
                ..node(id)
            })
            .collect();
        let slots: Vec<Slot<'_>> = specs
            .iter()
            .map(|spec| {
                let stand = match dice.below(5) {
                    0 => Stand::Asked,
                    1 => up(spec, 1, None),
                    2 => up(spec, 0, Some(dice.below(10_000))),
                    3 => Stand::Closed,
                    _ => Stand::Away,
                };
                Slot { spec, stand }
            })
            .collect();
        let demands: Vec<Demand> = (0..dice.below(4))
            .map(|_| {
                let (jobs, nodes) = (1 + dice.below(5) as usize, 1 + dice.below(4) as u16);
                Demand {
                    zones: [ZoneSet::ANY, ZoneSet(1), ZoneSet(2)][dice.below(3) as usize],
                    spot: [Spot::Never, Spot::Allowed, Spot::UntilDeadlineNears]
                        [dice.below(3) as usize],
                    topology: [Topology::Anywhere, Topology::Require(Level::Rack)]
                        [dice.below(2) as usize],
                    ..demand(jobs, [0, 2, 8][dice.below(3) as usize], nodes)
                }
            })
            .collect();
        let max = 1 + dice.below(12) as usize;
        let limits = Limits {
            min: dice.below(max as u64) as usize,
            max,
            step: 1 + dice.below(6) as usize,
            max_price: (dice.below(2) == 0).then(|| dice.below(200) * 1_000_000),
            ..LIMITS
        };
        let last = Last {
            up: (dice.below(3) == 0).then(|| 9_000 + dice.below(1000)),
            down: (dice.below(3) == 0).then(|| 9_000 + dice.below(1000)),
            wanting: Some(0),
        };
        let made = plan(&limits, &slots, &demands, 10_000, &last);
        assert_eq!(made, plan(&limits, &slots, &demands, 10_000, &last), "{seed}: another plan");
        let spec = |id: &NodeId| &specs[id.0 as usize];
        let stand = |id: &NodeId| slots[id.0 as usize].stand;
        let there = slots.iter().filter(|slot| slot.stand != Stand::Away);
        let (present, cost) =
            there.fold((0, 0), |(count, cost), slot| (count + 1, cost + price(slot.spec)));
        assert!(made.add.is_empty() || made.remove.is_empty(), "{seed}: both ways at once");
        assert!(made.add.iter().all(|id| stand(id) == Stand::Away), "{seed}");
        assert!(present + made.add.len() <= limits.max.max(present), "{seed}: too many");
        let cost = cost + made.add.iter().map(|id| price(spec(id))).sum::<u64>();
        let afforded = limits.max_price.is_none_or(|most| cost <= most);
        assert!(made.add.is_empty() || afforded, "{seed}: too dear");
        let open = slots.iter().filter(|it| matches!(it.stand, Stand::Asked | Stand::Up { .. }));
        let open = open.count();
        // Whoever is asked for beyond the least may be used by somebody.
        let beyond = made.add.len().saturating_sub(limits.min.saturating_sub(open));
        let useful = made.add.iter().filter(|id| demands.iter().any(|d| admits(d, spec(id))));
        assert!(useful.count() >= beyond, "{seed}: nobody may use it");
        for id in &made.remove {
            let empty = match stand(id) {
                Stand::Asked => true,
                Stand::Up { free, empty_since } => {
                    free.jobs == 0 && empty_since.is_some_and(|since| since + 600 <= 10_000)
                }
                _ => false,
            };
            assert!(empty, "{seed}: somebody is there");
        }
        assert!(made.remove.is_empty() || open - made.remove.len() >= limits.min, "{seed}");
        let paused = last.up.is_some_and(|at| at + 60 > 10_000);
        assert!(!paused || made.add.len() <= limits.min.saturating_sub(open), "{seed}: too soon");
    }
}
