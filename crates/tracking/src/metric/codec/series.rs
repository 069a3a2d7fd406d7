//! The points of one key, column by column. The layout is described at the parent module.

use falaj_base::Result;

use super::bytes::{Reader, put_varint};
use super::column::{Column, Plan, room};
use super::corrupt;
use crate::metric::point::Point;

const VALUES_ARE_F32: u8 = 1 << 6;
const RESERVED: u8 = 1 << 7;

/// The timestamp and step that a series counts its first ones from: those of the series before.
/// What is logged together is of one time, and mostly of one step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Base {
    pub(super) timestamp: i64,
    pub(super) step: i64,
}

pub(super) fn encode(out: &mut Vec<u8>, base: Base, points: &[Point]) {
    let times = || points.iter().map(Point::timestamp);
    let steps = || points.iter().map(Point::step);
    let (time_plan, step_plan) = (Plan::new(times()), Plan::new(steps()));
    let short = points.iter().all(|point| is_f32(point.value()));

    put_varint(out, points.len() as u64);
    let values = if short { VALUES_ARE_F32 } else { 0 };
    out.push(time_plan.code() | step_plan.code() << 3 | values);
    time_plan.put_first(out, base.timestamp);
    step_plan.put_first(out, base.step);
    time_plan.put_smallest(out);
    step_plan.put_smallest(out);
    time_plan.put(out, times());
    step_plan.put(out, steps());
    if short {
        for (slot, point) in room(out, points.len()).iter_mut().zip(points) {
            *slot = narrow(point.value()).to_le_bytes();
        }
    } else {
        for (slot, point) in room(out, points.len()).iter_mut().zip(points) {
            *slot = point.value().to_le_bytes();
        }
    }
}

/// Whether a 32-bit float holds the value exactly. There is only one NaN, and it does.
fn is_f32(value: f64) -> bool {
    f64::from(narrow(value)).to_bits() == value.to_bits() || value.is_nan()
}

#[allow(clippy::cast_possible_truncation, reason = "the caller compares, or knows it is exact")]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// Encoded points whose lengths have been checked, not yet decoded: other keys are passed over
/// at the cost of a header.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    count: usize,
    times: Column<'a>,
    steps: Column<'a>,
    values: &'a [u8],
    short: bool,
}

impl<'a> Series<'a> {
    pub(super) fn read(reader: &mut Reader<'a>, base: Base) -> Result<Self> {
        let count = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
        let Some(further) = count.checked_sub(1) else {
            return Err(corrupt("a series without points"));
        };
        let shape = reader.byte()?;
        if shape & RESERVED != 0 {
            return Err(corrupt("a series of an unknown shape"));
        }
        let time = base.timestamp.wrapping_add(reader.zigzag()?);
        let step = base.step.wrapping_add(reader.zigzag()?);
        let (time_gap, step_gap) =
            if further > 0 { (reader.zigzag()?, reader.zigzag()?) } else { (0, 0) };
        let times = Column::new(time, time_gap, shape).read(reader, further)?;
        let steps = Column::new(step, step_gap, shape >> 3).read(reader, further)?;
        let short = shape & VALUES_ARE_F32 != 0;
        let values = reader.take(count.saturating_mul(if short { 4 } else { 8 }))?;
        Ok(Self { count, times, steps, values, short })
    }

    /// What the next series of the row counts from.
    pub(super) const fn as_base(&self) -> Base {
        Base { timestamp: self.times.first, step: self.steps.first }
    }

    /// How many points it has: at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether each step is larger than the one before: those of all points lie between these two.
    #[must_use]
    pub const fn steps_rise(&self, lowest: i64, highest: i64) -> bool {
        // Where the lowest and the highest are not too far apart, no difference wraps around.
        self.count == 1 || (self.steps.rises() && highest.checked_sub(lowest).is_some())
    }

    /// Appends the points in these places, which rise and are not beyond the end.
    pub fn pick(&self, places: &[usize], out: &mut Vec<Point>) {
        let value = |place: usize| {
            if self.short {
                f32::from_le_bytes(self.values.as_chunks().0[place]).into()
            } else {
                f64::from_le_bytes(self.values.as_chunks().0[place])
            }
        };
        let numbers = self.times.pick(places).into_iter().zip(self.steps.pick(places));
        let points = numbers.zip(places);
        out.extend(points.map(|((time, step), place)| Point::new(time, step, value(*place))));
    }

    /// Appends the points, in the order they were given.
    pub fn decode_into(&self, out: &mut Vec<Point>) {
        let start = out.len();
        // The first timestamp and step are right for the first point; the others follow.
        let point = |value| Point::new(self.times.first, self.steps.first, value);
        if self.short {
            let (values, _) = self.values.as_chunks();
            out.extend(values.iter().map(|bytes| point(f32::from_le_bytes(*bytes).into())));
        } else {
            let (values, _) = self.values.as_chunks();
            out.extend(values.iter().map(|bytes| point(f64::from_le_bytes(*bytes))));
        }
        if let Some(further) = out.get_mut(start + 1..) {
            self.times.fill(further, Point::set_timestamp);
            self.steps.fill(further, Point::set_step);
        }
    }
}
