//! Down-sampling: a chart of a million points needs a few thousand of them, but the right ones.
//!
//! Must hold, for both ways: the result is a part of the input in the same order, has at most
//! `max` points, ends with the last one, and is the same each time. A history that fits is
//! returned whole.
//!
//! Not here: averages. Every point of a sample was logged.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use falaj_base::Error;

use super::point::Point;

/// Which points stand for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// The first of each bucket, as MLflow samples: what its clients expect to get.
    #[default]
    Even,
    /// The first, lowest, highest and last of each bucket, and its first NaN: no spike is lost.
    Spikes,
}

impl Sampling {
    /// Reduces points in the order of their steps to at most `max` of them.
    #[must_use]
    pub fn apply(self, points: Vec<Point>, max: usize) -> Vec<Point> {
        if points.len() <= max {
            return points;
        }
        match (self, max) {
            (_, 0) => Vec::new(),
            (_, 1) => points[points.len() - 1..].to_vec(),
            (Self::Even, _) => even(&points, max),
            (Self::Spikes, _) => spikes(&points, max),
        }
    }
}

impl FromStr for Sampling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "even" => Ok(Self::Even),
            "spikes" => Ok(Self::Spikes),
            other => Err(Error::invalid("sampling", other, "`even` or `spikes`")),
        }
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Even => "even",
            Self::Spikes => "spikes",
        })
    }
}

/// Cuts `len` points into `count` buckets as SQL's NTILE does: sizes differ by at most one, and
/// the larger ones come first.
fn buckets(len: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
    let (size, larger) = (len / count, len % count);
    (0..count).scan(0, move |start, bucket| {
        let range = *start..*start + size + usize::from(bucket < larger);
        *start = range.end;
        Some(range)
    })
}

/// Where the points of an even sample stand: at the beginning of each bucket, except that the very last
/// point takes the last place. `max` is at least two, and there are more points than that.
pub(super) fn even_places(len: usize, max: usize) -> impl Iterator<Item = usize> {
    buckets(len, max).enumerate().map(
        move |(at, bucket)| {
            if at + 1 == max { len - 1 } else { bucket.start }
        },
    )
}

fn even(points: &[Point], max: usize) -> Vec<Point> {
    even_places(points.len(), max).map(|place| points[place]).collect()
}

/// How many points of a bucket are kept at most, without NaNs and with them.
const CORNERS: usize = 4;
const CORNERS_AND_NAN: usize = 5;

/// The corners of each bucket. `max` is at least two, and there are more points than that.
fn spikes(points: &[Point], max: usize) -> Vec<Point> {
    let has_nan = points.iter().any(|point| point.value().is_nan());
    let corners = if has_nan { CORNERS_AND_NAN } else { CORNERS };
    if max < corners {
        return ends_and_extremes(points, max);
    }
    let mut kept = Vec::with_capacity(max);
    for bucket in buckets(points.len(), max / corners) {
        let mut chosen = [bucket.start; CORNERS_AND_NAN];
        let [lowest, highest, nan] = landmarks(points, bucket.clone());
        chosen[1..4].copy_from_slice(&[lowest, highest, nan].map(|at| at.unwrap_or(bucket.start)));
        chosen[4] = bucket.end - 1;
        push_distinct(&mut kept, points, &mut chosen);
    }
    kept
}

/// For very small samples: the first and the last point, then the highest, the lowest, a NaN.
fn ends_and_extremes(points: &[Point], max: usize) -> Vec<Point> {
    let last = points.len() - 1;
    let mut chosen = vec![0, last];
    let [lowest, highest, nan] = landmarks(points, 0..points.len());
    for at in [highest, lowest, nan].into_iter().flatten() {
        if chosen.len() < max && !chosen.contains(&at) {
            chosen.push(at);
        }
    }
    let mut kept = Vec::with_capacity(max);
    push_distinct(&mut kept, points, &mut chosen);
    kept
}

