//! Support vector machines.

use std::str::FromStr;

use bytes::Bytes;
use falaj_base::{Error, Result};

use super::post::{Post, logistic};
use super::singles;
use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::kernels::shape::{fitting, table};
use crate::tensor::Tensor;

#[derive(Clone, Copy)]
enum Shape {
    Linear,
    Poly,
    Rbf,
    Sigmoid,
}

impl FromStr for Shape {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "LINEAR" => Self::Linear,
            "POLY" => Self::Poly,
            "RBF" => Self::Rbf,
            "SIGMOID" => Self::Sigmoid,
            _ => return Err(()),
        })
    }
}

/// The support vectors, and how near a row is to each.
struct Vectors {
    shape: Shape,
    gamma: f32,
    coef0: f32,
    degree: f32,
    all: Vec<f32>,
    features: usize,
}

impl Vectors {
    fn new(node: &Node<'_>, count: usize) -> Result<Self> {
        let (gamma, coef0, degree) = match *node.floats("kernel_params") {
            [] => (0.0, 0.0, 0.0),
            [gamma, coef0, degree] => (gamma, coef0, degree),
            _ => return Err(node.broken("kernel_params", "three numbers")),
        };
        let vectors = node.floats("support_vectors").to_vec();
        if count == 0 || vectors.is_empty() || !vectors.len().is_multiple_of(count) {
            return Err(
                node.unsupported("support vectors that are not there, or of unequal length")
            );
        }
        let features = vectors.len() / count;
        let shape = node.word("kernel_type", "LINEAR")?;
        Ok(Self { shape, gamma, coef0, degree, all: vectors, features })
    }

    fn nearness<'a>(&'a self, row: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
        self.all.chunks_exact(self.features).map(move |vector| {
            let pairs = row.iter().zip(vector);
            if let Shape::Rbf = self.shape {
                let sum: f32 = pairs.map(|(x, v)| (x - v) * (x - v)).sum();
                return (-self.gamma * sum).exp();
            }
            let dot: f32 = pairs.map(|(x, v)| x * v).sum();
            match self.shape {
                Shape::Poly => (self.gamma * dot + self.coef0).powf(self.degree),
                Shape::Sigmoid => (self.gamma * dot + self.coef0).tanh(),
                Shape::Linear | Shape::Rbf => dot,
            }
        })
    }

    /// The rows of a table with as many features as the vectors have.
    fn check(&self, tensor: &Tensor) -> Result<usize> {
        let (rows, features) = table(tensor.shape())?;
        if features == self.features {
            return Ok(rows);
        }
        let allowed = format!("{} features", self.features);
        Err(Error::invalid("shape", format!("{:?}", tensor.shape()), allowed))
    }
}

pub(super) fn regressor(node: &Node<'_>) -> Result<Kernel> {
    let count = usize::try_from(node.int("n_supports", 0)).unwrap_or(0);
    let vectors = Vectors::new(node, count)?;
    let coefficients = node.floats("coefficients").to_vec();
    let &[rho, ..] = node.floats("rho") else { return Err(node.broken("no rho", "one number")) };
    if coefficients.len() < count {
        return Err(node.broken("coefficients", "one for each support vector"));
    }
    let one_class = node.flag("one_class", false);
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        vectors.check(tensor)?;
        let score = |row: &[f32]| {
            let near = vectors.nearness(row).zip(&coefficients);
            let score = near.map(|(near, coefficient)| near * coefficient).sum::<f32>() + rho;
            match one_class {
                true if score > 0.0 => 1.0,
                true => -1.0,
                false => score,
            }
        };
        let rows = tensor.expect::<f32>()?.chunks_exact(vectors.features);
        let scores: Vec<f32> = rows.map(score).collect();
        Ok(vec![Tensor::of([scores.len(), 1], scores)?])
    }))
}

/// Classes judged pair by pair.
struct Pairs {
    vectors: Vectors,
    /// The vectors of each class: from, to.
    spans: Vec<(usize, usize)>,
    /// Rows of one number for each vector, one row less than there are classes.
    coefficients: Vec<f32>,
    rho: Vec<f32>,
    prob_a: Vec<f32>,
    prob_b: Vec<f32>,
    post: Post,
}

impl Pairs {
    fn new(node: &Node<'_>, classes: usize) -> Result<Self> {
        let mut count = 0_usize;
        let mut spans = Vec::new();
        for &vectors in node.ints("vectors_per_class") {
            let end = usize::try_from(vectors).ok().and_then(|vectors| count.checked_add(vectors));
            let end = end.ok_or_else(|| node.broken(vectors, "numbers of vectors"))?;
            spans.push((count, end));
            count = end;
        }
        let pairs = classes * (classes - 1) / 2;
        let pairs_of = Self {
            vectors: Vectors::new(node, count)?,
            spans,
            coefficients: node.floats("coefficients").to_vec(),
            rho: node.floats("rho").to_vec(),
            prob_a: node.floats("prob_a").to_vec(),
            prob_b: node.floats("prob_b").to_vec(),
            post: node.word("post_transform", "NONE")?,
        };
        let probable = pairs_of.prob_a.len();
        if pairs_of.spans.len() != classes
            || pairs_of.coefficients.len() < (classes - 1) * count
            || pairs_of.rho.len() < pairs
            || pairs_of.prob_b.len() != probable
            || (probable != 0 && probable < pairs)
        {
            return Err(
                node.broken("lists of unequal length", "one entry for each vector and pair")
            );
        }
        if pairs_of.post == Post::Probit && classes == 2 && probable == 0 {
            return Err(node.unsupported("PROBIT for two classes"));
        }
        Ok(pairs_of)
    }

