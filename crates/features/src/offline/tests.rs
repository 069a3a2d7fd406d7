//! Every rule by name, and all of them together against a plain, slow definition.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

use super::*;

/// A row of a history: key, event, known, value.
type Row = (i64, i64, i64, Option<i64>);

fn ints(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn times(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values(values))
}

/// The values that answer, with the history in batches of this size.
fn joined(asked: &[(i64, i64)], history: &[Row], rules: Rules, batch: usize) -> Vec<Option<i64>> {
    let keys = ints(asked.iter().map(|(key, _)| *key));
    let at = times(asked.iter().map(|(_, at)| *at));
    let moments = Moments::new(&[("key", keys)], ("at", &*at)).unwrap();
    let mut latest = Latest::new(&moments, rules);
    for rows in history.chunks(batch.max(1)) {
        let events = || rows.iter().map(|row| row.1);
        let between = events().min().zip(events().max()).unwrap();
        if !latest.could_answer(between) {
            latest.skip(rows.len() as u64);
            continue;
        }
        let keys = ints(rows.iter().map(|row| row.0));
        let events = times(rows.iter().map(|row| row.1));
        let knowns = times(rows.iter().map(|row| row.2));
        latest.add(&[("key", keys)], ("event", &*events), Some(("known", &*knowns))).unwrap();
    }
    let schema = Arc::new(Schema::new(vec![Field::new("value", DataType::Int64, true)]));
    let mut gathered = Gathered::new(latest.finish(), schema.clone(), usize::MAX);
    for rows in history.chunks(batch.max(1)) {
        if !gathered.wants(rows.len() as u64) {
            gathered.skip(rows.len() as u64);
            continue;
        }
        let values: ArrayRef = Arc::new(rows.iter().map(|row| row.3).collect::<Int64Array>());
        gathered.add(&RecordBatch::try_new(schema.clone(), vec![values]).unwrap()).unwrap();
    }
    let found = gathered.finish().unwrap();
    // In two parts, as good as in one.
    let (whole, half) = (asked.len(), asked.len() / 2);
    let parts = [0..half, half..whole].map(|part| found.part(part).unwrap().remove(0));
    parts.iter().flat_map(|part| part.as_primitive::<Int64Type>().iter()).collect()
}

/// The same by looking at every row for every moment.
fn slowly(asked: &[(i64, i64)], history: &[Row], rules: Rules) -> Vec<Option<i64>> {
    let answer = |(key, at): &(i64, i64)| {
        let fits = |row: &&(usize, &Row)| {
            let (_, (of, event, known, _)) = row;
            of == key
                && event <= at
                && (rules.hindsight || known <= at)
                && rules.known_by.is_none_or(|latest| *known <= latest)
                && rules.ttl.is_none_or(|ttl| at - event <= ttl)
        };
        let rows: Vec<_> = history.iter().enumerate().collect();
        let best = rows.iter().filter(fits).max_by_key(|(place, row)| (row.1, row.2, *place));
        best.and_then(|(_, row)| row.3)
    };
    asked.iter().map(answer).collect()
}

fn one(asked: &[(i64, i64)], history: &[Row], rules: Rules) -> Vec<Option<i64>> {
    let found = joined(asked, history, rules, 2);
    assert_eq!(found, slowly(asked, history, rules));
    found
}

const WEEK: Rules = Rules { ttl: Some(7), known_by: None, hindsight: false };
const EVER: Rules = Rules { ttl: None, known_by: None, hindsight: false };

#[test]
fn an_event_of_the_moment_itself_answers() {
    assert_eq!(one(&[(1, 10)], &[(1, 10, 10, Some(5))], WEEK), [Some(5)]);
}

#[test]
fn the_last_moment_of_its_life_is_part_of_it() {
    let history = [(1, 10, 10, Some(5))];
    assert_eq!(one(&[(1, 17), (1, 18)], &history, WEEK), [Some(5), None]);
}

