//! What is known about the values of columns, file by file, and merged over any number of files.
//!
//! Must hold: merging the statistics of parts gives counts, extremes and distinct values as if the
//! whole had been seen at once; means and quantiles differ by rounding only, and by the sketch's
//! error.

mod distinct;
mod quantiles;

use std::cmp::Ordering;

use arrow_array::{Array, RecordBatch};
use arrow_schema::Schema;
use falaj_base::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::value::{Column, cut};
use distinct::Distinct;
use quantiles::Quantiles;

/// The version of what is kept.
const FORMAT: u32 = 1;
/// Bytes of a text that extremes are compared by.
const LONGEST: usize = 64;

const SHARES: [f64; 5] = [0.01, 0.25, 0.5, 0.75, 0.99];

/// Statistics that can be added to and merged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    format: u32,
    rows: u64,
    columns: Vec<Counted>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Counted {
    name: String,
    kind: String,
    nulls: u64,
    /// NaN and the infinities, which no mean could stand.
    not_finite: u64,
    least: Option<Extreme>,
    most: Option<Extreme>,
    spread: Spread,
    distinct: Distinct,
    quantiles: Quantiles,
}

/// The least or the largest value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Extreme {
    Number(Whole),
    Float(f64),
    /// A moment in nanoseconds, and how it is shown.
    Time(Whole, String),
    Text(String),
}

/// A whole number, kept as text, since JSON does not hold all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Whole(i128);

impl Serialize for Whole {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// Mean and sum of squared differences from it, by Welford and Chan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Spread {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Spread {
    #[allow(clippy::cast_precision_loss, reason = "a mean")]
    fn add(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }

    #[allow(clippy::cast_precision_loss, reason = "a mean")]
    fn merge(&mut self, other: &Self) {
        let count = self.count + other.count;
        if other.count == 0 {
            return;
        }
        let (mine, theirs) = (self.count as f64, other.count as f64);
        let off = other.mean - self.mean;
        self.mean += off * theirs / count as f64;
        self.squares += other.squares + off * off * mine * theirs / count as f64;
        self.count = count;
    }
}

impl Extreme {
    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(left), Self::Number(right))
            | (Self::Time(left, _), Self::Time(right, _)) => left.cmp(right),
            (Self::Float(left), Self::Float(right)) => left.total_cmp(right),
            (Self::Text(left), Self::Text(right)) => left.cmp(right),
            _ => Ordering::Equal,
        }
    }

    fn json(&self) -> Json {
        match self {
            Self::Number(Whole(value)) => {
                i64::try_from(*value).map_or_else(|_| value.to_string().into(), Into::into)
            }
            Self::Float(value) => (*value).into(),
            Self::Time(_, shown) => shown.as_str().into(),
            Self::Text(text) => text.as_str().into(),
        }
    }
}

