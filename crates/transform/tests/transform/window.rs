//! Windows against a plain, slow definition, and tiles in every order.

use falaj_transform::Type;
use falaj_transform::window::{Aggregate, Function, Item, Plan};
use proptest::prelude::*;

const HOP: i64 = 10;

/// An event and its values: a float, a whole number, a text.
type Event = (i64, Option<f64>, Option<i64>, Option<String>);

/// A function, of what, over which window in which hops, and which quantile.
type Asked = (Function, Option<Type>, i64, i64, Option<f64>);

fn aggregates() -> Vec<Asked> {
    let (float, int, text) = (Some(Type::Float64), Some(Type::Int64), Some(Type::Text));
    vec![
        (Function::Count, None, 50, HOP, None),
        (Function::Count, float, 30, HOP, None),
        (Function::Sum, float, 50, HOP, None),
        (Function::Sum, int, 20, 20, None),
        (Function::Mean, float, 50, HOP, None),
        (Function::Mean, int, 50, HOP, None),
        (Function::Min, float, 50, HOP, None),
        (Function::Max, int, 40, 20, None),
        (Function::First, text, 50, HOP, None),
        (Function::Last, text, 50, HOP, None),
        (Function::Distinct, text, 50, HOP, None),
        (Function::Stddev, float, 50, HOP, None),
        (Function::Quantile, float, 50, HOP, Some(0.5)),
        (Function::Quantile, int, 50, HOP, Some(0.9)),
    ]
}

fn plan() -> Plan {
    let made = aggregates().into_iter().map(|(function, input, window, hop, share)| {
        Aggregate::new(function, input, window, Some(hop), share).unwrap()
    });
    Plan::new(made.collect()).unwrap()
}

fn value_of(event: &Event, input: Option<Type>) -> Option<Item> {
    match input {
        Some(Type::Float64) => event.1.map(Item::Float),
        Some(Type::Int64) => event.2.map(Item::Int),
        Some(Type::Text) => event.3.as_deref().map(|text| Item::Text(text.into())),
        _ => None,
    }
}

fn values(event: &Event) -> Vec<Option<Item>> {
    aggregates().iter().map(|(_, input, ..)| value_of(event, *input)).collect()
}

/// What each aggregate is, told without tiles.
fn slowly(events: &[Event], at: i64) -> Vec<Option<Item>> {
    let one = |(function, input, window, hop, share): &Asked| {
        let end = at.div_euclid(*hop) + 1;
        let start = (end - window / hop) * hop;
        let within: Vec<&Event> =
            events.iter().filter(|event| start <= event.0 && event.0 <= at).collect();
        let there: Vec<(i64, Item)> =
            within.iter().filter_map(|event| Some((event.0, value_of(event, *input)?))).collect();
        #[allow(clippy::cast_precision_loss)]
        let floats: Vec<f64> = there
            .iter()
            .map(|(_, item)| match item {
                Item::Float(value) => *value,
                Item::Int(value) => *value as f64,
                _ => 0.0,
            })
            .collect();
        let count = |number: usize| Some(Item::Int(i64::try_from(number).unwrap()));
        #[allow(clippy::cast_precision_loss)]
        let many = floats.len() as f64;
        // Eighths of small numbers add up without rounding.
        let sum: f64 = floats.iter().sum();
        let items = || there.iter().map(|(_, item)| item.clone());
        match function {
            Function::Count if input.is_none() => count(within.len()),
            Function::Count => count(there.len()),
            _ if there.is_empty() && *function != Function::Distinct => None,
            Function::Sum if *input == Some(Type::Int64) => {
                let whole = items().map(|item| match item {
                    Item::Int(value) => value,
                    _ => 0,
                });
                Some(Item::Int(whole.sum()))
            }
            Function::Sum => Some(Item::Float(sum)),
            Function::Mean => Some(Item::Float(sum / many)),
            Function::Min => items().min(),
            Function::Max => items().max(),
            Function::First => {
                let first = there.iter().map(|(at, _)| *at).min()?;
                there.iter().filter(|it| it.0 == first).map(|it| it.1.clone()).max()
            }
            Function::Last => there.iter().max().map(|it| it.1.clone()),
            Function::Distinct => {
                let mut all: Vec<Item> = items().collect();
                all.sort();
                all.dedup();
                count(all.len())
            }
            Function::Stddev if floats.len() < 2 => None,
            Function::Stddev => {
                let mean = sum / many;
                let spread: f64 = floats.iter().map(|value| (value - mean).powi(2)).sum();
                Some(Item::Float((spread / (many - 1.0)).sqrt()))
            }
            Function::Quantile => {
                let mut sorted = floats.clone();
                sorted.sort_by(f64::total_cmp);
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let rank = ((share.unwrap() * many).ceil() as usize).max(1);
                Some(Item::Float(sorted[rank - 1]))
            }
        }
    };
    aggregates().iter().map(one).collect()
}