#[test]
fn a_row_without_an_answer_stays() {
    let history = [(1, 1, 1, Some(5)), (2, 99, 99, Some(6))];
    assert_eq!(one(&[(1, 50), (2, 50), (3, 50)], &history, WEEK), [None, None, None]);
}

#[test]
fn the_same_question_twice_is_answered_twice_in_the_order_asked() {
    let history = [(1, 1, 1, Some(5)), (2, 1, 1, Some(6))];
    let asked = [(2, 3), (1, 3), (2, 3), (1, 2)];
    assert_eq!(one(&asked, &history, WEEK), [Some(6), Some(5), Some(6), Some(5)]);
}

#[test]
fn of_one_event_what_was_known_last_answers_and_then_what_stands_last() {
    let history = [(1, 5, 7, Some(2)), (1, 5, 6, Some(1)), (1, 5, 7, Some(3))];
    assert_eq!(one(&[(1, 9), (1, 6)], &history, EVER), [Some(3), Some(1)]);
}

#[test]
fn the_latest_row_answers_also_with_nothing() {
    assert_eq!(one(&[(1, 9)], &[(1, 4, 4, Some(1)), (1, 5, 5, None)], EVER), [None]);
}

#[test]
fn a_correction_that_came_later_is_not_known_yet() {
    let history = [(1, 5, 5, Some(1)), (1, 5, 20, Some(2)), (1, 6, 30, Some(3))];
    let asked = [(1, 10), (1, 25), (1, 30)];
    assert_eq!(one(&asked, &history, EVER), [Some(1), Some(2), Some(3)]);
    let hindsight = Rules { hindsight: true, ..EVER };
    assert_eq!(one(&asked, &history, hindsight), [Some(3), Some(3), Some(3)]);
    let frozen = Rules { known_by: Some(20), ..EVER };
    assert_eq!(one(&asked, &history, frozen), [Some(1), Some(2), Some(2)]);
}

#[test]
fn keys_of_several_columns_do_not_run_into_each_other() {
    let text = |values: &[&str]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    let (a, b) = (text(&["1", "11", "1"]), text(&["11", "1", "1"]));
    let at = times([9, 9, 9]);
    let moments = Moments::new(&[("a", a), ("b", b)], ("at", &*at)).unwrap();
    let mut latest = Latest::new(&moments, EVER);
    let (a, b) = (text(&["11", "1"]), text(&["1", "11"]));
    let event = times([1, 2]);
    latest.add(&[("a", a), ("b", b)], ("event", &*event), None).unwrap();
    assert_eq!(latest.finish().rows(), [Some(1), Some(0), None]);
}

#[test]
fn keys_meet_by_what_they_mean_in_every_width() {
    let narrow: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None, Some(-1)]));
    let wide: ArrayRef = Arc::new(UInt64Array::from(vec![7, u64::MAX]));
    let at = times([9, 9, 9]);
    let moments = Moments::new(&[("key", narrow)], ("at", &*at)).unwrap();
    let mut latest = Latest::new(&moments, EVER);
    let event = times([1, 1]);
    latest.add(&[("key", wide.clone())], ("event", &*event), None).unwrap();
    assert_eq!(latest.finish().rows(), [Some(0), None, None]);

    let at = times([9, 9]);
    let moments = Moments::new(&[("key", wide)], ("at", &*at)).unwrap();
    let mut latest = Latest::new(&moments, EVER);
    let narrow: ArrayRef = Arc::new(Int32Array::from(vec![7, -1]));
    let event = times([1, 1]);
    latest.add(&[("key", narrow)], ("event", &*event), None).unwrap();
    assert_eq!(latest.finish().rows(), [Some(0), None]);
}