impl Counted {
    fn new(name: &str, kind: String) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            nulls: 0,
            not_finite: 0,
            least: None,
            most: None,
            spread: Spread::default(),
            distinct: Distinct::default(),
            quantiles: Quantiles::default(),
        }
    }

    fn add(&mut self, column: &Column, rows: usize) {
        let mut bytes = Vec::new();
        for row in 0..rows {
            if column.is_null(row) {
                self.nulls += 1;
                continue;
            }
            bytes.clear();
            column.encode(row, &mut bytes);
            self.distinct.add(&bytes);
            match column {
                Column::Int(all) => self.number(all.value(row).into()),
                Column::Large(all) => self.number(all.value(row).into()),
                Column::Float(all) => self.float(all.value(row)),
                Column::Time(all, nanos, _) => {
                    let at = Whole(i128::from(all.value(row)) * nanos);
                    let shown = || column.json(row).as_str().unwrap_or_default().to_owned();
                    self.extreme(
                        |it| match it {
                            Extreme::Time(known, _) => known.cmp(&at),
                            _ => Ordering::Equal,
                        },
                        || Extreme::Time(at, shown()),
                    );
                }
                Column::Text(all) => self.text(all.value(row)),
                _ => {}
            }
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a mean")]
    fn number(&mut self, value: i128) {
        self.spread.add(value as f64);
        self.quantiles.add(value as f64);
        self.extreme(
            |it| match it {
                Extreme::Number(known) => known.0.cmp(&value),
                _ => Ordering::Equal,
            },
            || Extreme::Number(Whole(value)),
        );
    }

    fn float(&mut self, value: f64) {
        if !value.is_finite() {
            self.not_finite += 1;
            return;
        }
        self.spread.add(value);
        self.quantiles.add(value);
        self.extreme(
            |it| match it {
                Extreme::Float(known) => known.total_cmp(&value),
                _ => Ordering::Equal,
            },
            || Extreme::Float(value),
        );
    }

    fn text(&mut self, value: &str) {
        let mut end = value.len().min(LONGEST);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        let value = &value[..end];
        self.extreme(
            |it| match it {
                Extreme::Text(known) => known.as_str().cmp(value),
                _ => Ordering::Equal,
            },
            || Extreme::Text(value.to_owned()),
        );
    }

    /// Keeps a value if it is less than the least or more than the most. `order` puts a known one
    /// beside it.
    fn extreme(&mut self, order: impl Fn(&Extreme) -> Ordering, made: impl Fn() -> Extreme) {
        if self.least.as_ref().is_none_or(|known| order(known).is_gt()) {
            self.least = Some(made());
        }
        if self.most.as_ref().is_none_or(|known| order(known).is_lt()) {
            self.most = Some(made());
        }
    }

    fn merge(&mut self, other: &Self) {
        self.nulls += other.nulls;
        self.not_finite += other.not_finite;
        self.spread.merge(&other.spread);
        self.distinct.merge(&other.distinct);
        self.quantiles.merge(&other.quantiles);
        if let Some(theirs) = &other.least
            && self.least.as_ref().is_none_or(|mine| mine.order(theirs).is_gt())
        {
            self.least = Some(theirs.clone());
        }
        if let Some(theirs) = &other.most
            && self.most.as_ref().is_none_or(|mine| mine.order(theirs).is_lt())
        {
            self.most = Some(theirs.clone());
        }
    }
}

impl Profile {
    /// Of no rows yet.
    #[must_use]
    pub fn new(schema: &Schema) -> Self {
        let columns = schema.fields().iter();
        let columns = columns.map(|it| Counted::new(it.name(), it.data_type().to_string()));
        Self { format: FORMAT, rows: 0, columns: columns.collect() }
    }

    /// Adds rows with the columns that it was made for, in their order.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_columns() != self.columns.len() {
            return Err(Error::internal("a batch of other columns"));
        }
        self.rows += batch.num_rows() as u64;
        for (counted, array) in self.columns.iter_mut().zip(batch.columns()) {
            counted.add(&Column::new(array)?, array.len());
        }
        Ok(())
    }

    /// Adds what is known of other rows. Columns are found by name.
    pub fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        for theirs in &other.columns {
            match self.columns.iter_mut().find(|mine| mine.name == theirs.name) {
                Some(mine) => mine.merge(theirs),
                None => self.columns.push(theirs.clone()),
            }
        }
    }

    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(Error::internal)
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(Error::internal)
    }

    #[must_use]
    pub fn shown(&self) -> Statistics {
        Statistics {
            rows: self.rows,
            columns: self.columns.iter().map(|it| it.shown(self.rows)).collect(),
        }
    }
}

impl Counted {
    #[allow(clippy::cast_precision_loss, reason = "shares and deviations")]
    fn shown(&self, rows: u64) -> ColumnStatistics {
        let numbers = self.spread.count > 0;
        let quantiles = self.quantiles.at(&SHARES).and_then(|it| <[f64; 5]>::try_from(it).ok());
        ColumnStatistics {
            name: self.name.clone(),
            kind: cut(&self.kind),
            nulls: self.nulls,
            null_share: if rows == 0 { 0.0 } else { self.nulls as f64 / rows as f64 },
            not_finite: (self.not_finite > 0).then_some(self.not_finite),
            distinct: self.distinct.estimate().min(rows - self.nulls.min(rows)),
            min: self.least.as_ref().map(Extreme::json),
            max: self.most.as_ref().map(Extreme::json),
            mean: numbers.then_some(self.spread.mean),
            stddev: numbers
                .then(|| (self.spread.squares / self.spread.count as f64).max(0.0).sqrt()),
            quantiles: quantiles.map(|[p01, p25, p50, p75, p99]| Shares {
                p01,
                p25,
                p50,
                p75,
                p99,
            }),
        }
    }
}

