//! Putting runs in order, and going on after the last one of a page.
//!
//! The order is MLflow's: numbers, then NaN, then what is absent, in either direction; equal runs
//! by start time, the latest first, and at last by id.

use std::cmp::Ordering;

use falaj_mlflow::filter::{Aggregate, Field, OrderBy};
use serde::{Deserialize, Serialize};

use super::column::{Numbers, Row, Texts};
use super::frame::{Base, Frame};
use crate::run::RunId;

/// What a run is ordered by, for one clause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Key {
    #[serde(rename = "n", with = "bits")]
    Number(f64),
    #[serde(rename = "t")]
    Text(String),
    #[serde(rename = "x")]
    NaN,
    #[serde(rename = "o")]
    Absent,
}

/// A double as its bits: as a decimal, a page token could lose the last one of them.
mod bits {
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    pub(super) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.to_bits())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        u64::deserialize(from).map(f64::from_bits)
    }
}

impl Key {
    fn number(value: f64) -> Self {
        if value.is_nan() { Self::NaN } else { Self::Number(value) }
    }

    const fn class(&self) -> u8 {
        match self {
            Self::Number(_) | Self::Text(_) => 0,
            Self::NaN => 1,
            Self::Absent => 2,
        }
    }

    fn compare(&self, other: &Self, ascending: bool) -> Ordering {
        let values = match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => return self.class().cmp(&other.class()),
        };
        if ascending { values } else { values.reverse() }
    }
}

/// Everything that decides a run's place: what a page token holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Place {
    #[serde(rename = "k")]
    pub(super) keys: Vec<Key>,
    #[serde(rename = "s")]
    pub(super) start_time: i64,
    #[serde(rename = "r")]
    pub(super) run: String,
}

pub(super) fn compare(a: &Place, b: &Place, order: &[OrderBy]) -> Ordering {
    let keys = a.keys.iter().zip(&b.keys).zip(order);
    keys.map(|((a, b), by)| a.compare(b, by.ascending))
        .find(|way| way.is_ne())
        .unwrap_or_else(|| b.start_time.cmp(&a.start_time).then_with(|| a.run.cmp(&b.run)))
}

/// Numbers that stand in the order of the values, so that most comparisons are of two numbers.
mod standing {
    pub(super) const ABSENT: u64 = u64::MAX;
    pub(super) const NAN: u64 = u64::MAX - 1;

    /// In the order of `f64::total_cmp`; below `NAN` for all that is a number, in both directions.
    pub(super) fn number(value: f64, ascending: bool) -> u64 {
        if value.is_nan() {
            return NAN;
        }
        let bits = value.to_bits();
        let standing = if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
        if ascending { standing } else { !standing }
    }

    pub(super) fn rank(rank: u32, ascending: bool) -> u64 {
        u64::from(if ascending { rank } else { !rank })
    }

    /// The latest first.
    pub(super) fn start(time: i64) -> u64 {
        !(time.cast_unsigned() ^ 1 << 63)
    }
}

/// How one clause reads a frame.
enum Source<'f> {
    Number(&'f Numbers, &'f [f64]),
    Text(&'f Texts, Vec<u32>),
    Base(fn(&Base) -> Key),
    Nothing,
}

impl Source<'_> {
    fn key(&self, frame: &Frame, row: Row) -> Key {
        let at = row as usize;
        match self {
            Source::Number(numbers, values) if numbers.there[at] => Key::number(values[at]),
            Source::Text(texts, _) => {
                texts.get(row).map_or(Key::Absent, |text| Key::Text(text.to_string()))
            }
            Source::Base(read) => read(&frame.runs[at]),
            Source::Number(..) | Source::Nothing => Key::Absent,
        }
    }

    /// Where a row stands among the others by this clause: equal for equal keys and in their
    /// order, or the same for all where that cannot be told by a number.
    fn standing(&self, row: Row, ascending: bool) -> u64 {
        let at = row as usize;
        match self {
            Source::Number(numbers, values) if numbers.there[at] => {
                standing::number(values[at], ascending)
            }
            Source::Text(texts, ranks) => match texts.codes[at] {
                0 => standing::ABSENT,
                code => standing::rank(ranks[code as usize], ascending),
            },
            Source::Number(..) | Source::Nothing => standing::ABSENT,
            Source::Base(_) => 0,
        }
    }

    /// The same as comparing the keys, without making texts where a number tells.
    fn compare(&self, frame: &Frame, a: Row, b: Row, ascending: bool) -> Ordering {
        if let Source::Base(_) = self {
            return self.key(frame, a).compare(&self.key(frame, b), ascending);
        }
        self.standing(a, ascending).cmp(&self.standing(b, ascending))
    }
}

#[allow(clippy::cast_precision_loss, reason = "times in milliseconds are far below 2^53")]
fn source<'f>(frame: &'f Frame, field: &Field) -> Source<'f> {
    match field {
        Field::Metric { aggregate, .. } => match frame.numbers(field) {
            None => Source::Nothing,
            Some(numbers) => Source::Number(
                numbers,
                match aggregate {
                    Aggregate::Min => &numbers.least,
                    Aggregate::Max => &numbers.greatest,
                    Aggregate::Latest | Aggregate::Undecided => &numbers.latest,
                },
            ),
        },
        Field::Attribute("start_time") => Source::Base(|run| Key::Number(run.start_time as f64)),
        Field::Attribute("end_time") => {
            Source::Base(|run| run.end_time.map_or(Key::Absent, |time| Key::Number(time as f64)))
        }
        Field::Attribute("status") => Source::Base(|run| Key::Text(run.status.as_str().to_owned())),
        Field::Attribute("run_id") => Source::Base(|run| Key::Text(run.id.to_string())),
        field => {
            frame.texts(field).map_or(Source::Nothing, |texts| Source::Text(texts, ranks(texts)))
        }
    }
}

