//! The latest value of each metric of a run, with the lowest and the highest: what lists, filters
//! and orderings look at, so that none of them reads a history.
//!
//! Must hold: folding is the same in any order and with any repetition, here and in SQL. Requests
//! that arrive late, twice or side by side therefore leave the same row.

use std::sync::LazyLock;

use falaj_base::Result;
use falaj_store::db::{FromValue, Row, Tx, Value};

use super::point::Point;
use crate::run::{RunId, store::id_list};

/// What is known of a metric without its history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latest {
    /// The last point by step, then timestamp, then value.
    pub last: Point,
    /// The lowest value; absent while there were only NaNs.
    pub min: Option<f64>,
    /// The highest value; absent while there were only NaNs.
    pub max: Option<f64>,
}

impl Latest {
    /// Of a single point.
    #[must_use]
    pub fn of(point: Point) -> Self {
        let value = Some(point.value()).filter(|value| !value.is_nan());
        Self { last: point, min: value, max: value }
    }

    /// Of several points; nothing, if there are none.
    #[must_use]
    pub fn fold(points: &[Point]) -> Option<Self> {
        points.iter().copied().map(Self::of).reduce(Self::and)
    }

    /// Of two sets of points together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let either = |a: Option<f64>, b: Option<f64>, choose: fn(f64, f64) -> f64| match (a, b) {
            (Some(a), Some(b)) => Some(choose(a, b)),
            (one, none) => one.or(none),
        };
        Self {
            last: if self.last.by_step(&other.last).is_lt() { other.last } else { self.last },
            min: either(self.min, other.min, f64::min),
            max: either(self.max, other.max, f64::max),
        }
    }
}

/// How many rows one statement writes. A few fixed sizes: a text per count would
/// crowd the prepared statements out, and a statement per row would cost a round trip each.
const SIZES: [usize; 5] = [256, 64, 16, 4, 1];

/// Cuts `all` into pieces of the fixed sizes, the largest first, each with its statement.
fn pieces<'a, T>(
    mut all: &'a [T],
    statements: &'static [String; SIZES.len()],
) -> impl Iterator<Item = (&'static str, &'a [T])> {
    std::iter::from_fn(move || {
        let (size, statement) =
            SIZES.into_iter().zip(statements).find(|(size, _)| *size <= all.len())?;
        let (piece, rest) = all.split_at(size);
        all = rest;
        Some((statement.as_str(), piece))
    })
}

/// The new row is later than the old one. A NaN is NULL here, and stands right after zero.
const NEWER: &str = "(excluded.step, excluded.timestamp, COALESCE(excluded.value, 0),
     excluded.value IS NULL)
  > (latest_metric.step, latest_metric.timestamp, COALESCE(latest_metric.value, 0),
     latest_metric.value IS NULL)";

const COLUMNS: usize = 6;

static UPSERT: LazyLock<[String; SIZES.len()]> = LazyLock::new(|| SIZES.map(upsert_text));

fn upsert_text(rows: usize) -> String {
    let row = |row: usize| {
        let columns: Vec<_> = (0..COLUMNS).map(|n| format!("${}", row * COLUMNS + n + 2)).collect();
        format!("($1, {})", columns.join(", "))
    };
    let rows: Vec<_> = (0..rows).map(row).collect();
    format!(
        "INSERT INTO latest_metric (run, key, value, step, timestamp, min, max) VALUES {}
         ON CONFLICT (run, key) DO UPDATE SET
         value = CASE WHEN {NEWER} THEN excluded.value ELSE latest_metric.value END,
         step = CASE WHEN {NEWER} THEN excluded.step ELSE latest_metric.step END,
         timestamp = CASE WHEN {NEWER} THEN excluded.timestamp ELSE latest_metric.timestamp END,
         min = CASE WHEN latest_metric.min IS NULL OR excluded.min < latest_metric.min
               THEN excluded.min ELSE latest_metric.min END,
         max = CASE WHEN latest_metric.max IS NULL OR excluded.max > latest_metric.max
               THEN excluded.max ELSE latest_metric.max END",
        rows.join(", ")
    )
}