/// Statistics as they are shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Statistics {
    pub rows: u64,
    pub columns: Vec<ColumnStatistics>,
}

/// What is known about the values of one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ColumnStatistics {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub nulls: u64,
    pub null_share: f64,
    /// NaN and the infinities, of which the other figures know nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_finite: Option<u64>,
    /// How many different values there are, about.
    pub distinct: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stddev: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantiles: Option<Shares>,
}

/// The values below which so many hundredths of all lie, about.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shares {
    pub p01: f64,
    pub p25: f64,
    pub p50: f64,
    pub p75: f64,
    pub p99: f64,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float64Array, Int64Array, StringArray, UInt64Array};
    use proptest::prelude::*;

    use super::*;

    fn batch(numbers: &[Option<f64>]) -> RecordBatch {
        #[allow(clippy::cast_possible_truncation, reason = "small numbers")]
        let whole = numbers.iter().map(|it| it.map(|it| it as i64)).collect::<Int64Array>();
        let texts: Vec<_> = numbers.iter().map(|it| it.map(|it| format!("t{it}"))).collect();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("float", Arc::new(numbers.iter().copied().collect::<Float64Array>())),
            ("whole", Arc::new(whole)),
            ("text", Arc::new(StringArray::from(texts))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn of(batch: &RecordBatch) -> Profile {
        let mut profile = Profile::new(batch.schema_ref());
        profile.add(batch).unwrap();
        profile
    }

    #[test]
    fn figures_are_those_of_the_values() {
        let numbers: Vec<_> = (0..1000).map(|n| (n % 10 != 0).then_some(f64::from(n))).collect();
        let shown = of(&batch(&numbers)).shown();
        let float = &shown.columns[0];
        assert_eq!((shown.rows, float.nulls), (1000, 100));
        assert_eq!((&float.min, &float.max), (&Some(1.0.into()), &Some(999.0.into())));
        assert!((float.mean.unwrap() - 500.0).abs() < 1.0 && float.distinct.abs_diff(900) < 40);
        assert!((float.quantiles.unwrap().p50 - 500.0).abs() < 30.0);
        assert_eq!(shown.columns[1].max, Some(999.into()));
        assert_eq!(shown.columns[2].min, Some("t1".into()));
        assert_eq!(shown.columns[2].mean, None);
    }

    #[test]
    fn what_is_no_number_spoils_no_figure() {
        let odd = [Some(f64::NAN), Some(f64::INFINITY), Some(2.0), None];
        let shown = of(&batch(&odd)).shown();
        assert_eq!(shown.columns[0].not_finite, Some(2));
        assert_eq!(shown.columns[0].mean, Some(2.0));
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 0]));
        let large = RecordBatch::try_from_iter([("n", large)]).unwrap();
        let profile = of(&large);
        assert_eq!(profile.shown().columns[0].max, Some(u64::MAX.to_string().into()));
        assert_eq!(Profile::from_bytes(&profile.to_bytes().unwrap()).unwrap(), profile);
    }

    proptest! {
        #[test]
        fn parts_merge_into_the_whole(
            numbers in prop::collection::vec(prop::option::of(-1e6..1e6), 0..300),
            cut in 0_usize..300,
        ) {
            let cut = cut.min(numbers.len());
            let mut merged = of(&batch(&numbers[..cut]));
            merged.merge(&of(&batch(&numbers[cut..])));
            let (merged, whole) = (merged.shown(), of(&batch(&numbers)).shown());
            for (left, right) in merged.columns.iter().zip(&whole.columns) {
                prop_assert_eq!((left.nulls, left.distinct), (right.nulls, right.distinct));
                prop_assert_eq!((&left.min, &left.max), (&right.min, &right.max));
                let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
                    (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * (1.0 + b.abs()),
                    (a, b) => a == b,
                };
                prop_assert!(near(left.mean, right.mean) && near(left.stddev, right.stddev));
            }
        }
    }
}
