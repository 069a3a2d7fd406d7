//! Linear models.

use bytes::Bytes;
use falaj_base::{Error, Result};

use super::post::{Post, logistic, probit};
use super::singles;
use crate::kernels::Kernel;
use crate::kernels::attributes::{Node, input};
use crate::kernels::shape::{fitting, table};
use crate::tensor::Tensor;

/// Intercepts and coefficients, a column of them for each answer, so that a row's answers are
/// summed side by side.
struct Linear {
    intercepts: Vec<f32>,
    columns: Vec<f32>,
    features: usize,
    room: usize,
}

impl Linear {
    fn new(node: &Node<'_>, answers: usize, intercepts: Vec<f32>) -> Result<Self> {
        let given = node.floats("coefficients");
        if answers == 0 || given.is_empty() || !given.len().is_multiple_of(answers) {
            return Err(node.broken("coefficients", "as many for each answer"));
        }
        let features = given.len() / answers;
        let columns = (0..features)
            .flat_map(|feature| (0..answers).map(move |answer| given[answer * features + feature]));
        Ok(Self { intercepts, columns: columns.collect(), features, room: node.room })
    }

    fn scores(&self, tensor: &Tensor) -> Result<Vec<f32>> {
        let (rows, features) = table(tensor.shape())?;
        if features != self.features {
            let allowed = format!("{} features", self.features);
            return Err(Error::invalid("shape", format!("{:?}", tensor.shape()), allowed));
        }
        let answers = self.intercepts.len();
        let mut scores = Vec::with_capacity(fitting::<f32>(&[rows, answers], self.room)?);
        for row in singles(tensor)?.chunks_exact(features) {
            let start = scores.len();
            scores.resize(start + answers, 0.0);
            let sums = &mut scores[start..];
            for (&x, column) in row.iter().zip(self.columns.chunks_exact(answers)) {
                for (sum, &coefficient) in sums.iter_mut().zip(column) {
                    *sum += x * coefficient;
                }
            }
            sums.iter_mut().zip(&self.intercepts).for_each(|(sum, &intercept)| *sum += intercept);
        }
        Ok(scores)
    }
}

pub(super) fn regressor(node: &Node<'_>) -> Result<Kernel> {
    let given = node.int("targets", 1);
    let targets = usize::try_from(given).ok().filter(|targets| (1..=1 << 20).contains(targets));
    let targets = targets.ok_or_else(|| node.broken(given, "1 to 2^20 targets"))?;
    let intercepts = node.floats("intercepts");
    // Intercepts of another length are left out of account.
    let intercepts =
        if intercepts.len() == targets { intercepts.to_vec() } else { vec![0.0; targets] };
    let linear = Linear::new(node, targets, intercepts)?;
    let post: Post = node.word("post_transform", "NONE")?;
    Ok(Box::new(move |inputs| {
        let tensor = input(inputs, 0)?;
        tensor.expect::<f32>()?;
        let mut scores = linear.scores(tensor)?;
        if targets > 1 {
            scores.chunks_exact_mut(targets).for_each(|row| post.apply(row));
        } else if post == Post::Probit {
            for score in &mut scores {
                *score = probit(*score);
            }
        }
        Ok(vec![Tensor::of([scores.len() / targets, targets], scores)?])
    }))
}

pub(super) fn classifier(node: &Node<'_>) -> Result<Kernel> {
    let ints = node.ints("classlabels_ints").to_vec();
    let texts = node.texts("classlabels_strings");
    let intercepts = node.floats("intercepts").to_vec();
    let classes = intercepts.len();
    let labels = ints.len().max(texts.len());
    let enough = if classes == 1 { labels == 2 || labels == 0 } else { labels >= classes };
    if classes == 0 || !enough || (!ints.is_empty() && !texts.is_empty()) {
        return Err(node.broken("labels and intercepts", "a label for each class, of one kind"));
    }
    let linear = Linear::new(node, classes, intercepts)?;
    let post: Post = node.word("post_transform", "NONE")?;
    let spread = classes == 1 && labels == 2;
    if spread && post == Post::Probit {
        return Err(node.unsupported("PROBIT for two classes"));
    }
    Ok(Box::new(move |inputs| {
        let mut scores = linear.scores(input(inputs, 0)?)?;
        let best: Vec<usize> = scores.chunks_exact(classes).map(best).collect();
        let rows = best.len();
        let labels = if texts.is_empty() {
            // Without labels, two classes are 0 and 1.
            let label = |&place: &usize| ints.get(place).copied().unwrap_or(i64::from(place == 1));
            Tensor::of([rows], best.iter().map(label).collect::<Vec<i64>>())?
        } else {
            Tensor::of(
                [rows],
                best.iter().map(|&place| texts[place].clone()).collect::<Vec<Bytes>>(),
            )?
        };
        if spread {
            let both = |&score: &f32| match post {
                Post::Logistic => [logistic(-score), logistic(score)],
                _ => [1.0 - score, score],
            };
            scores = scores.iter().flat_map(both).collect();
        } else if classes > 1 {
            scores.chunks_exact_mut(classes).for_each(|row| post.apply(row));
        } else if post == Post::Probit {
            for score in &mut scores {
                *score = probit(*score);
            }
        }
        let columns = if spread { 2 } else { classes };
        Ok(vec![labels, Tensor::of([rows, columns], scores)?])
    }))
}

/// The place of the winner; a single score stands for the second of two.
fn best(scores: &[f32]) -> usize {
    if let [score] = scores {
        return usize::from(*score > 0.0);
    }
    let better =
        |best: usize, place: usize| if scores[place] > scores[best] { place } else { best };
    (1..scores.len()).fold(0, better)
}
