//! Which runs of a frame a filter asks for: each comparison gives one flag per run, and the
//! flags are combined.

use falaj_mlflow::filter::{Aggregate, Comparison, Expr, Field, Test};

use super::column::{Numbers, Texts};
use super::datasets::Datasets;
use super::frame::{Frame, loaded_as};
use crate::experiment::ViewType;

/// One flag per run.
pub(super) fn select(
    frame: &Frame,
    datasets: &Datasets,
    filter: Option<&Expr>,
    view: ViewType,
) -> Vec<bool> {
    let mut chosen: Vec<bool> = frame.stages.iter().map(|stage| view.shows(*stage)).collect();
    if let Some(filter) = filter {
        let wanted = evaluate(frame, datasets, filter);
        chosen.iter_mut().zip(wanted).for_each(|(chosen, wanted)| *chosen &= wanted);
    }
    chosen
}

fn evaluate(frame: &Frame, datasets: &Datasets, expr: &Expr) -> Vec<bool> {
    let combine = |members: &[Expr], with: fn(&mut bool, bool)| {
        let mut members = members.iter().map(|member| evaluate(frame, datasets, member));
        let mut all = members.next().unwrap_or_else(|| vec![true; frame.runs.len()]);
        for member in members {
            all.iter_mut().zip(member).for_each(|(all, one)| with(all, one));
        }
        all
    };
    match expr {
        Expr::And(members) => combine(members, |all, one| *all &= one),
        Expr::Or(members) => combine(members, |all, one| *all |= one),
        Expr::Not(inner) => {
            let mut flags = evaluate(frame, datasets, inner);
            for flag in &mut flags {
                *flag = !*flag;
            }
            flags
        }
        Expr::Is(comparison) => compare(frame, datasets, comparison),
    }
}

fn compare(frame: &Frame, datasets: &Datasets, comparison: &Comparison) -> Vec<bool> {
    let Comparison { field, test } = comparison;
    let count = frame.runs.len();
    match field {
        Field::Metric { aggregate, .. } => match frame.numbers(&loaded_as(field)) {
            Some(numbers) => compare_numbers(numbers, *aggregate, test, count),
            None => vec![accepts_absent(test); count],
        },
        Field::Dataset(part) => {
            let accepted = datasets.accepted(*part, test);
            frame.runs.iter().map(|run| accepted.contains(&run.id)).collect()
        }
        Field::Attribute("status") => flags(frame, |run| test.accepts(run.status.as_str())),
        Field::Attribute("run_id") => flags(frame, |run| test.accepts(&run.id.to_string())),
        Field::Attribute("start_time") => flags(frame, |run| time(Some(run.start_time), test)),
        Field::Attribute("end_time") => flags(frame, |run| time(run.end_time, test)),
        field => match frame.texts(field) {
            Some(texts) => compare_texts(texts, test, count),
            None => vec![accepts_absent(test); count],
        },
    }
}

fn flags(frame: &Frame, accepts: impl Fn(&super::frame::Base) -> bool) -> Vec<bool> {
    frame.runs.iter().map(accepts).collect()
}

/// Nothing but `IS NULL` accepts what is not there.
fn accepts_absent(test: &Test) -> bool {
    matches!(test, Test::Null { negated: false })
}

#[allow(clippy::cast_precision_loss, reason = "times in milliseconds are far below 2^53")]
fn time(time: Option<i64>, test: &Test) -> bool {
    match (time, test) {
        (Some(time), Test::Number(op, value)) => op.holds(time as f64, *value),
        (Some(_), Test::Null { negated }) => *negated,
        (None, test) => accepts_absent(test),
        _ => false,
    }
}

fn compare_numbers(
    numbers: &Numbers,
    aggregate: Aggregate,
    test: &Test,
    count: usize,
) -> Vec<bool> {
    let values = match aggregate {
        Aggregate::Min => &numbers.least,
        Aggregate::Max => &numbers.greatest,
        Aggregate::Latest | Aggregate::Undecided => &numbers.latest,
    };
    let rows = values.iter().zip(&numbers.there).take(count);
    match test {
        Test::Number(op, wanted) => {
            rows.map(|(value, there)| *there && op.holds(*value, *wanted)).collect()
        }
        Test::Null { negated } => rows.map(|(_, there)| there == negated).collect(),
        _ => vec![false; count],
    }
}

/// Each distinct text is tested once.
fn compare_texts(texts: &Texts, test: &Test, count: usize) -> Vec<bool> {
    let mut accepted: Vec<bool> = texts.words.iter().map(|word| test.accepts(word)).collect();
    match accepted.first_mut() {
        Some(absent) => *absent = accepts_absent(test),
        None => accepted.push(accepts_absent(test)),
    }
    texts.codes.iter().take(count).map(|code| accepted[*code as usize]).collect()
}