/// Where the lowest, the highest and the first NaN value are; of equals, the earliest.
fn landmarks(points: &[Point], range: Range<usize>) -> [Option<usize>; 3] {
    let [mut lowest, mut highest, mut nan] = [None::<(usize, f64)>; 3];
    for at in range {
        let value = points[at].value();
        if value.is_nan() {
            nan = nan.or(Some((at, value)));
            continue;
        }
        if lowest.is_none_or(|(_, low)| value < low) {
            lowest = Some((at, value));
        }
        if highest.is_none_or(|(_, high)| value > high) {
            highest = Some((at, value));
        }
    }
    [lowest, highest, nan].map(|found| found.map(|(at, _)| at))
}

fn push_distinct(kept: &mut Vec<Point>, points: &[Point], chosen: &mut [usize]) {
    chosen.sort_unstable();
    let mut before = None;
    for &at in chosen.iter() {
        if before != Some(at) {
            kept.push(points[at]);
        }
        before = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn series(values: impl IntoIterator<Item = f64>) -> Vec<Point> {
        values.into_iter().zip(0..).map(|(value, step)| Point::new(1, step, value)).collect()
    }

    fn steps(points: &[Point]) -> Vec<i64> {
        points.iter().map(Point::step).collect()
    }

    #[test]
    fn even_sampling_picks_the_steps_mlflow_picks() {
        for (len, max, expected) in [
            (10, 5, vec![0, 2, 4, 6, 9]),
            (20, 5, vec![0, 4, 8, 12, 19]),
            // Eleven in four buckets: three, three, three, two.
            (11, 4, vec![0, 3, 6, 10]),
            (5, 5, vec![0, 1, 2, 3, 4]),
            (3, 5, vec![0, 1, 2]),
            (9, 1, vec![8]),
            (9, 2, vec![0, 8]),
            (0, 3, vec![]),
        ] {
            let points = series(vec![10.0; len]);
            assert_eq!(steps(&Sampling::Even.apply(points, max)), expected, "{len} to {max}");
        }
    }

    #[test]
    fn a_spike_survives_where_even_sampling_loses_it() {
        let mut values = vec![1.0; 100_000];
        (values[33_333], values[77_777], values[55_555]) = (99.0, -99.0, f64::NAN);
        let kept = steps(&Sampling::Spikes.apply(series(values.clone()), 320));
        for step in [0, 33_333, 55_555, 77_777, 99_999] {
            assert!(kept.contains(&step), "{step}");
        }
        assert!(!steps(&Sampling::Even.apply(series(values), 320)).contains(&33_333));
    }

    #[test]
    fn small_samples_keep_the_ends_before_the_extremes() {
        let points = || series([5.0, 1.0, 9.0, f64::NAN, 4.0, 5.0]);
        for (max, expected) in
            [(1, vec![5]), (2, vec![0, 5]), (3, vec![0, 2, 5]), (4, vec![0, 1, 2, 5])]
        {
            assert_eq!(steps(&Sampling::Spikes.apply(points(), max)), expected, "{max}");
        }
    }

    proptest! {
        #[test]
        fn a_sample_is_a_small_ordered_part_with_its_landmarks(
            values in prop::collection::vec(prop_oneof![any::<f64>(), Just(f64::NAN)], 1..600),
            max in 1_usize..200,
        ) {
            let points = series(values);
            for sampling in [Sampling::Even, Sampling::Spikes] {
                let kept = sampling.apply(points.clone(), max);
                prop_assert!(kept.len() <= max);
                prop_assert!(steps(&kept).is_sorted_by(|a, b| a < b));
                prop_assert_eq!(kept.last(), points.last());
                prop_assert!(max == 1 || kept.first() == points.first());
                prop_assert!(kept.iter().all(|point| points.contains(point)));
                prop_assert_eq!(&kept, &sampling.apply(points.clone(), max));
            }
            let kept = Sampling::Spikes.apply(points.clone(), max);
            if max >= CORNERS_AND_NAN {
                let range = |points: &[Point]| {
                    points.iter().map(Point::value).fold((f64::MAX, f64::MIN), |(low, high), v| {
                        (low.min(v), high.max(v))
                    })
                };
                prop_assert_eq!(range(&kept), range(&points));
            }
        }
    }
}
