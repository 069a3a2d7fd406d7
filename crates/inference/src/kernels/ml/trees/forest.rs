//! All trees in one array of nodes, and the walk through them.
//!
//! A walk down one tree is a chain of loads, each waiting for the one before, and a branch that no
//! processor can foresee. So the next node is *selected*, not branched to, and [`LANES`] walks go
//! side by side: while one waits for memory, the others move. With a batch the lanes are rows in one
//! tree, which stays in the cache while the rows pass; with a single row they are trees.
//!
//! A leaf leads to itself. Lanes that have arrived stand still until all have, and no lane asks.
//!
//! What must hold: links stay within the array and, but for a leaf's own, never lead back to where
//! a walk has been, so every walk ends; a [`Draft`] is known to be made of trees. A row is summed tree by tree in the model's order, whichever way it was
//! walked, so its answer does not depend on the batch.

use std::collections::VecDeque;
use std::hint::select_unpredictable;

use falaj_base::{Error, Result};

use super::super::post::Real;
use super::draft::{Draft, Leaf, Mode, Split, To};
use super::score::{Aggregate, Sums};
use crate::kernels::shape::fitting_bytes;

/// Walks that go side by side.
const LANES: usize = 8;
/// Rows that pass through one tree before the next tree is fetched.
const ROWS_AT_A_TIME: usize = 256;

/// The feature's place takes 28 bits of a node; the others say what the split asks.
pub(super) const MAX_FEATURE: u32 = 1 << 28;
const FEATURE: u32 = MAX_FEATURE - 1;
const BELOW: u32 = 1 << 28;
const EQUAL: u32 = 1 << 29;
const MISSING: u32 = 1 << 30;

/// What leaves give.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaves {
    /// Sums for each row.
    pub targets: usize,
    /// How the trees' answers become one.
    pub aggregate: Aggregate,
    /// The most bytes that the sums may take.
    pub room: usize,
}

/// A split, or a leaf: then both links lead to itself and the value is the first weight it gives.
#[derive(Clone, Copy, Debug)]
struct TreeNode<T> {
    value: T,
    /// The feature looked at, and when the answer is yes.
    asks: u32,
    yes: u32,
    no: u32,
}

/// Where a tree begins, and how many steps it is to its nearest leaf and to its farthest.
#[derive(Clone, Copy, Debug)]
struct Tree {
    root: u32,
    shallow: u32,
    deep: u32,
}

#[derive(Debug)]
pub(super) struct Forest<T> {
    nodes: Vec<TreeNode<T>>,
    trees: Vec<Tree>,
    /// What all splits ask of a value that is there, if they all ask the same: the walk is then
    /// made for it.
    asks: Asks,
    /// Whether any split says where a missing value goes.
    tracks_missing: bool,
    /// The target that every leaf gives one weight to, if there is one such; the weight is then the
    /// leaf's value.
    only: Option<usize>,
    /// Otherwise: which weights belong to a node, and the weights.
    spans: Vec<(u32, u32)>,
    weights: Vec<(u32, T)>,
    /// The features that rows must have.
    width: usize,
    leaves: Leaves,
}

/// The kinds of walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    AtMost,
    Below,
    Anything,
}

/// Decides one split. Made for each kind of walk, so that the loop has no decision to make.
trait Test {
    fn yes<T: Real>(node: &TreeNode<T>, x: T) -> bool;
}

struct AtMost;
struct Below;
struct Anything;

impl Test for AtMost {
    #[inline]
    fn yes<T: Real>(node: &TreeNode<T>, x: T) -> bool {
        x <= node.value
    }
}

impl Test for Below {
    #[inline]
    fn yes<T: Real>(node: &TreeNode<T>, x: T) -> bool {
        x < node.value
    }
}

impl Test for Anything {
    #[inline]
    #[allow(clippy::eq_op, reason = "only what is missing differs from itself")]
    #[allow(clippy::needless_bitwise_bool, reason = "no branch")]
    fn yes<T: Real>(node: &TreeNode<T>, x: T) -> bool {
        let asks = |flag| node.asks & flag != 0;
        (asks(BELOW) & (x < node.value))
            | (asks(EQUAL) & (x == node.value))
            | (asks(MISSING) & (x != x))
    }
}