#[test]
fn numbers_far_from_those_that_lie_close_together_are_nobody() {
    for (close, far) in [
        ([i64::MAX, i64::MAX - 1], [i64::MIN, i64::MAX - 2]),
        ([i64::MIN, i64::MIN + 1], [i64::MAX, i64::MIN + 2]),
        ([5, 7], [6, 5 + (1 << 32)]),
    ] {
        let moments = Moments::new(&[("key", ints(close))], ("at", &*times([9, 9]))).unwrap();
        let mut latest = Latest::new(&moments, EVER);
        let keys = ints(far.into_iter().chain([close[1]]));
        latest.add(&[("key", keys)], ("event", &*times([1, 1, 1])), None).unwrap();
        assert_eq!(latest.finish().rows(), [None, Some(2)], "{close:?}");
    }
}

#[test]
fn what_cannot_answer_need_not_be_read() {
    let moments = Moments::new(&[("key", ints([1, 2]))], ("at", &*times([50, 90]))).unwrap();
    let latest = Latest::new(&moments, WEEK);
    for (events, could) in [((0, 42), false), ((0, 43), true), ((90, 99), true), ((91, 99), false)]
    {
        assert_eq!(latest.could_answer(events), could, "{events:?}");
    }
    assert!(Latest::new(&moments, EVER).could_answer((0, 0)));
    let nobody = Moments::new(&[("key", ints([]))], ("at", &*times([]))).unwrap();
    assert!(!Latest::new(&nobody, EVER).could_answer((0, 100)));
}

#[test]
fn parts_of_a_microsecond_let_nothing_in_early() {
    let nanos = |values: Vec<i64>| -> ArrayRef {
        Arc::new(arrow_array::TimestampNanosecondArray::from(values))
    };
    let answered = |at: &ArrayRef, event: &ArrayRef, rules: Rules| {
        let moments = Moments::new(&[("key", ints([1, 1, 1, 1]))], ("at", &**at)).unwrap();
        let mut latest = Latest::new(&moments, rules);
        latest.add(&[("key", ints([1]))], ("event", &**event), None).unwrap();
        latest.finish().rows()
    };
    // One that is of the moment itself answers, to the nanosecond.
    let exact = nanos(vec![10_899, 10_900, 10_999, 11_000]);
    let late = [None, Some(0), Some(0), Some(0)];
    assert_eq!(answered(&exact, &nanos(vec![10_900]), EVER), late);
    // Moments of microseconds: it is of the next.
    let coarse = times([10, 10, 11, 12]);
    assert_eq!(answered(&coarse, &nanos(vec![10_900]), EVER), [None, None, Some(0), Some(0)]);
    // Events of microseconds, and rules that count in them.
    let at = nanos(vec![9_999, 10_000, 12_000, 12_001]);
    let rules = Rules { ttl: Some(2), ..EVER };
    assert_eq!(answered(&at, &times([10]), rules), [None, Some(0), Some(0), None]);
    let rules = Rules { known_by: Some(9), ..EVER };
    assert_eq!(answered(&at, &times([10]), rules), [None; 4]);
}

#[test]
fn what_is_not_a_time_is_refused_by_its_row() {
    let at: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let error = Moments::new(&[("key", ints([1, 2]))], ("at", &*at)).unwrap_err();
    assert_eq!(error.field(), Some("at[1]"));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["now", "then"]));
    let error = Moments::new(&[("key", ints([1, 2]))], ("at", &*text)).unwrap_err();
    assert_eq!(error.field(), Some("at"));
    let floats: ArrayRef = Arc::new(arrow_array::Float64Array::from(vec![1.0, 2.0]));
    let error = Moments::new(&[("key", floats)], ("at", &*ints([1, 2]))).unwrap_err();
    assert_eq!(error.field(), Some("key"));
    let error = Moments::new(&[("key", ints([1]))], ("at", &*ints([1, 2]))).unwrap_err();
    assert_eq!(error.field(), Some("at"));
}