/// Where each distinct text stands among all of them.
fn ranks(texts: &Texts) -> Vec<u32> {
    let mut order: Vec<u32> = (0..).take(texts.words.len()).collect();
    order.sort_unstable_by(|a, b| texts.words[*a as usize].cmp(&texts.words[*b as usize]));
    let mut ranks = vec![0; order.len()];
    for (rank, code) in (0..).zip(order) {
        ranks[code as usize] = rank;
    }
    ranks
}

/// How many rows are gathered at least before the best of them are picked.
const ROOM: usize = 1024;

/// The first `limit` of the chosen runs that come after `after`, in order, with their places.
pub(super) fn first(
    frame: &Frame,
    chosen: &[bool],
    order: &[OrderBy],
    after: Option<&Place>,
    limit: usize,
) -> Vec<(RunId, Place)> {
    let sources: Vec<Source<'_>> = order.iter().map(|by| source(frame, &by.field)).collect();
    let place = |row: Row| {
        let base = &frame.runs[row as usize];
        Place {
            keys: sources.iter().map(|source| source.key(frame, row)).collect(),
            start_time: base.start_time,
            run: base.id.to_string(),
        }
    };
    let standing = |row: Row| match (sources.first(), order.first()) {
        (Some(source), Some(by)) => source.standing(row, by.ascending),
        _ => standing::start(frame.runs[row as usize].start_time),
    };
    let by_place = |(standing_a, a): &(u64, Row), (standing_b, b): &(u64, Row)| {
        standing_a.cmp(standing_b).then_with(|| {
            let clauses = sources.iter().zip(order);
            let decided = clauses
                .map(|(source, by)| source.compare(frame, *a, *b, by.ascending))
                .find(|way| way.is_ne());
            let (a, b) = (&frame.runs[*a as usize], &frame.runs[*b as usize]);
            decided.unwrap_or_else(|| b.start_time.cmp(&a.start_time).then_with(|| a.id.cmp(&b.id)))
        })
    };
    // The best so far, and some room: most rows stand behind them and are passed over at once.
    let room = limit.saturating_mul(2).max(ROOM);
    let mut rows: Vec<(u64, Row)> = Vec::new();
    let mut last = u64::MAX;
    let chosen = (0..).zip(chosen).filter(|(_, chosen)| **chosen).map(|(row, _)| row);
    for row in chosen {
        let standing = standing(row);
        if standing > last
            || after.is_some_and(|after| !is_after(frame, &sources, order, row, after))
        {
            continue;
        }
        rows.push((standing, row));
        if rows.len() >= room {
            let (_, worst, _) = rows.select_nth_unstable_by(limit, by_place);
            last = worst.0;
            rows.truncate(limit);
        }
    }
    rows.sort_unstable_by(by_place);
    rows.truncate(limit);
    rows.into_iter().map(|(_, row)| (frame.runs[row as usize].id, place(row))).collect()
}

/// Whether a row comes after the last one of a page; texts are made only where they decide.
fn is_after(
    frame: &Frame,
    sources: &[Source<'_>],
    order: &[OrderBy],
    row: Row,
    after: &Place,
) -> bool {
    let clauses = sources.iter().zip(&after.keys).zip(order);
    let decided = clauses
        .map(|((source, key), by)| source.key(frame, row).compare(key, by.ascending))
        .find(|way| way.is_ne());
    let base = &frame.runs[row as usize];
    let way = decided
        .unwrap_or_else(|| after.start_time.cmp(&base.start_time))
        .then_with(|| base.id.to_string().cmp(&after.run));
    way.is_gt()
}

#[cfg(test)]
mod tests {
    use super::{Key, standing};

    /// What stands before what must be the same by keys and by the numbers that stand for them.
    #[test]
    fn standings_are_in_the_order_of_keys() {
        let numbers = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -f64::MIN_POSITIVE,
            -0.0,
            0.0,
            5e-324,
            1.0,
            1.0 + f64::EPSILON,
            f64::MAX,
            f64::INFINITY,
            f64::NAN,
            -f64::NAN,
        ];
        for ascending in [true, false] {
            let mut all: Vec<(Key, u64)> = numbers
                .iter()
                .map(|number| (Key::number(*number), standing::number(*number, ascending)))
                .collect();
            all.push((Key::Absent, standing::ABSENT));
            for (key, stands) in &all {
                for (other, others) in &all {
                    let expected = key.compare(other, ascending);
                    assert_eq!(stands.cmp(others), expected, "{key:?} beside {other:?}");
                }
            }
        }
    }

    #[test]
    fn texts_and_times_stand_in_order_too() {
        assert!(standing::rank(0, true) < standing::rank(7, true));
        assert!(standing::rank(0, false) > standing::rank(7, false));
        assert!(standing::rank(0, false) < standing::ABSENT);
        let times = [i64::MAX, 1, 0, -1, i64::MIN];
        assert!(times.is_sorted_by(|a, b| standing::start(*a) < standing::start(*b)));
    }
}