impl<T: Real> Forest<T> {
    /// Lays the trees out, level by level, so that the top of a tree shares cache lines.
    pub(super) fn grow(draft: &Draft) -> Result<Self> {
        let mut forest = Self {
            nodes: Vec::with_capacity(draft.splits.len() + draft.leaves.len()),
            trees: Vec::with_capacity(draft.roots.len()),
            asks: Asks::Anything,
            tracks_missing: draft.splits.iter().any(|split| asks(split) & MISSING != 0),
            only: only_target(draft),
            spans: Vec::new(),
            weights: Vec::new(),
            width: 1,
            leaves: draft.shape,
        };
        let mut placed = vec![None; draft.splits.len()];
        for &root in &draft.roots {
            let tree = forest.grow_tree(draft, root, &mut placed)?;
            forest.trees.push(tree);
        }
        forest.asks = forest.common();
        Ok(forest)
    }

    /// One tree. A set's chain leads to one subtree from several splits, so a split that was
    /// placed is linked to, not placed again.
    fn grow_tree(&mut self, draft: &Draft, root: To, placed: &mut [Option<u32>]) -> Result<Tree> {
        let first = self.nodes.len();
        let root_at = self.place(draft, root, placed)?;
        let mut tree = Tree { root: root_at, shallow: u32::MAX, deep: 0 };
        let mut pending = VecDeque::from([(root, root_at, 0)]);
        let mut shared = false;
        while let Some((to, at, depth)) = pending.pop_front() {
            tree.deep = depth;
            let To::Split(split) = to else {
                tree.shallow = tree.shallow.min(depth);
                continue;
            };
            let mut link = |to: To| {
                if let To::Split(split) = to
                    && let Some(at) = placed[split]
                {
                    shared = true;
                    return Ok(at);
                }
                let at = self.place(draft, to, placed)?;
                pending.push_back((to, at, depth + 1));
                Ok::<u32, Error>(at)
            };
            let Split { yes, no, mode, .. } = draft.splits[split];
            let (yes, no) = (link(yes)?, link(no)?);
            let (yes, no) = if turned(mode) { (no, yes) } else { (yes, no) };
            let node = &mut self.nodes[at as usize];
            (node.yes, node.no) = (yes, no);
        }
        if shared {
            // There are longer ways than the shortest; none has more steps than there are nodes.
            tree.deep = u32::try_from(self.nodes.len() - first).map_err(Error::internal)?;
        }
        Ok(tree)
    }

    /// Puts a node at the end, its links still open.
    fn place(&mut self, draft: &Draft, to: To, placed: &mut [Option<u32>]) -> Result<u32> {
        let at = u32::try_from(self.nodes.len()).map_err(Error::internal)?;
        match to {
            To::Leaf(leaf) => {
                let leaf = &draft.leaves[leaf];
                let value =
                    leaf.first().map_or(T::default(), |&(_, weight)| T::from_double(weight));
                self.nodes.push(TreeNode { value, asks: 0, yes: at, no: at });
                self.carry(leaf)?;
            }
            To::Split(split) => {
                placed[split] = Some(at);
                let split = &draft.splits[split];
                if split.value.is_nan() {
                    return Err(Error::invalid("tree", "NaN", "thresholds that are numbers"));
                }
                self.width = self.width.max(split.feature as usize + 1);
                self.nodes.push(TreeNode {
                    value: T::from_double(split.value),
                    asks: split.feature | asks(split),
                    yes: at,
                    no: at,
                });
                self.carry(&[])?;
            }
        }
        Ok(at)
    }