/// Folds new points into a run's rows. Each key once, in rising order: two transactions that
/// touch the same rows then wait for each other instead of locking each other out.
pub(super) fn upsert(tx: &mut Tx<'_>, run: RunId, rows: &[(i64, Latest)]) -> Result<()> {
    for (statement, piece) in pieces(rows, &UPSERT) {
        let mut values = Vec::with_capacity(1 + COLUMNS * piece.len());
        values.push(run.into());
        for (key, Latest { last, min, max }) in piece {
            let value = Some(last.value()).filter(|value| !value.is_nan());
            values.extend([
                Value::from(*key),
                value.into(),
                last.step().into(),
                last.timestamp().into(),
                (*min).into(),
                (*max).into(),
            ]);
        }
        tx.put(statement, &values)?;
    }
    Ok(())
}

/// The rows of several runs: `(run, key, latest)`, those of a run together and by key.
pub fn latest(tx: &mut Tx<'_>, runs: &[RunId]) -> Result<Vec<(RunId, i64, Latest)>> {
    let mut found = Vec::new();
    for some in runs.chunks(SIZES[0]) {
        let (list, values) = id_list(some);
        let sql = format!(
            "SELECT run, key, value, step, timestamp, min, max FROM latest_metric
             WHERE run IN ({list}) ORDER BY run, key"
        );
        tx.scan(&sql, &values, |row| {
            found.push(read(row)?);
            Ok(())
        })?;
    }
    Ok(found)
}

/// By position: search reads these by the hundred thousand.
fn read(row: Row) -> Result<(RunId, i64, Latest)> {
    fn get<T: FromValue>(value: &Value) -> Result<T> {
        let wrong = || falaj_base::Error::internal("a latest metric has an unexpected column");
        T::from_value(value).ok_or_else(wrong)
    }
    let [run, key, value, step, timestamp, min, max] = &row.into_values()[..] else {
        return Err(falaj_base::Error::internal("a latest metric has an unexpected shape"));
    };
    let value: Option<f64> = get(value)?;
    let last = Point::new(get(timestamp)?, get(step)?, value.unwrap_or(f64::NAN));
    Ok((get(run)?, get(key)?, Latest { last, min: get(min)?, max: get(max)? }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_is_by_step_and_the_range_leaves_nan_out() {
        let points = [
            Point::new(9, 1, 5.0),
            Point::new(1, 2, -3.0),
            Point::new(0, 2, f64::NAN),
            Point::new(0, 0, f64::NAN),
        ];
        let latest = Latest::fold(&points).unwrap();
        assert_eq!(latest, Latest { last: points[1], min: Some(-3.0), max: Some(5.0) });
        let only_nan = Latest::fold(&points[2..]).unwrap();
        assert_eq!(only_nan, Latest { last: points[2], min: None, max: None });
        assert_eq!(Latest::fold(&[]), None);
    }

    #[test]
    fn pieces_cover_everything_in_order() {
        for len in [0, 1, 3, 4, 5, 63, 64, 100, 256, 1000] {
            let all: Vec<_> = (0..len).collect();
            let cut: Vec<_> = pieces(&all, &UPSERT).map(|(_, piece)| piece.to_vec()).collect();
            assert_eq!(cut.concat(), all);
            assert!(cut.len() <= 3 * SIZES.len(), "{len}");
            for (text, piece) in pieces(&all, &UPSERT) {
                assert_eq!(text.matches("($1,").count(), piece.len());
            }
        }
    }

    proptest! {
        #[test]
        fn folding_does_not_mind_order_or_repetition(
            points in prop::collection::vec((0_i64..3, 0_i64..3, -2_i8..3), 1..20),
        ) {
            // Minus two stands for a value that is none.
            let value = |v: i8| if v == -2 { f64::NAN } else { f64::from(v) };
            let points: Vec<_> =
                points.into_iter().map(|(t, s, v)| Point::new(t, s, value(v))).collect();
            let reversed: Vec<_> = points.iter().rev().chain(&points).copied().collect();
            prop_assert_eq!(Latest::fold(&points), Latest::fold(&reversed));
        }
    }
}
