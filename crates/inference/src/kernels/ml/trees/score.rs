//! From what leaves give to answers, as ONNX Runtime does it, peculiarities included: clients
//! compare with it.

use std::str::FromStr;

use falaj_base::Result;

use super::super::post::{Post, Real, logistic, probit};
use super::draft::Draft;
use super::forest::Leaves;
use crate::kernels::attributes::Node;

/// How the trees' answers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Sum,
    Average,
    Min,
    Max,
}

impl Aggregate {
    /// Whether weights are simply added up.
    pub(super) fn adds(self) -> bool {
        matches!(self, Self::Sum | Self::Average)
    }
}

impl FromStr for Aggregate {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "SUM" => Self::Sum,
            "AVERAGE" => Self::Average,
            "MIN" => Self::Min,
            "MAX" => Self::Max,
            _ => return Err(()),
        })
    }
}

/// What the leaves gave, row by row and target by target.
pub(super) struct Sums<T> {
    pub rows: usize,
    leaves: Leaves,
    scores: Vec<T>,
    /// Whether any leaf gave something to a target: nothing is not the same as zero.
    given: Vec<bool>,
}

impl<T: Real> Sums<T> {
    pub(super) fn new(rows: usize, leaves: Leaves) -> Self {
        let all = rows * leaves.targets;
        Self { rows, leaves, scores: vec![T::default(); all], given: vec![false; all] }
    }

    /// Adds to a target that is marked as given to when all is added.
    #[inline]
    pub(super) fn plus(&mut self, place: usize, weight: T) {
        let score = &mut self.scores[place];
        *score = *score + weight;
    }

    /// Notes that every row was given something for a target.
    pub(super) fn mark(&mut self, target: usize) {
        for given in self.given.iter_mut().skip(target).step_by(self.leaves.targets) {
            *given = true;
        }
    }

    #[inline]
    pub(super) fn add(&mut self, place: usize, weight: T) {
        let score = &mut self.scores[place];
        let given = std::mem::replace(&mut self.given[place], true);
        *score = match self.leaves.aggregate {
            Aggregate::Sum | Aggregate::Average => *score + weight,
            Aggregate::Min if given && *score <= weight => *score,
            Aggregate::Max if given && *score >= weight => *score,
            Aggregate::Min | Aggregate::Max => weight,
        };
    }

    /// The scores of each row, and which of them were given.
    fn each_row(&mut self) -> impl Iterator<Item = (&mut [T], &[bool])> {
        let targets = self.leaves.targets;
        self.scores.chunks_exact_mut(targets).zip(self.given.chunks_exact(targets))
    }
}

/// How a regression ends.
pub(super) struct Regress {
    pub trees: usize,
    pub leaves: Leaves,
    pub base: Vec<f64>,
    pub post: Post,
}

impl Regress {
    /// The answers in the type of the output: singles, except for the newest operator.
    pub(super) fn finish<T: Real, O: Output<T>>(&self, mut sums: Sums<T>) -> Vec<O> {
        let mut answers = Vec::with_capacity(sums.rows * self.leaves.targets);
        for (scores, given) in sums.each_row() {
            if let [score] = scores {
                let base = if let [base] = self.base[..] { Some(base) } else { None };
                *score = self.total(*score, given[0], base);
                // One answer is transformed by nothing but PROBIT.
                if self.post == Post::Probit {
                    *score = T::from_single(probit(score.single()));
                }
            } else {
                let based = self.base.len() == scores.len();
                for (place, score) in scores.iter_mut().enumerate() {
                    let base = based.then(|| self.base[place]);
                    *score = self.total(*score, given[place], base);
                }
                self.post.apply(scores);
            }
            answers.extend(scores.iter().map(|&score| O::output(score)));
        }
        answers
    }

    fn total<T: Real>(&self, score: T, given: bool, base: Option<f64>) -> T {
        let base = T::from_double(base.unwrap_or(0.0));
        match self.leaves.aggregate {
            Aggregate::Sum => score + base,
            Aggregate::Average => score / T::from_count(self.trees) + base,
            Aggregate::Min | Aggregate::Max if given => score + base,
            Aggregate::Min | Aggregate::Max => base,
        }
    }
}

/// What an answer is written as.
pub(super) trait Output<T> {
    fn output(score: T) -> Self;
}

impl<T: Real> Output<T> for f32 {
    fn output(score: T) -> Self {
        score.single()
    }
}

impl Output<f64> for f64 {
    fn output(score: f64) -> Self {
        score
    }
}

