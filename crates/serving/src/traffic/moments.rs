//! Count, mean and spread of numbers seen one at a time, mergeable.

use falaj_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// The largest number taken: squares of it still add up without leaving the range of doubles.
pub const LARGEST: f64 = 1e100;

/// What is kept of many numbers. The weight is a count, or less where old numbers fade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Moments {
    weight: f64,
    mean: f64,
    /// Squared distances from the mean, added up.
    scatter: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    weight: f64,
    mean: f64,
    scatter: f64,
}

impl TryFrom<Stored> for Moments {
    type Error = String;
    fn try_from(stored: Stored) -> Result<Self, String> {
        let Stored { weight, mean, scatter } = stored;
        let sound = weight >= 0.0 && scatter >= 0.0 && mean.abs() <= LARGEST;
        if sound && weight.is_finite() && scatter.is_finite() {
            return Ok(Self { weight, mean, scatter });
        }
        Err("not the moments of any numbers".to_owned())
    }
}

impl From<Moments> for Stored {
    fn from(moments: Moments) -> Self {
        let Moments { weight, mean, scatter } = moments;
        Self { weight, mean, scatter }
    }
}

impl Moments {
    /// The moments of these numbers; those that [`Moments::record`] would refuse are left out.
    #[must_use]
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut moments = Self::default();
        for number in numbers {
            let _ = moments.record(number);
        }
        moments
    }

    pub fn record(&mut self, number: f64) -> Result<()> {
        if number.is_nan() || number.abs() > LARGEST {
            return Err(Error::invalid("value", number, "a number between -1e100 and 1e100"));
        }
        self.weight += 1.0;
        let before = number - self.mean;
        self.mean += before / self.weight;
        self.scatter += before * (number - self.mean);
        Ok(())
    }

    pub fn merge(&mut self, other: &Self) {
        let weight = self.weight + other.weight;
        if weight <= 0.0 {
            return;
        }
        let apart = other.mean - self.mean;
        self.scatter += other.scatter + apart * apart * (self.weight * other.weight / weight);
        self.mean += apart * (other.weight / weight);
        self.weight = weight;
    }

    /// Lets everything count for `share` of what it did.
    pub fn fade(&mut self, share: f64) {
        self.weight *= share;
        self.scatter *= share;
    }

    #[must_use]
    pub fn weight(&self) -> f64 {
        self.weight
    }

    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    #[must_use]
    pub fn scatter(&self) -> f64 {
        self.scatter
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_moments_of_a_few_numbers() {
        let moments = Moments::of([2.0, 4.0, 9.0]);
        assert_eq!((moments.weight(), moments.mean(), moments.scatter()), (3.0, 5.0, 26.0));
    }

    #[test]
    fn what_is_not_a_number_is_refused() {
        let mut moments = Moments::default();
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e101] {
            assert!(moments.record(odd).is_err());
        }
        assert_eq!(moments, Moments::default());
        for forged in [
            r#"{"weight": -1, "mean": 0, "scatter": 0}"#,
            r#"{"weight": 1, "mean": 1e300, "scatter": 0}"#,
            r#"{"weight": 1, "mean": 0, "scatter": -2}"#,
        ] {
            assert!(serde_json::from_str::<Moments>(forged).is_err(), "{forged}");
        }
    }

    proptest! {
        #[test]
        fn merged_is_as_if_seen_together(
            one in prop::collection::vec(-1e6..1e6_f64, 0..40),
            two in prop::collection::vec(-1e6..1e6_f64, 0..40),
        ) {
            let together = Moments::of(one.iter().chain(&two).copied());
            let mut merged = Moments::of(one);
            merged.merge(&Moments::of(two));
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()));
            prop_assert!(near(merged.weight(), together.weight()));
            prop_assert!(near(merged.mean(), together.mean()));
            prop_assert!(near(merged.scatter(), together.scatter()));
        }

        #[test]
        fn it_survives_being_stored(numbers in prop::collection::vec(-1e100..1e100_f64, 0..20)) {
            let moments = Moments::of(numbers);
            let text = serde_json::to_string(&moments).unwrap();
            prop_assert_eq!(serde_json::from_str::<Moments>(&text).unwrap(), moments);
        }
    }
}
