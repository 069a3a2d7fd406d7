//! What happens to scores at the end, as ONNX Runtime does it.

use std::str::FromStr;

/// Both floats, as far as scoring needs them.
pub(super) trait Real:
    Copy
    + PartialOrd
    + Default
    + std::fmt::Debug
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + Send
    + Sync
    + 'static
{
    fn single(self) -> f32;
    fn from_single(x: f32) -> Self;
    fn from_double(x: f64) -> Self;
    fn from_count(n: usize) -> Self;
    fn exponential(self) -> Self;
}

macro_rules! real {
    ($($float:ty)*) => {$(
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "by name")]
        #[allow(clippy::cast_lossless, trivial_numeric_casts, reason = "for both floats")]
        impl Real for $float {
            fn single(self) -> f32 { self as f32 }
            fn from_single(x: f32) -> Self { x as Self }
            fn from_double(x: f64) -> Self { x as Self }
            fn from_count(n: usize) -> Self { n as Self }
            fn exponential(self) -> Self { self.exp() }
        }
    )*};
}
real!(f32 f64);

/// The function applied to the scores of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Post {
    None,
    Logistic,
    Softmax,
    SoftmaxZero,
    Probit,
}

impl FromStr for Post {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "NONE" => Self::None,
            "LOGISTIC" => Self::Logistic,
            "SOFTMAX" => Self::Softmax,
            "SOFTMAX_ZERO" => Self::SoftmaxZero,
            "PROBIT" => Self::Probit,
            _ => return Err(()),
        })
    }
}

impl Post {
    /// Transforms the scores of one row, two or more.
    pub(super) fn apply<T: Real>(self, scores: &mut [T]) {
        let each = |scores: &mut [T], function: fn(f32) -> f32| {
            for score in scores {
                *score = T::from_single(function(score.single()));
            }
        };
        match self {
            Self::None => {}
            Self::Logistic => each(scores, logistic),
            Self::Probit => each(scores, probit),
            Self::Softmax => softmax(scores),
            Self::SoftmaxZero => softmax_zero(scores),
        }
    }
}

pub(super) fn logistic(x: f32) -> f32 {
    let v = 1.0 / (1.0 + (-x.abs()).exp());
    if x < 0.0 { 1.0 - v } else { v }
}

pub(super) fn probit(x: f32) -> f32 {
    std::f32::consts::SQRT_2 * inverse_error_function(2.0 * x - 1.0)
}

/// Winitzki's approximation.
fn inverse_error_function(x: f32) -> f32 {
    const A: f32 = 0.147;
    let log = ((1.0 - x) * (1.0 + x)).ln();
    let half = 2.0 / (std::f32::consts::PI * A) + 0.5 * log;
    let root = -half + (half * half - 1.0 / A * log).sqrt();
    root.sqrt().copysign(if x < 0.0 { -1.0 } else { 1.0 })
}

fn most<T: Real>(scores: &[T]) -> T {
    let first = T::from_single(f32::MIN);
    scores.iter().fold(first, |most, &score| if score > most { score } else { most })
}

fn softmax<T: Real>(scores: &mut [T]) {
    let most = most(scores);
    let mut sum = T::default();
    for score in &mut *scores {
        *score = (*score - most).exponential();
        sum = sum + *score;
    }
    for score in scores {
        *score = *score / sum;
    }
}

/// A softmax in which a score of nothing stays nothing.
fn softmax_zero<T: Real>(scores: &mut [T]) {
    let most = most(scores);
    let mut sum = T::default();
    for score in &mut *scores {
        if score.single().abs() > 1e-7 {
            *score = (*score - most).exponential();
            sum = sum + *score;
        } else {
            *score = T::from_single(score.single() * (-most).exponential().single());
        }
    }
    for score in scores {
        *score = *score / sum;
    }
}