proptest! {
    #[test]
    fn any_history_answers_as_the_definition_says(
        asked in prop::collection::vec((0..4_i64, 0..40_i64), 0..120),
        // More rows than are looked at together.
        history in prop::collection::vec(
            (0..5_i64, 0..40_i64, 0..50_i64, prop::option::of(any::<i64>())), 0..400),
        ttl in prop::option::of(0..20_i64),
        known_by in prop::option::of(0..50_i64),
        hindsight in any::<bool>(),
        batch in 1..300_usize,
        // Keys that are found by their place, and such as are not.
        apart in prop::sample::select(vec![1, -1, 3, i64::MAX / 5]),
    ) {
        let asked: Vec<_> = asked.into_iter().map(|(key, at)| (key.wrapping_mul(apart), at)).collect();
        let history: Vec<_> = history.into_iter().map(|row| (row.0 * apart, row.1, row.2, row.3)).collect();
        let rules = Rules { ttl, known_by, hindsight };
        prop_assert_eq!(joined(&asked, &history, rules, batch), slowly(&asked, &history, rules));
    }

    #[test]
    fn texts_answer_as_numbers_do(
        asked in prop::collection::vec((0..4_i64, 0..40_i64), 1..60),
        history in prop::collection::vec((0..5_i64, 0..40_i64, 0..50_i64), 1..60),
        batch in 1..50_usize,
    ) {
        let text = |values: Vec<String>| -> ArrayRef { Arc::new(StringArray::from(values)) };
        let keys = text(asked.iter().map(|(key, _)| format!("k{key}")).collect());
        let at = times(asked.iter().map(|(_, at)| *at));
        let moments = Moments::new(&[("key", keys)], ("at", &*at)).unwrap();
        let schema = Schema::new(vec![
            Field::new("text", DataType::Utf8, true),
            Field::new("flag", DataType::Boolean, true),
        ]);
        let schema = Arc::new(schema);
        let mut latest = Latest::new(&moments, EVER);
        for rows in history.chunks(batch) {
            let keys = text(rows.iter().map(|row| format!("k{}", row.0)).collect());
            let (event, known) = (times(rows.iter().map(|it| it.1)), times(rows.iter().map(|it| it.2)));
            latest.add(&[("key", keys)], ("event", &*event), Some(("known", &*known))).unwrap();
        }
        let mut gathered = Gathered::new(latest.finish(), schema.clone(), usize::MAX);
        for rows in history.chunks(batch) {
            let values = text(rows.iter().map(|row| format!("{row:?}")).collect());
            let flags: BooleanArray = rows.iter().map(|row| (row.1 % 3 > 0).then_some(row.1 % 2 == 0)).collect();
            let columns = vec![values, Arc::new(flags) as ArrayRef];
            gathered.add(&RecordBatch::try_new(schema.clone(), columns).unwrap()).unwrap();
        }
        let found = gathered.finish().unwrap().part(0..asked.len()).unwrap();
        // A row's number is its value: what it says must be what the definition says of that row.
        let rows: Vec<_> = (0..).zip(&history).map(|(at, row)| (row.0, row.1, row.2, Some(at))).collect();
        let expected = slowly(&asked, &rows, EVER);
        for (moment, expected) in expected.into_iter().enumerate() {
            let row = expected.map(|at| history[usize::try_from(at).unwrap()]);
            let texts = found[0].as_string::<i32>();
            let shown = texts.is_valid(moment).then(|| texts.value(moment).to_owned());
            prop_assert_eq!(shown, row.map(|row| format!("{row:?}")));
            let flags = found[1].as_boolean();
            let flag = flags.is_valid(moment).then(|| flags.value(moment));
            prop_assert_eq!(flag, row.and_then(|row| (row.1 % 3 > 0).then_some(row.1 % 2 == 0)));
        }
    }

    #[test]
    fn extreme_times_do_not_overflow(
        at in any::<i64>(), event in any::<i64>(), ttl in 0..i64::MAX,
    ) {
        let rules = Rules { ttl: Some(ttl), ..EVER };
        let found = joined(&[(1, at)], &[(1, event, event, Some(1))], rules, 1);
        let fits = event <= at && i128::from(at) - i128::from(event) <= i128::from(ttl);
        prop_assert_eq!(found, [fits.then_some(1)]);
    }
}
