//! One output of the primary against the same output of the shadow.

use std::cmp::Reverse;

use falaj_inference::{Data, DataType, Tensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::numbers::number;
use super::psi;
use crate::traffic::moments::Moments;
use crate::traffic::sketch::Sketch;

/// How many kinds of flips are told apart.
const MAX_FLIPS: usize = 32;
/// How much of a label is shown.
const MAX_LABEL: usize = 64;
/// How many elements of a tensor are compared, and how many go into the histograms.
const MAX_COMPARED: usize = 65_536;
const MAX_SKETCHED: usize = 256;

/// The running comparison of one output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputDiff {
    /// Answers in which the shadow left it out, or gave it another type or shape.
    unlike: u64,
    labels: u64,
    flipped: u64,
    flips: Vec<Flip>,
    /// Distances of numbers that both gave.
    distance: Moments,
    farthest: f64,
    /// Elements that are a number on one side only.
    one_sided: u64,
    primary: Sketch,
    shadow: Sketch,
}

/// Labels that came out different, and how often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flip {
    pub primary: String,
    pub shadow: String,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OutputReport {
    /// Answers in which the shadow left it out, or gave it another type or shape.
    pub unlike: u64,
    /// Labels compared: strings, booleans and integers as they are, of rows of scores the highest.
    pub labels: u64,
    pub flipped: u64,
    /// The most frequent flips first.
    pub flips: Vec<Flip>,
    /// Numbers compared.
    pub numbers: f64,
    pub mean_distance: f64,
    pub max_distance: f64,
    /// Elements that are a number on one side only.
    pub one_sided: u64,
    /// The population stability index of the scores.
    pub psi: Option<f64>,
}

impl OutputDiff {
    pub(super) fn record(&mut self, given: &Tensor, other: Option<&Tensor>) {
        let alike = |other: &&Tensor| {
            other.shape() == given.shape() && other.data_type() == given.data_type()
        };
        let Some(other) = other.filter(alike) else {
            self.unlike = self.unlike.saturating_add(1);
            return;
        };
        self.compare_labels(given, other);
        if given.data_type() != DataType::Bytes {
            self.compare_numbers(given, other);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.unlike = self.unlike.saturating_add(other.unlike);
        self.labels = self.labels.saturating_add(other.labels);
        self.flipped = self.flipped.saturating_add(other.flipped);
        self.one_sided = self.one_sided.saturating_add(other.one_sided);
        self.farthest = self.farthest.max(other.farthest);
        self.distance.merge(&other.distance);
        self.primary.merge(&other.primary);
        self.shadow.merge(&other.shadow);
        for flip in &other.flips {
            self.flip(flip.primary.clone(), flip.shadow.clone(), flip.count);
        }
    }

    pub(super) fn report(&self) -> OutputReport {
        let mut flips = self.flips.clone();
        flips.sort_by_key(|flip| Reverse(flip.count));
        OutputReport {
            unlike: self.unlike,
            labels: self.labels,
            flipped: self.flipped,
            flips,
            numbers: self.distance.weight(),
            mean_distance: self.distance.mean(),
            max_distance: self.farthest,
            one_sided: self.one_sided,
            psi: psi(&self.primary, &self.shadow),
        }
    }

    fn compare_labels(&mut self, given: &Tensor, other: &Tensor) {
        match given.data_type() {
            DataType::F16 | DataType::Bf16 | DataType::F32 | DataType::F64 => {
                // A row of scores says the label of the highest. A single score says none.
                let &[rows, classes] = given.shape() else { return };
                if classes < 2 {
                    return;
                }
                for row in sampled(rows, (MAX_COMPARED / classes).max(1)) {
                    let (one, two) = (highest(given, row, classes), highest(other, row, classes));
                    self.label(one == two, || one.to_string(), || two.to_string());
                }
            }
            _ => {
                for place in sampled(given.len(), MAX_COMPARED) {
                    let (one, two) = (|| label(given, place), || label(other, place));
                    self.label(same(given, other, place), one, two);
                }
            }
        }
    }

    fn label(&mut self, same: bool, one: impl Fn() -> String, two: impl Fn() -> String) {
        self.labels = self.labels.saturating_add(1);
        if !same {
            self.flipped = self.flipped.saturating_add(1);
            self.flip(one(), two(), 1);
        }
    }

    fn flip(&mut self, primary: String, shadow: String, count: u64) {
        let known = |flip: &&mut Flip| flip.primary == primary && flip.shadow == shadow;
        if let Some(flip) = self.flips.iter_mut().find(known) {
            flip.count = flip.count.saturating_add(count);
        } else if self.flips.len() < MAX_FLIPS {
            self.flips.push(Flip { primary, shadow, count });
        }
    }

    fn compare_numbers(&mut self, given: &Tensor, other: &Tensor) {
        for place in sampled(given.len(), MAX_COMPARED) {
            let (Some(one), Some(two)) = (number(given, place), number(other, place)) else {
                return;
            };
            // Both infinite on the same side, or both no number at all: no distance.
            let distance = if one.total_cmp(&two).is_eq() || (one.is_nan() && two.is_nan()) {
                0.0
            } else {
                (one - two).abs()
            };
            match self.distance.record(distance) {
                Ok(()) => self.farthest = self.farthest.max(distance),
                Err(_) => self.one_sided = self.one_sided.saturating_add(1),
            }
        }
        for place in sampled(given.len(), MAX_SKETCHED) {
            for (sketch, tensor) in [(&mut self.primary, given), (&mut self.shadow, other)] {
                if let Some(score) = number(tensor, place) {
                    sketch.record(score);
                }
            }
        }
    }
}

/// At most so many places, at even distances.
fn sampled(len: usize, most: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(len.div_ceil(most).max(1))
}

fn highest(tensor: &Tensor, row: usize, classes: usize) -> usize {
    let mut best = (f64::NEG_INFINITY, 0);
    for class in 0..classes {
        let score = number(tensor, row * classes + class).unwrap_or(f64::NAN);
        if score > best.0 {
            best = (score, class);
        }
    }
    best.1
}

fn same(one: &Tensor, two: &Tensor, place: usize) -> bool {
    match (one.data(), two.data()) {
        (Data::Bytes(one), Data::Bytes(two)) => one.get(place) == two.get(place),
        (Data::U64(one), Data::U64(two)) => one.get(place) == two.get(place),
        (Data::I64(one), Data::I64(two)) => one.get(place) == two.get(place),
        _ => number(one, place) == number(two, place),
    }
}

fn label(tensor: &Tensor, place: usize) -> String {
    match tensor.data() {
        Data::Bytes(all) => all.get(place).map_or_else(String::new, |text| {
            String::from_utf8_lossy(&text[..text.len().min(4 * MAX_LABEL)])
                .chars()
                .take(MAX_LABEL)
                .collect()
        }),
        Data::Bool(all) => all.get(place).map_or_else(String::new, ToString::to_string),
        Data::U64(all) => all.get(place).map_or_else(String::new, ToString::to_string),
        Data::I64(all) => all.get(place).map_or_else(String::new, ToString::to_string),
        _ => number(tensor, place).map_or_else(String::new, |number| number.to_string()),
    }
}
