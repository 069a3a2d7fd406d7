//! Histories: all points of one metric of one run, in order, each once.
//!
//! Must hold: the same points in any number of pieces, in any order and with any repetition give
//! the same history. A retried request therefore leaves no trace, and a point that is read both
//! from the log and from a chunk counts once.
//!
//! Not here: where the pieces come from (`store`).

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use falaj_base::Error;

use super::point::Point;

/// The most points a reply about several runs holds, all runs together.
pub const MAX_BULK_POINTS: usize = 25_000;
/// The most runs a question about several may name.
pub const MAX_BULK_RUNS: usize = 100;
/// The most points of one run in a sampled history.
pub const MAX_SAMPLED_POINTS: usize = 2_500;

/// An inclusive range of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    pub first: i64,
    pub last: i64,
}

impl Steps {
    pub const ALL: Self = Self { first: i64::MIN, last: i64::MAX };

    #[must_use]
    pub const fn contains(&self, step: i64) -> bool {
        self.first <= step && step <= self.last
    }
}

/// Brings pieces of a history, one after the other in `points`, into order and drops duplicates.
///
/// Pieces mostly follow each other in time: that case costs one comparison a point. The others
/// are merged by the stable sort, which finds the ordered stretches by itself.
#[must_use]
pub fn in_time_order(mut points: Vec<Point>) -> Vec<Point> {
    if !points.is_sorted_by(|a, b| a.by_time(b).is_lt()) {
        points.sort_by(Point::by_time);
        points.dedup();
    }
    points
}

/// The same history in the order of charts: by step.
#[must_use]
pub fn in_step_order(mut points: Vec<Point>) -> Vec<Point> {
    if !points.is_sorted_by(|a, b| a.by_step(b).is_lt()) {
        points.sort_by(Point::by_step);
        points.dedup();
    }
    points
}

/// A page of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryPage {
    pub points: Vec<Point>,
    /// Where the next page begins; absent on the last.
    pub next: Option<HistoryCursor>,
}

impl HistoryPage {
    /// Cuts a page from the points that follow the page before, in time order. More than `limit`
    /// of them mean that there is a next page.
    pub(super) fn cut(mut points: Vec<Point>, limit: usize) -> Self {
        let more = points.len() > limit;
        points.truncate(limit);
        let next = if more { points.last().copied().map(HistoryCursor) } else { None };
        Self { points, next }
    }
}

/// Where a page ended: its last point. Written as an opaque token.
///
/// By key and not by offset: a page costs the same however deep it is, and points that are logged
/// meanwhile neither shift the pages nor repeat any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryCursor(Point);

const CURSOR_VERSION: u8 = 1;

impl HistoryCursor {
    /// The last point of the page before.
    #[must_use]
    pub const fn after(&self) -> Point {
        self.0
    }
}

impl fmt::Display for HistoryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [CURSOR_VERSION; 25];
        bytes[1..9].copy_from_slice(&self.0.timestamp().to_be_bytes());
        bytes[9..17].copy_from_slice(&self.0.step().to_be_bytes());
        bytes[17..].copy_from_slice(&self.0.value().to_be_bytes());
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for HistoryCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused =
            || Error::invalid("page_token", text, "the `next_page_token` of the page before");
        let mut bytes = [0; 25];
        let read = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes);
        let [CURSOR_VERSION, rest @ ..] = bytes else { return Err(refused()) };
        let ([timestamp, step, value], []) = rest.as_chunks::<8>() else { return Err(refused()) };
        if read != Ok(bytes.len()) {
            return Err(refused());
        }
        let (timestamp, step) = (i64::from_be_bytes(*timestamp), i64::from_be_bytes(*step));
        Ok(Self(Point::new(timestamp, step, f64::from_be_bytes(*value))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points() -> impl Strategy<Value = Vec<Point>> {
        let value = prop_oneof![Just(f64::NAN), (-2_i32..2).prop_map(f64::from)];
        let point = (0_i64..4, 0_i64..4, value).prop_map(|(t, s, v)| Point::new(t, s, v));
        prop::collection::vec(point, 0..40)
    }

    proptest! {
        #[test]
        fn order_and_repetition_of_the_pieces_do_not_matter(a in points(), b in points()) {
            for order in [in_time_order, in_step_order] {
                let whole = order([a.clone(), b.clone()].concat());
                prop_assert_eq!(&order([b.clone(), a.clone(), b.clone()].concat()), &whole);
                prop_assert_eq!(&order(whole.clone()), &whole);
                prop_assert!(a.iter().chain(&b).all(|point| whole.contains(point)));
                for (at, point) in whole.iter().enumerate() {
                    prop_assert!(!whole[..at].contains(point), "each point once");
                }
            }
            let whole = in_time_order(a);
            prop_assert!(whole.is_sorted_by(|a, b| a.by_time(b).is_lt()));
        }

        #[test]
        fn tokens_come_back(time in any::<i64>(), step in any::<i64>(), value in any::<f64>()) {
            let cursor = HistoryCursor(Point::new(time, step, value));
            prop_assert_eq!(cursor.to_string().parse::<HistoryCursor>().unwrap(), cursor);
        }

        #[test]
        fn any_text_is_a_token_or_refused(text in ".{0,60}") {
            let _ = text.parse::<HistoryCursor>();
        }
    }

    #[test]
    fn tokens_are_frozen_and_others_are_refused() {
        let token = "AQAAAYvP5WgAAAAAAAAAAAc_4AAAAAAAAA";
        let point = Point::new(1_700_000_000_000, 7, 0.5);
        assert_eq!(HistoryCursor(point).to_string(), token);
        assert_eq!(token.parse::<HistoryCursor>().unwrap().after(), point);
        for bad in ["", "invalid_token", "eyJvZmZzZXQiOiA0fQ==", &token[1..], &token[..33]] {
            assert!(bad.parse::<HistoryCursor>().is_err(), "{bad:?}");
        }
        assert!(token.replacen("AQ", "Ag", 1).parse::<HistoryCursor>().is_err());
    }

    #[test]
    fn a_page_tells_whether_there_is_another() {
        let points: Vec<_> = (0..3).map(|n| Point::new(n, n, 0.0)).collect();
        let next = |limit| HistoryPage::cut(points.clone(), limit).next;
        assert_eq!(next(3), None);
        assert_eq!(next(2), Some(HistoryCursor(points[1])));
    }
}
