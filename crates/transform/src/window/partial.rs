//! What is known of some events.

use super::aggregate::{Aggregate, Function};
use super::bytes::{Reader, put, put_signed};
use super::distinct::Distinct;
use super::exact::Exact;
use super::item::Item;
use super::quantile::Spread;
use crate::Type;

/// What one aggregate knows of some events.
#[derive(Clone, Debug)]
pub struct Partial(Known);

#[derive(Clone, Debug)]
enum Known {
    Count(u64),
    Whole {
        count: u64,
        sum: i128,
    },
    Float {
        count: u64,
        sum: Exact,
    },
    Spread {
        count: u64,
        sum: Exact,
        squares: Exact,
    },
    /// The least or the greatest.
    Most(Option<Item>),
    /// The earliest or the latest; of several at once, the greatest.
    Edge(Option<(i64, Item)>),
    Distinct(Distinct),
    Quantile(Spread),
}

impl Partial {
    /// What is known of nothing.
    #[must_use]
    pub fn new(of: &Aggregate) -> Self {
        let whole = matches!(of.input, Some(Type::Int32 | Type::Int64));
        Self(match of.function {
            Function::Count => Known::Count(0),
            Function::Sum | Function::Mean if whole => Known::Whole { count: 0, sum: 0 },
            Function::Sum | Function::Mean => Known::Float { count: 0, sum: Exact::default() },
            Function::Stddev => {
                Known::Spread { count: 0, sum: Exact::default(), squares: Exact::default() }
            }
            Function::Min | Function::Max => Known::Most(None),
            Function::First | Function::Last => Known::Edge(None),
            Function::Distinct => Known::Distinct(Distinct::default()),
            Function::Quantile => Known::Quantile(Spread::default()),
        })
    }

    /// One more event, with its value if it has one. Where there is no value nothing is added, but to
    /// the number of events.
    pub fn add(&mut self, of: &Aggregate, event: i64, value: Option<&Item>) {
        if of.input.is_none() {
            if let Known::Count(count) = &mut self.0 {
                *count += 1;
            }
            return;
        }
        let Some(value) = value else { return };
        match &mut self.0 {
            Known::Count(count) => *count += 1,
            Known::Whole { count, sum } => {
                if let Item::Int(value) = value {
                    *count += 1;
                    *sum += i128::from(*value);
                }
            }
            Known::Float { count, sum } => {
                if let Some(value) = value.float() {
                    *count += 1;
                    sum.add(value);
                }
            }
            Known::Spread { count, sum, squares } => {
                if let Some(value) = value.float() {
                    *count += 1;
                    sum.add(value);
                    squares.add_square(value);
                }
            }
            Known::Most(known) => most(of, known, value),
            Known::Edge(known) => edge(of, known, event, value),
            Known::Distinct(known) => known.add(value.hash()),
            Known::Quantile(known) => {
                if let Some(value) = value.float() {
                    known.add(value);
                }
            }
        }
    }

    /// What another knows, too.
    pub fn merge(&mut self, of: &Aggregate, other: &Self) {
        match (&mut self.0, &other.0) {
            (Known::Count(ours), Known::Count(theirs)) => *ours = ours.saturating_add(*theirs),
            (Known::Whole { count, sum }, Known::Whole { count: more, sum: theirs }) => {
                *count = count.saturating_add(*more);
                *sum = sum.saturating_add(*theirs);
            }
            (Known::Float { count, sum }, Known::Float { count: more, sum: theirs }) => {
                *count = count.saturating_add(*more);
                sum.merge(theirs);
            }
            (
                Known::Spread { count, sum, squares },
                Known::Spread { count: more, sum: theirs, squares: their_squares },
            ) => {
                *count = count.saturating_add(*more);
                sum.merge(theirs);
                squares.merge(their_squares);
            }
            (Known::Most(ours), Known::Most(Some(theirs))) => most(of, ours, theirs),
            (Known::Edge(ours), Known::Edge(Some((event, theirs)))) => {
                edge(of, ours, *event, theirs);
            }
            (Known::Distinct(ours), Known::Distinct(theirs)) => ours.merge(theirs),
            (Known::Quantile(ours), Known::Quantile(theirs)) => ours.merge(theirs),
            // Nothing to add; partials of other aggregates are never put together.
            _ => {}
        }
    }