    /// Notes the weights of the node just placed, if one value is not enough for them.
    fn carry(&mut self, leaf: &[(u32, f64)]) -> Result<()> {
        if self.only.is_none() {
            let start = u32::try_from(self.weights.len()).map_err(Error::internal)?;
            self.weights
                .extend(leaf.iter().map(|&(target, weight)| (target, T::from_double(weight))));
            let end = u32::try_from(self.weights.len()).map_err(Error::internal)?;
            self.spans.push((start, end));
        }
        Ok(())
    }

    /// The bytes that the trees take.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.nodes[..])
            + size_of_val(&self.trees[..])
            + size_of_val(&self.spans[..])
            + size_of_val(&self.weights[..])
    }

    fn common(&self) -> Asks {
        let splits = self.nodes.iter().enumerate().filter(|(at, node)| node.yes as usize != *at);
        let mut kinds = splits.map(|(_, node)| node.asks & (BELOW | EQUAL));
        let first = kinds.next().unwrap_or(BELOW | EQUAL);
        match first {
            _ if kinds.any(|kind| kind != first) => Asks::Anything,
            EQUAL => Asks::Anything,
            BELOW => Asks::Below,
            _ => Asks::AtMost,
        }
    }

    /// What the leaves give for each row of a table.
    pub(super) fn walk(&self, table: &[T], rows: usize, columns: usize) -> Result<Sums<T>> {
        if columns < self.width {
            let allowed = format!("at least {} features", self.width);
            return Err(Error::invalid("shape", format!("[{rows}, {columns}]"), allowed));
        }
        fitting_bytes(&[rows, self.leaves.targets], size_of::<T>() + 1, self.leaves.room)?;
        let mut sums = Sums::new(rows, self.leaves);
        // Most models say where a missing value goes, and most rows miss none: one look at the
        // table saves a question at every split.
        #[allow(clippy::eq_op, reason = "only what is missing differs from itself")]
        let missing = self.tracks_missing && table.iter().any(|&x| x != x);
        match self.asks {
            _ if missing => self.walk_as::<Anything>(table, columns, &mut sums),
            Asks::AtMost => self.walk_as::<AtMost>(table, columns, &mut sums),
            Asks::Below => self.walk_as::<Below>(table, columns, &mut sums),
            Asks::Anything => self.walk_as::<Anything>(table, columns, &mut sums),
        }
        if let Some(target) = self.only
            && !self.trees.is_empty()
        {
            sums.mark(target);
        }
        Ok(sums)
    }

    fn walk_as<A: Test>(&self, table: &[T], columns: usize, sums: &mut Sums<T>) {
        let rows = sums.rows;
        for first in (0..rows).step_by(ROWS_AT_A_TIME) {
            let last = rows.min(first + ROWS_AT_A_TIME);
            let blocks = first + (last - first) / LANES * LANES;
            for &tree in &self.trees {
                for row in (first..blocks).step_by(LANES) {
                    let starts = std::array::from_fn(|lane| (row + lane) * columns);
                    let leaves = self.descend::<A>(tree, [tree.root; LANES], table, starts);
                    for (lane, leaf) in leaves.into_iter().enumerate() {
                        self.give(leaf, row + lane, sums);
                    }
                }
            }
            for row in blocks..last {
                self.walk_alone::<A>(&table[row * columns..][..columns], row, sums);
            }
        }
    }

    /// One row through all trees, several trees at a time.
    fn walk_alone<A: Test>(&self, features: &[T], row: usize, sums: &mut Sums<T>) {
        for trees in self.trees.chunks(LANES) {
            // Where trees run out, the last one is walked again and its answer left alone.
            let root = |lane: usize| trees[lane.min(trees.len() - 1)].root;
            let all = Tree {
                root: 0,
                shallow: trees.iter().map(|tree| tree.shallow).min().unwrap_or(0),
                deep: trees.iter().map(|tree| tree.deep).max().unwrap_or(0),
            };
            let roots = std::array::from_fn(root);
            let leaves = self.descend::<A>(all, roots, features, [0; LANES]);
            for &leaf in &leaves[..trees.len()] {
                self.give(leaf, row, sums);
            }
        }
    }

    /// From these nodes down to leaves; each lane has its row, which starts somewhere in the table.
    #[inline]
    fn descend<A: Test>(
        &self,
        tree: Tree,
        mut at: [u32; LANES],
        table: &[T],
        starts: [usize; LANES],
    ) -> [u32; LANES] {
        // Before the shallowest leaf nobody can have arrived, so nobody asks.
        for _ in 0..tree.shallow {
            self.step::<A>(&mut at, table, &starts);
        }
        for _ in tree.shallow..tree.deep {
            if !self.step::<A>(&mut at, table, &starts) {
                break;
            }
        }
        at
    }

    /// One step down in every lane; whether any lane has moved.
    #[inline]
    fn step<A: Test>(&self, at: &mut [u32; LANES], table: &[T], starts: &[usize; LANES]) -> bool {
        let mut moved = 0;
        for (at, start) in at.iter_mut().zip(starts) {
            let node = &self.nodes[*at as usize];
            let x = table[start + (node.asks & FEATURE) as usize];
            let next = select_unpredictable(A::yes(node, x), node.yes, node.no);
            moved |= next ^ *at;
            *at = next;
        }
        moved != 0
    }

    #[inline]
    fn give(&self, leaf: u32, row: usize, sums: &mut Sums<T>) {
        match self.only {
            Some(target) if self.leaves.aggregate.adds() => {
                let place = row * self.leaves.targets + target;
                sums.plus(place, self.nodes[leaf as usize].value);
            }
            _ => self.give_each(leaf, row, sums),
        }
    }

    /// All that a leaf gives, whatever it is.
    fn give_each(&self, leaf: u32, row: usize, sums: &mut Sums<T>) {
        if let Some(target) = self.only {
            sums.add(row * self.leaves.targets + target, self.nodes[leaf as usize].value);
        } else {
            let (start, end) = self.spans[leaf as usize];
            for &(target, weight) in &self.weights[start as usize..end as usize] {
                sums.add(row * self.leaves.targets + target as usize, weight);
            }
        }
    }
}

