//! Trees as ONNX writes them down: parallel lists, in one of two arrangements.
//!
//! Values are held as doubles, which hold singles exactly.

use std::collections::HashMap;
use std::str::FromStr;

use bytes::Bytes;
use falaj_base::{Error, Result};

use super::forest::Leaves;
use crate::kernels::attributes::Node;
use crate::tensor::{Data, Tensor};

/// How many answers an ensemble may give for a row.
const MAX_TARGETS: usize = 1 << 16;

/// When a branch is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    AtMost,
    Below,
    AtLeast,
    Above,
    Equal,
    NotEqual,
}

/// Where a branch leads: to another split or to a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    Split(usize),
    Leaf(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Split {
    pub mode: Mode,
    pub feature: u32,
    pub value: f64,
    pub yes: To,
    pub no: To,
    /// Whether a missing value takes the branch.
    pub missing: bool,
}

/// What a leaf adds: weights by target. For one target the first counts.
pub(super) type Leaf = Vec<(u32, f64)>;

#[derive(Debug)]
pub(super) struct Draft {
    pub splits: Vec<Split>,
    pub leaves: Vec<Leaf>,
    pub roots: Vec<To>,
    pub base: Vec<f64>,
    /// Whether the model has doubles.
    pub double: bool,
    pub shape: Leaves,
}

/// A number of targets that is possible.
pub(super) fn targets(node: &Node<'_>, given: i64) -> Result<usize> {
    let targets = usize::try_from(given).ok().filter(|n| (1..=MAX_TARGETS).contains(n));
    targets.ok_or_else(|| node.broken(format!("{given} targets"), "1 to 65536 targets"))
}

/// A word that version 5 writes as a number.
pub(super) fn numbered<T: FromStr>(
    node: &Node<'_>,
    name: &str,
    default: i64,
    words: &[&str],
) -> Result<T> {
    let number = node.int(name, default);
    let word = usize::try_from(number).ok().and_then(|number| words.get(number));
    word.and_then(|word| word.parse().ok())
        .ok_or_else(|| node.unsupported(format!("{name} = {number}")))
}

/// Floats that are either an attribute of singles or, named otherwise, a tensor.
fn reals(node: &Node<'_>, name: &str) -> Result<(Vec<f64>, bool)> {
    let tensor = match node.tensor(&format!("{name}_as_tensor"))? {
        Some(tensor) => Some(tensor),
        None => node.tensor(name)?,
    };
    match tensor {
        Some(tensor) => doubles(&tensor),
        None => Ok((node.floats(name).iter().copied().map(f64::from).collect(), false)),
    }
}

fn doubles(tensor: &Tensor) -> Result<(Vec<f64>, bool)> {
    match tensor.data() {
        Data::F64(all) => Ok((all.clone(), true)),
        Data::F32(all) => Ok((all.iter().copied().map(f64::from).collect(), false)),
        _ => Err(Error::invalid("datatype", tensor.data_type(), "FP32 or FP64")),
    }
}

impl Draft {
    /// Versions 1 and 3: every node, leaves included, by tree and number; weights apart.
    pub(super) fn listed(node: &Node<'_>, weights: &str, shape: Leaves) -> Result<Self> {
        let trees = node.ints("nodes_treeids");
        let numbers = node.ints("nodes_nodeids");
        let modes = node.words("nodes_modes");
        let (yes, no) = (node.ints("nodes_truenodeids"), node.ints("nodes_falsenodeids"));
        let features = node.ints("nodes_featureids");
        let (values, double) = reals(node, "nodes_values")?;
        let missing = node.ints("nodes_missing_value_tracks_true");
        let all = trees.len();
        let lengths =
            [numbers.len(), modes.len(), yes.len(), no.len(), features.len(), values.len()];
        if lengths != [all; 6] || (!missing.is_empty() && missing.len() != all) || all == 0 {
            return Err(node.broken("lists of unequal length", "one entry for each node"));
        }

        let mut by_name = HashMap::with_capacity(all);
        let (mut splits, mut leaves, mut leaf_values) = (0, Vec::new(), Vec::new());
        for place in 0..all {
            let to = if &modes[place][..] == b"LEAF" {
                leaves.push(Leaf::new());
                leaf_values.push(values[place]);
                To::Leaf(leaves.len() - 1)
            } else {
                splits += 1;
                To::Split(splits - 1)
            };
            if by_name.insert((trees[place], numbers[place]), to).is_some() {
                return Err(node.broken("a node twice", "each node once"));
            }
        }
        let find = |tree: i64, number: i64| {
            by_name.get(&(tree, number)).copied().ok_or_else(|| {
                node.broken(format!("tree {tree}, node {number}"), "nodes that are there")
            })
        };
        let mut drawn = Vec::with_capacity(splits);
        let mut roots = Vec::new();
        for place in 0..all {
            let tree = trees[place];
            if place == 0 || trees[place - 1] != tree {
                roots.push(find(tree, numbers[place])?);
            }
            if let To::Split(_) = find(tree, numbers[place])? {
                drawn.push(Split {
                    mode: mode(node, &modes[place])?,
                    feature: feature(node, features[place])?,
                    value: values[place],
                    yes: find(tree, yes[place])?,
                    no: find(tree, no[place])?,
                    missing: missing.get(place).is_some_and(|&tracks| tracks != 0),
                });
            }
        }
        let mut draft = Self {
            splits: drawn,
            leaves,
            roots,
            base: reals(node, "base_values")?.0,
            double,
            shape,
        };
        draft.check_trees(node)?;
        draft.weigh(node, weights, find)?;
        // A leaf without weights stands, where there is one target, for the value of its node.
        for (leaf, value) in draft.leaves.iter_mut().zip(leaf_values) {
            if leaf.is_empty() && shape.targets == 1 {
                leaf.push((0, value));
            }
        }
        Ok(draft)
    }

    fn weigh(
        &mut self,
        node: &Node<'_>,
        kind: &str,
        find: impl Fn(i64, i64) -> Result<To>,
    ) -> Result<()> {
        let ids = node.ints(&format!("{kind}_ids"));
        let trees = node.ints(&format!("{kind}_treeids"));
        let numbers = node.ints(&format!("{kind}_nodeids"));
        let (weights, double) = reals(node, &format!("{kind}_weights"))?;
        if [trees.len(), numbers.len(), weights.len()] != [ids.len(); 3] {
            return Err(node.broken("lists of unequal length", "one entry for each weight"));
        }
        self.double |= double;
        for place in 0..ids.len() {
            let target = u32::try_from(ids[place]).ok();
            let target = target.filter(|&target| (target as usize) < self.shape.targets);
            let target = target.ok_or_else(|| {
                node.broken(format!("target {}", ids[place]), "targets that there are")
            })?;
            // Old converters give weights to splits as well; they count for nothing.
            if let To::Leaf(leaf) = find(trees[place], numbers[place])? {
                self.leaves[leaf].push((target, weights[place]));
            }
        }
        Ok(())
    }

    /// Version 5: splits and leaves apart, linked by place; sets of values for membership.
    pub(super) fn linked(node: &Node<'_>, shape: Leaves) -> Result<Self> {
        let modes = node.elements::<u8>("nodes_modes")?.unwrap_or_default();
        let features = node.ints("nodes_featureids");
        let (values, double) = reals(node, "nodes_splits")?;
        let (yes, no) = (node.ints("nodes_truenodeids"), node.ints("nodes_falsenodeids"));
        let (yes_leaf, no_leaf) = (node.ints("nodes_trueleafs"), node.ints("nodes_falseleafs"));
        let missing = node.ints("nodes_missing_value_tracks_true");
        let (ids, (weights, _)) = (node.ints("leaf_targetids"), reals(node, "leaf_weights")?);
        let all = modes.len();
        let lengths =
            [features.len(), values.len(), yes.len(), no.len(), yes_leaf.len(), no_leaf.len()];
        if lengths != [all; 6]
            || (!missing.is_empty() && missing.len() != all)
            || ids.len() != weights.len()
            || all == 0
        {
            return Err(node.broken("lists of unequal length", "one entry for each node and leaf"));
        }
        let mut draft = Self {
            splits: Vec::new(),
            leaves: Vec::new(),
            roots: Vec::new(),
            base: Vec::new(),
            double,
            shape,
        };
        for (&id, &weight) in ids.iter().zip(&weights) {
            let target = u32::try_from(id).ok().filter(|&id| (id as usize) < shape.targets);
            let target = target.ok_or_else(|| node.broken(id, "targets that there are"))?;
            draft.leaves.push(vec![(target, weight)]);
        }
        let to = |place: i64, is_leaf: i64| {
            let limit = if is_leaf == 0 { all } else { ids.len() };
            let place = usize::try_from(place).ok().filter(|&place| place < limit);
            let place = place.ok_or_else(|| node.broken("a link", "nodes and leaves there are"))?;
            Ok::<To, Error>(if is_leaf == 0 { To::Split(place) } else { To::Leaf(place) })
        };
        let mut sets = sets(node)?.into_iter();
        let mut chains = Vec::new();
        for place in 0..all {
            let (mode, value, rest) = match modes[place] {
                0 => (Mode::AtMost, values[place], Vec::new()),
                1 => (Mode::Below, values[place], Vec::new()),
                2 => (Mode::AtLeast, values[place], Vec::new()),
                3 => (Mode::Above, values[place], Vec::new()),
                4 => (Mode::Equal, values[place], Vec::new()),
                5 => (Mode::NotEqual, values[place], Vec::new()),
                6 => {
                    let mut set = sets.next().unwrap_or_default();
                    let first =
                        set.pop().ok_or_else(|| node.broken("a set", "sets with values"))?;
                    (Mode::Equal, first, set)
                }
                other => return Err(node.unsupported(format!("mode {other}"))),
            };
            draft.splits.push(Split {
                mode,
                feature: feature(node, features[place])?,
                value,
                yes: to(yes[place], yes_leaf[place])?,
                no: to(no[place], no_leaf[place])?,
                missing: missing.get(place).is_some_and(|&tracks| tracks != 0),
            });
            chains.push(rest);
        }
        let roots = node.ints("tree_roots").iter().map(|&root| to(root, 0));
        draft.roots = roots.collect::<Result<_>>()?;
        draft.check_trees(node)?;
        draft.chain(chains);
        Ok(draft)
    }

    /// Every split is led to from one place at most, roots from none: then nothing that a root
    /// leads to can lead back.
    fn check_trees(&self, node: &Node<'_>) -> Result<()> {
        let mut led_to = vec![false; self.splits.len()];
        let links = self.splits.iter().flat_map(|split| [split.yes, split.no]);
        for to in self.roots.iter().copied().chain(links) {
            if let To::Split(split) = to
                && std::mem::replace(&mut led_to[split], true)
            {
                return Err(node.broken("a node with two ways to it", "trees"));
            }
        }
        Ok(())
    }

    /// Membership in a set is equality with one after another of its values.
    fn chain(&mut self, chains: Vec<Vec<f64>>) {
        for (place, rest) in chains.into_iter().enumerate() {
            for value in rest {
                let mut next = self.splits[place].clone();
                next.value = value;
                next.missing = false;
                self.splits.push(next);
                self.splits[place].no = To::Split(self.splits.len() - 1);
            }
        }
    }
}

/// The sets of version 5, which NaNs keep apart.
fn sets(node: &Node<'_>) -> Result<Vec<Vec<f64>>> {
    let Some(tensor) = node.tensor("membership_values")? else { return Ok(Vec::new()) };
    let (values, _) = doubles(&tensor)?;
    let mut sets: Vec<Vec<f64>> =
        values.split(|value| value.is_nan()).map(<[f64]>::to_vec).collect();
    // The last set is closed by a NaN as well.
    if sets.last().is_some_and(Vec::is_empty) {
        sets.pop();
    }
    Ok(sets)
}

fn mode(node: &Node<'_>, name: &Bytes) -> Result<Mode> {
    Ok(match &name[..] {
        b"BRANCH_LEQ" => Mode::AtMost,
        b"BRANCH_LT" => Mode::Below,
        b"BRANCH_GTE" => Mode::AtLeast,
        b"BRANCH_GT" => Mode::Above,
        b"BRANCH_EQ" => Mode::Equal,
        b"BRANCH_NEQ" => Mode::NotEqual,
        other => return Err(node.unsupported(String::from_utf8_lossy(other))),
    })
}

fn feature(node: &Node<'_>, given: i64) -> Result<u32> {
    let feature = u32::try_from(given).ok().filter(|&feature| feature < super::forest::MAX_FEATURE);
    feature.ok_or_else(|| node.broken(format!("feature {given}"), "features from 0 to 2^28"))
}
