//! One logged value, and the two orders points are read in.
//!
//! Must hold: two points are equal exactly if neither order tells them apart, so that sorting and
//! then dropping equal neighbours removes every duplicate. For that a point keeps only one zero
//! and one NaN, and never an infinity.

use std::cmp::Ordering;

/// A value of one metric of one run. Made by [`Point::new`], which brings the value into form.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    timestamp: i64,
    step: i64,
    value: f64,
}

impl Point {
    /// Takes a value as it was logged. Infinities become the largest finite number of their sign,
    /// as clients know it from databases that cannot hold them; a negative zero becomes zero.
    #[must_use]
    pub const fn new(timestamp: i64, step: i64, value: f64) -> Self {
        let value = if value.is_nan() {
            f64::NAN
        } else if value == f64::INFINITY {
            f64::MAX
        } else if value == f64::NEG_INFINITY {
            f64::MIN
        } else {
            // Adding zero turns a negative zero into a positive one and changes nothing else.
            value + 0.0
        };
        Self { timestamp, step, value }
    }

    /// When it was logged, in milliseconds since 1970.
    #[must_use]
    pub const fn timestamp(&self) -> i64 {
        self.timestamp
    }

    #[must_use]
    pub const fn step(&self) -> i64 {
        self.step
    }

    /// Finite or NaN.
    #[must_use]
    pub const fn value(&self) -> f64 {
        self.value
    }

    pub(super) const fn set_timestamp(&mut self, timestamp: i64) {
        self.timestamp = timestamp;
    }

    pub(super) const fn set_step(&mut self, step: i64) {
        self.step = step;
    }

    /// The order of a history: by timestamp, then step, then value.
    #[must_use]
    pub fn by_time(&self, other: &Self) -> Ordering {
        (self.timestamp, self.step)
            .cmp(&(other.timestamp, other.step))
            .then_with(|| self.by_value(other))
    }

    /// The order of charts, whose last point is the metric's latest: by step, then timestamp,
    /// then value.
    #[must_use]
    pub fn by_step(&self, other: &Self) -> Ordering {
        (self.step, self.timestamp)
            .cmp(&(other.step, other.timestamp))
            .then_with(|| self.by_value(other))
    }

    /// NaN stands where zero stands, right after it: MLflow's databases keep it as a marked zero,
    /// and replies must come in the same order.
    fn by_value(&self, other: &Self) -> Ordering {
        let rank = |value: f64| if value.is_nan() { 0.0 } else { value };
        rank(self.value)
            .total_cmp(&rank(other.value))
            .then_with(|| self.value.is_nan().cmp(&other.value.is_nan()))
    }
}

impl PartialEq for Point {
    fn eq(&self, other: &Self) -> bool {
        self.timestamp == other.timestamp
            && self.step == other.step
            && self.value.to_bits() == other.value.to_bits()
    }
}

impl Eq for Point {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_point() -> impl Strategy<Value = Point> {
        let value = prop_oneof![
            any::<f64>(),
            Just(f64::NAN),
            Just(0.0),
            Just(-0.0),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
        ];
        (-2_i64..2, -2_i64..2, value).prop_map(|(t, s, v)| Point::new(t, s, v))
    }

    #[test]
    fn values_come_into_one_form() {
        let kept = |value| Point::new(0, 0, value).value().to_bits();
        for (logged, kept_as) in [
            (1.5, 1.5),
            (-0.0, 0.0),
            (f64::INFINITY, f64::MAX),
            (f64::NEG_INFINITY, f64::MIN),
            (f64::from_bits(0xfff8_0000_0000_0001), f64::NAN),
            (f64::MIN_POSITIVE / 2.0, f64::MIN_POSITIVE / 2.0),
        ] {
            assert_eq!(kept(logged), f64::to_bits(kept_as), "{logged}");
        }
    }

    #[test]
    fn nan_stands_right_after_zero() {
        let mut points = [1.0, f64::NAN, -1.0, 0.0, f64::INFINITY].map(|v| Point::new(0, 0, v));
        points.sort_by(Point::by_step);
        let order = points.map(|point| point.value().to_string());
        assert_eq!(order[..4], ["-1", "0", "NaN", "1"]);
    }

    proptest! {
        #[test]
        fn equality_and_the_orders_agree(a in any_point(), b in any_point(), c in any_point()) {
            for order in [Point::by_time, Point::by_step] {
                prop_assert_eq!(order(&a, &b).is_eq(), a == b);
                prop_assert_eq!(order(&a, &b), order(&b, &a).reverse());
                if order(&a, &b).is_le() && order(&b, &c).is_le() {
                    prop_assert!(order(&a, &c).is_le());
                }
            }
        }
    }
}