/// The same, but for the last digits of a root.
fn near(one: Option<&Item>, other: Option<&Item>) -> bool {
    match (one, other) {
        (Some(Item::Float(one)), Some(Item::Float(other))) => {
            (one - other).abs() <= 1e-9 * one.abs().max(1e-3)
        }
        (one, other) => one == other,
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let float = prop::option::weighted(0.8, (-800_i32..800).prop_map(|it| f64::from(it) / 8.0));
    let int = prop::option::weighted(0.8, -100_i64..100);
    let text = prop::option::weighted(0.8, "[abc]{0,2}");
    prop::collection::vec((-30_i64..200, float, int, text), 0..60)
}

proptest! {
    #[test]
    fn tiles_say_what_the_definition_says(events in events(), at in 0_i64..260) {
        let plan = plan();
        let mut tiles = plan.empty();
        for event in events.iter().filter(|event| event.0 <= at) {
            plan.add(&mut tiles, event.0, &values(event));
        }
        let (found, expected) = (plan.values(&tiles, at), slowly(&events, at));
        for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
            prop_assert!(near(found.as_ref(), expected.as_ref()), "{}: {:?} {:?}", place, found, expected);
        }
        // What no window reaches any more may be forgotten.
        plan.prune(&mut tiles, at);
        prop_assert_eq!(plan.values(&tiles, at), found);
    }

    #[test]
    fn neither_order_nor_batches_matter(
        events in events(), floats in prop::collection::vec(any::<f64>(), 60),
        order in any::<prop::sample::Index>(), cuts in prop::collection::vec(0_usize..60, 0..5),
    ) {
        // Floats of every size: their sums are exact all the same.
        let events: Vec<Event> = events
            .into_iter()
            .zip(floats)
            .map(|(event, float)| (event.0, event.1.and(Some(float)), event.2, event.3))
            .collect();
        let plan = plan();
        let mut whole = plan.empty();
        for event in &events {
            plan.add(&mut whole, event.0, &values(event));
        }
        let mut turned = events.clone();
        if !turned.is_empty() {
            let by = order.index(turned.len());
            turned.rotate_left(by);
        }
        turned.reverse();
        let mut merged = plan.empty();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(turned.len())).collect();
        cuts.extend([0, turned.len()]);
        cuts.sort_unstable();
        for ends in cuts.windows(2).rev() {
            let mut some = plan.empty();
            for event in &turned[ends[0]..ends[1]] {
                plan.add(&mut some, event.0, &values(event));
            }
            // On their way through bytes, as they are kept.
            let kept = plan.read(&plan.write(&some)).unwrap();
            plan.merge(&mut merged, &kept);
        }
        prop_assert_eq!(plan.write(&merged), plan.write(&whole));
    }

    #[test]
    fn damage_is_an_error_and_no_more(
        events in events(), flip in 0_usize..4000, bits in 1_u8.., cut in 0_usize..4000
    ) {
        let plan = plan();
        let mut tiles = plan.empty();
        for event in &events {
            plan.add(&mut tiles, event.0, &values(event));
        }
        let mut bytes = plan.write(&tiles);
        let length = bytes.len();
        bytes[flip % length] ^= bits;
        bytes.truncate(length - cut % length);
        if let Ok(mut read) = plan.read(&bytes) {
            plan.merge(&mut read, &tiles);
            let _ = plan.values(&read, 100);
        }
    }

    #[test]
    fn an_event_counts_from_its_tile_to_its_last_moment(event in -500_i64..500, n in 1_i64..6) {
        let count = Aggregate::new(Function::Count, None, n * HOP, Some(HOP), None).unwrap();
        let plan = Plan::new(vec![count]).unwrap();
        let mut tiles = plan.empty();
        plan.add(&mut tiles, event, &[None]);
        for at in event..event + (n + 2) * HOP {
            let counted = plan.values(&tiles, at) == [Some(Item::Int(1))];
            prop_assert_eq!(counted, at <= count.last_moment(event));
            prop_assert_eq!(counted, plan.counts(event, at));
            // Never older than the window.
            prop_assert!(!counted || at - event < n * HOP);
        }
    }
}