/// How a classification ends.
pub(super) struct Classify {
    classes: usize,
    base: Vec<f64>,
    post: Post,
    /// The labels as integers, or, for strings, their places.
    labels: Vec<i64>,
    /// Two classes, but weights for one of them only: the other's score follows from it.
    one_sided: bool,
    /// Whether weights are votes, which are never negative, or margins.
    votes: bool,
}

impl Classify {
    pub(super) fn new(
        node: &Node<'_>,
        draft: &Draft,
        classes: usize,
        labels: Option<Vec<i64>>,
    ) -> Result<Self> {
        let mut weighted = vec![false; classes];
        let mut votes = true;
        for &(class, weight) in draft.leaves.iter().flatten() {
            weighted[class as usize] = true;
            votes &= weight >= 0.0;
        }
        let one_sided = classes == 2 && weighted.iter().filter(|&&weighted| weighted).count() == 1;
        let post = node.word("post_transform", "NONE")?;
        if post == Post::Probit && classes == 2 {
            // One score of two would be left unwritten.
            return Err(node.unsupported("PROBIT for two classes"));
        }
        if draft.base.len() > classes {
            return Err(node.broken("more base values than classes", "one for each class"));
        }
        let places = (0_i64..).take(classes).collect();
        let labels = labels.unwrap_or(places);
        Ok(Self { classes, base: draft.base.clone(), post, labels, one_sided, votes })
    }

    /// Labels and scores of all rows.
    pub(super) fn finish<T: Real>(&self, mut sums: Sums<T>) -> (Vec<i64>, Vec<f32>) {
        let mut labels = Vec::with_capacity(sums.rows);
        let mut answers = Vec::with_capacity(sums.rows * self.classes);
        for (scores, given) in sums.each_row() {
            match scores {
                [score] => labels.push(self.only_one(score)),
                [first, second] => {
                    let (label, alone) = self.one_of_two(first, second, given);
                    labels.push(label);
                    if alone {
                        // The scores are done: a transformation of both is not due.
                        answers.extend([first.single(), second.single()]);
                        continue;
                    }
                    self.post.apply(scores);
                }
                _ => {
                    labels.push(self.one_of_many(scores, given));
                    self.post.apply(scores);
                }
            }
            answers.extend(scores.iter().map(|score| score.single()));
        }
        (labels, answers)
    }

    /// A single class has a score and one of two fixed labels.
    fn only_one<T: Real>(&self, score: &mut T) -> i64 {
        *score = *score + T::from_double(self.base.first().copied().unwrap_or(0.0));
        let label = i64::from(*score > T::default());
        if self.post == Post::Probit {
            *score = T::from_single(probit(score.single()));
        }
        label
    }

    fn one_of_many<T: Real>(&self, scores: &mut [T], given: &[bool]) -> i64 {
        let mut best: Option<(usize, T)> = None;
        for (class, score) in scores.iter_mut().enumerate() {
            let base = self.base.get(class);
            *score = *score + T::from_double(base.copied().unwrap_or(0.0));
            let counts = given[class] || base.is_some();
            if counts && best.is_none_or(|(_, most)| *score > most) {
                best = Some((class, *score));
            }
        }
        self.labels[best.map_or(0, |(class, _)| class)]
    }

    /// Two classes: the label, and whether one score stood for both.
    fn one_of_two<T: Real>(&self, first: &mut T, second: &mut T, given: &[bool]) -> (i64, bool) {
        let mut alone = !given[1];
        match self.base[..] {
            [_, base] if given[1] => {
                *second = T::from_double(base) + *first;
                *first = -*second;
            }
            [base, other] => {
                *second = *second + T::from_double(other);
                *first = *first + T::from_double(base);
                alone = false;
            }
            [base] => *first = *first + T::from_double(base),
            _ => {}
        }
        let margin = if given[1] {
            *second
        } else if given[0] {
            *first
        } else {
            T::default()
        };
        let bar = if self.one_sided && self.votes { 0.5 } else { 0.0 };
        let wins = margin > T::from_double(bar);
        let label = match self.labels[..] {
            [no, yes] if self.one_sided => {
                if wins {
                    yes
                } else {
                    no
                }
            }
            _ => i64::from(wins),
        };
        if alone {
            self.spread(first, second);
        }
        (label, alone)
    }

    /// Makes two scores of the one that there is.
    fn spread<T: Real>(&self, first: &mut T, second: &mut T) {
        let score = *first;
        if self.post == Post::Logistic {
            *second = T::from_single(logistic(score.single()));
            *first = T::from_single(logistic((-score).single()));
        } else {
            *second = score;
            *first =
                if self.one_sided && self.votes { T::from_single(1.0) - score } else { -score };
        }
    }
}