    /// What it comes to; none where there is nothing to tell. Counts always tell.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "the nearest float is wanted")]
    pub fn value(&self, of: &Aggregate) -> Option<Item> {
        let whole = |count: u64| Item::Int(i64::try_from(count).unwrap_or(i64::MAX));
        match &self.0 {
            Known::Count(count) => Some(whole(*count)),
            Known::Whole { count: 0, .. }
            | Known::Float { count: 0, .. }
            | Known::Spread { count: 0 | 1, .. } => None,
            Known::Whole { count, sum } => Some(if of.function == Function::Mean {
                Item::Float(*sum as f64 / *count as f64)
            } else {
                // No int64 tells it if it does not fit.
                Item::Int(i64::try_from(*sum).ok()?)
            }),
            Known::Float { count, sum } => Some(Item::Float(if of.function == Function::Mean {
                sum.value() / *count as f64
            } else {
                sum.value()
            })),
            Known::Spread { count, sum, squares } => {
                Some(Item::Float(sum.variance(squares, *count).sqrt()))
            }
            Known::Most(known) => known.clone(),
            Known::Edge(known) => known.as_ref().map(|(_, value)| value.clone()),
            Known::Distinct(known) => Some(Item::Int(known.value())),
            Known::Quantile(known) => known.value(of.quantile).map(Item::Float),
        }
    }

    /// About how much memory it takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + match &self.0 {
                Known::Count(_) | Known::Whole { .. } => 0,
                Known::Float { sum, .. } => sum.heap(),
                Known::Spread { sum, squares, .. } => sum.heap() + squares.heap(),
                Known::Most(known) => known.as_ref().map_or(0, Item::heap),
                Known::Edge(known) => known.as_ref().map_or(0, |(_, value)| value.heap()),
                Known::Distinct(known) => known.heap(),
                Known::Quantile(known) => known.heap(),
            }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Known::Count(count) => put(out, (*count).into()),
            Known::Whole { count, sum } => {
                put(out, (*count).into());
                put_signed(out, *sum);
            }
            Known::Float { count, sum } => {
                put(out, (*count).into());
                sum.write(out);
            }
            Known::Spread { count, sum, squares } => {
                put(out, (*count).into());
                sum.write(out);
                squares.write(out);
            }
            Known::Most(known) => {
                out.push(u8::from(known.is_some()));
                if let Some(value) = known {
                    value.write(out);
                }
            }
            Known::Edge(known) => {
                out.push(u8::from(known.is_some()));
                if let Some((event, value)) = known {
                    put_signed(out, (*event).into());
                    value.write(out);
                }
            }
            Known::Distinct(known) => known.write(out),
            Known::Quantile(known) => known.write(out),
        }
    }

    pub(super) fn read(of: &Aggregate, from: &mut Reader<'_>) -> Option<Self> {
        let count = |from: &mut Reader<'_>| u64::try_from(from.number()?).ok();
        Some(Self(match Self::new(of).0 {
            Known::Count(_) => Known::Count(count(from)?),
            Known::Whole { .. } => Known::Whole { count: count(from)?, sum: from.signed()? },
            Known::Float { .. } => Known::Float { count: count(from)?, sum: Exact::read(from)? },
            Known::Spread { .. } => Known::Spread {
                count: count(from)?,
                sum: Exact::read(from)?,
                squares: Exact::read(from)?,
            },
            Known::Most(_) => Known::Most(match from.byte()? {
                0 => None,
                _ => Some(Item::read(from)?),
            }),
            Known::Edge(_) => Known::Edge(match from.byte()? {
                0 => None,
                _ => Some((from.signed()?.try_into().ok()?, Item::read(from)?)),
            }),
            Known::Distinct(_) => Known::Distinct(Distinct::read(from)?),
            Known::Quantile(_) => Known::Quantile(Spread::read(from)?),
        }))
    }
}

fn most(of: &Aggregate, known: &mut Option<Item>, value: &Item) {
    let better = known.as_ref().is_none_or(|known| match of.function {
        Function::Min => value < known,
        _ => value > known,
    });
    if better {
        *known = Some(value.clone());
    }
}

fn edge(of: &Aggregate, known: &mut Option<(i64, Item)>, event: i64, value: &Item) {
    let better = known.as_ref().is_none_or(|(at, known)| match of.function {
        Function::First => event < *at || (event == *at && value > known),
        _ => event > *at || (event == *at && value > known),
    });
    if better {
        *known = Some((event, value.clone()));
    }
}
