//! The walk in lanes against the plainest walk there is: one row, one tree, one step at a time.

#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]

use proptest::prelude::*;
use proptest::test_runner::TestRng;

use super::draft::{Draft, Mode, Split, To};
use super::forest::{Forest, Leaves};
use super::score::{Aggregate, Regress};
use crate::kernels::ml::post::Post;

const FEATURES: usize = 5;
const VALUES: [f32; 5] = [-1.0, 0.0, 0.5, 1.0, 2.0];
const MODES: [Mode; 6] =
    [Mode::AtMost, Mode::Below, Mode::AtLeast, Mode::Above, Mode::Equal, Mode::NotEqual];

/// What to draw trees from: few modes make the walks that are made for one.
#[derive(Debug)]
struct Kind {
    modes: Vec<Mode>,
    missing: bool,
    targets: usize,
}

fn draw(rng: &mut TestRng, below: usize) -> usize {
    rng.next_u32() as usize % below
}

fn grow(rng: &mut TestRng, kind: &Kind, draft: &mut Draft, depth: usize) -> To {
    if depth == 0 || draw(rng, 5) == 0 {
        let weight = |rng: &mut TestRng| f64::from(draw(rng, 1000) as f32 / 7.0 - 70.0);
        let leaf = (0..kind.targets as u32).map(|target| (target, weight(rng))).collect();
        draft.leaves.push(leaf);
        return To::Leaf(draft.leaves.len() - 1);
    }
    let (yes, no) = (grow(rng, kind, draft, depth - 1), grow(rng, kind, draft, depth - 1));
    draft.splits.push(Split {
        mode: kind.modes[draw(rng, kind.modes.len())],
        feature: draw(rng, FEATURES) as u32,
        value: f64::from(VALUES[draw(rng, VALUES.len())]),
        yes,
        no,
        missing: kind.missing && draw(rng, 2) == 0,
    });
    To::Split(draft.splits.len() - 1)
}

/// Down one tree as ONNX defines it.
fn plainly(draft: &Draft, mut to: To, row: &[f32]) -> usize {
    loop {
        let split = match to {
            To::Leaf(leaf) => return leaf,
            To::Split(split) => &draft.splits[split],
        };
        let (x, value) = (f64::from(row[split.feature as usize]), split.value);
        #[allow(clippy::float_cmp, reason = "what the mode asks")]
        let yes = match split.mode {
            Mode::AtMost => x <= value,
            Mode::Below => x < value,
            Mode::AtLeast => x >= value,
            Mode::Above => x > value,
            Mode::Equal => x == value,
            Mode::NotEqual => x != value,
        };
        to = if yes || (split.missing && x.is_nan()) { split.yes } else { split.no };
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    let modes = prop_oneof![
        Just(vec![Mode::AtMost]),
        Just(vec![Mode::Below]),
        Just(vec![Mode::Above]),
        Just(vec![Mode::Equal]),
        Just(MODES.to_vec()),
    ];
    (modes, any::<bool>(), prop_oneof![Just(1_usize), Just(3)])
        .prop_map(|(modes, missing, targets)| Kind { modes, missing, targets })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn lanes_walk_as_a_plain_walk_does(
        kind in kind(),
        trees in 1_usize..20,
        depth in 0_usize..8,
        rows in prop_oneof![1_usize..20, 250_usize..270],
        holes in any::<bool>(),
        mut rng in any::<u64>().prop_perturb(|_, rng| rng),
    ) {
        let shape = Leaves { targets: kind.targets, aggregate: Aggregate::Sum, room: 1 << 30 };
        let mut draft = Draft {
            splits: vec![], leaves: vec![], roots: vec![], base: vec![], double: false, shape,
        };
        for _ in 0..trees {
            let root = grow(&mut rng, &kind, &mut draft, depth);
            draft.roots.push(root);
        }
        let table: Vec<f32> = (0..rows * FEATURES).map(|_| match draw(&mut rng, 12) {
            0 if holes => f32::NAN,
            place => VALUES[place % VALUES.len()],
        }).collect();

        let forest = Forest::<f32>::grow(&draft).unwrap();
        let regress = Regress { trees, leaves: shape, base: vec![], post: Post::None };
        let got: Vec<f32> = regress.finish(forest.walk(&table, rows, FEATURES).unwrap());
        let wide: Vec<f64> = table.iter().copied().map(f64::from).collect();
        let wide = forest.widened().walk(&wide, rows, FEATURES).unwrap();
        let wide: Vec<f64> = regress.finish(wide);

        for (row, features) in table.chunks_exact(FEATURES).enumerate() {
            let mut singles = vec![0.0_f32; kind.targets];
            let mut doubles = vec![0.0_f64; kind.targets];
            for &root in &draft.roots {
                for &(target, weight) in &draft.leaves[plainly(&draft, root, features)] {
                    singles[target as usize] += weight as f32;
                    doubles[target as usize] += weight;
                }
            }
            let place = row * kind.targets..(row + 1) * kind.targets;
            prop_assert_eq!(&got[place.clone()], &singles[..], "row {}", row);
            prop_assert_eq!(&wide[place], &doubles[..], "row {}", row);
        }
    }
}