#[test]
fn frozen() {
    let made = [
        (Function::Count, None, None),
        (Function::Sum, Some(Type::Float64), None),
        (Function::Last, Some(Type::Text), None),
        (Function::Distinct, Some(Type::Int64), None),
        (Function::Quantile, Some(Type::Float64), Some(0.5)),
    ];
    let made =
        made.map(|(of, input, share)| Aggregate::new(of, input, 30, Some(10), share).unwrap());
    let plan = Plan::new(made.to_vec()).unwrap();
    let mut tiles = plan.empty();
    let text = |text: &str| Some(Item::Text(text.into()));
    let float = |value: f64| Some(Item::Float(value));
    plan.add(&mut tiles, 12, &[None, float(1.5), text("b"), Some(Item::Int(1)), float(2.0)]);
    plan.add(&mut tiles, 25, &[None, float(-0.25), text("a"), None, None]);
    let hex = falaj_base::hex(&plan.write(&tiles));
    let expected = "01020201010001020000008001000000011804016201263852a64b3a3a4a00018080808080808080c001010201010801\
                    01000000400132040161000000";
    assert_eq!(hex, expected, "tiles outlive the process");
    let read = plan.read(&plan.write(&tiles)).unwrap();
    assert_eq!(plan.values(&read, 29), plan.values(&tiles, 29));
}

#[test]
fn what_makes_no_window_is_refused_by_its_field() {
    let float = Some(Type::Float64);
    let table = [
        (Function::Sum, None, 100, Some(10), None, "column"),
        (Function::Sum, Some(Type::Text), 100, Some(10), None, "column"),
        (Function::Max, Some(Type::Bool), 100, Some(10), None, "column"),
        (Function::Last, Some(Type::Other), 100, Some(10), None, "column"),
        (Function::Count, None, 0, Some(10), None, "window"),
        (Function::Count, None, 100, Some(30), None, "hop"),
        (Function::Count, None, 100, Some(0), None, "hop"),
        (Function::Count, None, 1_000_000, Some(1), None, "hop"),
        (Function::Count, None, 7, None, None, "hop"),
        (Function::Quantile, float, 100, Some(10), None, "quantile"),
        (Function::Quantile, float, 100, Some(10), Some(1.5), "quantile"),
        (Function::Sum, float, 100, Some(10), Some(0.5), "quantile"),
    ];
    for (function, input, window, hop, share, field) in table {
        let error = Aggregate::new(function, input, window, hop, share).unwrap_err();
        assert_eq!(error.field(), Some(field), "{function} {window} {hop:?}");
    }
    // A week is made of hops of six hours, if nothing else is said.
    let week = 7 * 86_400_000_000;
    let made = Aggregate::new(Function::Count, None, week, None, None).unwrap();
    assert_eq!(made.hop(), 6 * 3_600_000_000);
    let large = Aggregate::new(Function::Quantile, float, 2000, Some(1), Some(0.5)).unwrap();
    assert_eq!(Plan::new(vec![large]).unwrap_err().field(), Some("aggregate"));
}