/// The only target that there is, or that leaves give to: of two classes often one.
fn only_target(draft: &Draft) -> Option<usize> {
    let first = draft.leaves.first()?.first()?.0;
    let alike = |leaf: &Leaf| matches!(leaf[..], [(target, _)] if target == first);
    if draft.shape.targets == 1 {
        Some(0)
    } else {
        draft.leaves.iter().all(alike).then_some(first as usize)
    }
}

/// Whether a mode is asked the other way round: above is not at most.
fn turned(mode: Mode) -> bool {
    matches!(mode, Mode::Above | Mode::AtLeast | Mode::NotEqual)
}

/// When a split's first link is taken. What is missing fails every comparison but *not equal*,
/// and is then where `missing` says; turned round, that is the other link.
fn asks(split: &Split) -> u32 {
    let flag = |missing: bool| if missing { MISSING } else { 0 };
    match split.mode {
        Mode::AtMost => BELOW | EQUAL | flag(split.missing),
        Mode::Below => BELOW | flag(split.missing),
        Mode::Equal => EQUAL | flag(split.missing),
        Mode::Above => BELOW | EQUAL | flag(!split.missing),
        Mode::AtLeast => BELOW | flag(!split.missing),
        Mode::NotEqual => EQUAL,
    }
}

impl Forest<f32> {
    /// The same forest for doubles.
    pub(super) fn widened(&self) -> Forest<f64> {
        let wide = |node: &TreeNode<f32>| TreeNode {
            value: f64::from(node.value),
            asks: node.asks,
            yes: node.yes,
            no: node.no,
        };
        Forest {
            nodes: self.nodes.iter().map(wide).collect(),
            trees: self.trees.clone(),
            asks: self.asks,
            tracks_missing: self.tracks_missing,
            only: self.only,
            spans: self.spans.clone(),
            weights: self.weights.iter().map(|&(target, x)| (target, f64::from(x))).collect(),
            width: self.width,
            leaves: self.leaves,
        }
    }
}