    fn columns(&self) -> usize {
        let classes = self.spans.len();
        if self.prob_a.is_empty() && classes > 2 { classes * (classes - 1) / 2 } else { classes }
    }

    /// The class that most pairs prefer, and the scores of all.
    fn judge(&self, row: &[f32], scores: &mut Vec<f32>) -> usize {
        let near: Vec<f32> = self.vectors.nearness(row).collect();
        let (classes, start) = (self.spans.len(), scores.len());
        let mut votes = vec![0_usize; classes];
        for first in 0..classes {
            for second in first + 1..classes {
                let weigh = |line: usize, (from, to): (usize, usize)| {
                    let line = &self.coefficients[line * near.len()..];
                    let products = line[from..to].iter().zip(&near[from..to]).map(|(c, n)| c * n);
                    products.map(f64::from).sum::<f64>()
                };
                let sum = weigh(second - 1, self.spans[first]) + weigh(first, self.spans[second]);
                let sum = sum + f64::from(self.rho[scores.len() - start]);
                #[allow(clippy::cast_possible_truncation, reason = "scores are singles")]
                scores.push(sum as f32);
                votes[if sum > 0.0 { first } else { second }] += 1;
            }
        }
        let most = votes.iter().max().copied().unwrap_or(0);
        self.finish(start, scores);
        votes.iter().position(|&votes| votes == most).unwrap_or(0)
    }

    fn finish(&self, start: usize, scores: &mut Vec<f32>) {
        let classes = self.spans.len();
        if !self.prob_a.is_empty() {
            let judged = scores.split_off(start);
            scores.extend(self.probabilities(&judged));
        } else if classes == 2 {
            let score = scores[start];
            let both = match self.post {
                Post::None => [-score, score],
                Post::Logistic => [logistic(-score), logistic(score)],
                _ => [1.0 - score, score],
            };
            scores.splice(start.., both);
            return;
        }
        self.post.apply(&mut scores[start..]);
    }

    /// Probabilities of classes from those of pairs: Wu, Lin and Weng's second method, by
    /// iteration, with the bounds that libsvm has.
    fn probabilities(&self, judged: &[f32]) -> Vec<f32> {
        let classes = self.spans.len();
        // Of each pair, how probable the first is against the second.
        let mut against = vec![0.0_f32; classes * classes];
        let mut pair = 0;
        for first in 0..classes {
            for second in first + 1..classes {
                let margin = judged[pair] * self.prob_a[pair] + self.prob_b[pair];
                let wins = (1.0 - logistic(margin)).clamp(1e-7, 1.0 - 1e-7);
                against[first * classes + second] = wins;
                against[second * classes + first] = 1.0 - wins;
                pair += 1;
            }
        }
        coupled(&against, classes)
    }
}

fn coupled(against: &[f32], classes: usize) -> Vec<f32> {
    let at = |row: usize, column: usize| row * classes + column;
    let mut q = vec![0.0_f32; classes * classes];
    for i in 0..classes {
        for j in (0..classes).filter(|&j| j != i) {
            q[at(i, i)] += against[at(j, i)] * against[at(j, i)];
            q[at(i, j)] = -against[at(j, i)] * against[at(i, j)];
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a number of classes")]
    let share = 1.0 / classes as f32;
    let mut p = vec![share; classes];
    for _ in 0..100 {
        let mut qp: Vec<f32> =
            (0..classes).map(|i| (0..classes).map(|j| q[at(i, j)] * p[j]).sum()).collect();
        let mut pqp: f32 = p.iter().zip(&qp).map(|(p, qp)| p * qp).sum();
        let error = qp.iter().map(|qp| (qp - pqp).abs()).fold(0.0, f32::max);
        if error < 0.005 * share {
            break;
        }
        for i in 0..classes {
            let step = (pqp - qp[i]) / q[at(i, i)];
            p[i] += step;
            pqp = (pqp + step * (step * q[at(i, i)] + 2.0 * qp[i])) / (1.0 + step) / (1.0 + step);
            for j in 0..classes {
                qp[j] = (qp[j] + step * q[at(i, j)]) / (1.0 + step);
                p[j] /= 1.0 + step;
            }
        }
    }
    p
}

pub(super) fn classifier(node: &Node<'_>) -> Result<Kernel> {
    let ints = node.ints("classlabels_ints").to_vec();
    let texts = node.texts("classlabels_strings");
    let classes = ints.len().max(texts.len());
    if !(2..=1000).contains(&classes) || (!ints.is_empty() && !texts.is_empty()) {
        return Err(node.broken("labels", "2 to 1000 integers or strings"));
    }
    let pairs = Pairs::new(node, classes)?;
    let room = node.room;
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        let rows = pairs.vectors.check(tensor)?;
        let mut scores = Vec::with_capacity(fitting::<f32>(&[rows, pairs.columns()], room)?);
        let numbers = singles(tensor)?;
        let table = numbers.chunks_exact(pairs.vectors.features);
        let best: Vec<usize> = table.map(|row| pairs.judge(row, &mut scores)).collect();
        let labels = if texts.is_empty() {
            Tensor::of([rows], best.iter().map(|&class| ints[class]).collect::<Vec<i64>>())?
        } else {
            Tensor::of(
                [rows],
                best.iter().map(|&class| texts[class].clone()).collect::<Vec<Bytes>>(),
            )?
        };
        Ok(vec![labels, Tensor::of([rows, pairs.columns()], scores)?])
    }))
}
