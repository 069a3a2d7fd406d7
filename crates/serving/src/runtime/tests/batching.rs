//! The decision what runs next: by tables, and by whatever comes to mind to a generator.

use std::time::{Duration, Instant};

use falaj_inference::Tensor;
use proptest::prelude::*;

use crate::runtime::batch::{Kind, Next, Turn, Waiting, next};
use crate::runtime::{Batching, Priority};

/// A waiting request in words: kind (0 is alone), rows, waited ms, ms to its deadline.
#[derive(Clone, Copy, Debug)]
struct Given(usize, usize, u64, u64, Priority);

const N: Priority = Priority::Normal;

fn kinds() -> Vec<Kind> {
    let kind = |width: usize| {
        let x = Tensor::of([1, width], vec![0.0_f32; width]).unwrap();
        Kind::of(&[("x".to_owned(), x)], &[0]).unwrap().0
    };
    (1..5).map(kind).collect()
}

fn waiting<'a>(given: &[Given], kinds: &'a [Kind], now: Instant) -> Vec<Waiting<'a>> {
    let one = |(place, given): (usize, &Given)| {
        let &Given(kind, rows, waited, left, priority) = given;
        Waiting {
            turn: Turn { priority, arrival: place as u64 },
            rows,
            kind: kind.checked_sub(1).map(|kind| &kinds[kind]),
            since: now.checked_sub(Duration::from_millis(waited)).unwrap(),
            deadline: now + Duration::from_millis(left),
        }
    };
    let mut all: Vec<_> = given.iter().enumerate().map(one).collect();
    all.sort_by_key(|one| one.turn);
    all
}

/// The places that run, or after how many milliseconds it is looked again.
type Decided = Result<Vec<u64>, Option<u64>>;

fn decided(given: &[Given], batching: &Batching) -> Decided {
    let (now, kinds) = (Instant::now() + Duration::from_hours(1), kinds());
    let all = waiting(given, &kinds, now);
    let lasts = |rows: usize| Duration::from_millis(rows as u64);
    match next(all.iter().copied(), now, batching, lasts) {
        Next::Run(turns) => Ok(turns.iter().map(|turn| turn.arrival).collect()),
        Next::Wait(until) => Err(Some(u64::try_from((until - now).as_millis()).unwrap())),
        Next::Nothing => Err(None),
    }
}

#[test]
fn tables() {
    let set = |max_rows, delay, preferred: &[usize]| Batching {
        max_rows,
        delay: Duration::from_millis(delay),
        preferred: preferred.to_vec(),
    };
    let one = Given(1, 1, 0, 999, N);
    let rows = |rows| Given(1, rows, 0, 999, N);
    let cases: Vec<(&str, Vec<Given>, Batching, Decided)> = vec![
        ("nothing waits", vec![], set(8, 0, &[]), Err(None)),
        ("nobody waits without a delay", vec![one], set(8, 0, &[]), Ok(vec![0])),
        ("all that is there", vec![one; 3], set(8, 0, &[]), Ok(vec![0, 1, 2])),
        ("up to the limit", vec![one; 9], set(4, 0, &[]), Ok(vec![0, 1, 2, 3])),
        ("no batching", vec![one; 3], set(1, 0, &[]), Ok(vec![0])),
        ("one too large runs alone", vec![rows(9), one], set(4, 0, &[]), Ok(vec![0])),
        ("what fits fills up", vec![rows(3), rows(2), one], set(4, 0, &[]), Ok(vec![0, 2])),
        ("alone", vec![Given(0, 1, 0, 999, N), one], set(8, 0, &[]), Ok(vec![0])),
        (
            "kinds are not mixed",
            vec![one, Given(2, 1, 0, 999, N), one],
            set(8, 0, &[]),
            Ok(vec![0, 2]),
        ),
        (
            "the higher first",
            vec![one, Given(2, 1, 0, 999, Priority::High), Given(1, 1, 0, 999, Priority::Low)],
            set(8, 0, &[]),
            Ok(vec![1]),
        ),
        ("a delay is kept", vec![one; 2], set(8, 10, &[]), Err(Some(10))),
        (
            "a delay that passed",
            vec![Given(1, 1, 10, 999, N), one],
            set(8, 10, &[]),
            Ok(vec![0, 1]),
        ),
        (
            "a delay counts from the oldest",
            vec![one, Given(1, 1, 7, 999, N)],
            set(8, 10, &[]),
            Err(Some(3)),
        ),
        ("full does not wait", vec![one; 8], set(8, 10, &[]), Ok((0..8).collect())),
        ("a preferred size does not wait", vec![one; 5], set(8, 10, &[2, 4]), Ok((0..4).collect())),
        ("full before preferred", vec![one; 8], set(8, 10, &[4]), Ok((0..8).collect())),
        ("below every preferred size", vec![one], set(8, 10, &[4]), Err(Some(10))),
        ("preferred without a delay", vec![one; 5], set(8, 0, &[4]), Ok((0..4).collect())),
        (
            "a deadline shortens the delay",
            vec![one, Given(1, 1, 0, 6, N)],
            set(8, 10, &[]),
            Err(Some(4)),
        ),
        (
            "another kind does not wait for the first",
            vec![one, Given(2, 8, 0, 999, N)],
            set(8, 10, &[]),
            Ok(vec![1]),
        ),
    ];
    for (what, given, batching, expected) in cases {
        assert_eq!(decided(&given, &batching), expected, "{what}");
    }
}

#[test]
fn a_kind_is_what_shares_a_run() {
    let kind = |inputs: &[(&str, &[usize])], outputs: &[usize]| {
        let inputs: Vec<_> = inputs
            .iter()
            .map(|(name, shape)| {
                let count = shape.iter().product();
                ((*name).to_owned(), Tensor::of(*shape, vec![0.0_f32; count]).unwrap())
            })
            .collect();
        Kind::of(&inputs, outputs)
    };
    let base = kind(&[("x", &[3, 4])], &[0]).unwrap();
    assert_eq!(base.1, 3);
    assert_eq!(kind(&[("x", &[5, 4])], &[0]).unwrap().0, base.0);
    assert_ne!(kind(&[("x", &[3, 5])], &[0]).unwrap().0, base.0);
    assert_ne!(kind(&[("x", &[3, 4])], &[0, 1]).unwrap().0, base.0);
    assert_ne!(kind(&[("x", &[3, 4, 1])], &[0]).unwrap().0, base.0);
    assert_eq!(kind(&[("x", &[3, 4]), ("z", &[2, 4])], &[0]), None, "other rows");
    assert_eq!(kind(&[("x", &[0, 4])], &[0]), None, "no rows");
    assert_eq!(kind(&[("x", &[])], &[0]), None, "a scalar");
    assert_eq!(kind(&[], &[0]), None, "no inputs");
}

fn given() -> impl Strategy<Value = Given> {
    let priority = prop::sample::select(Priority::ALL.to_vec());
    (0..4_usize, 1..12_usize, 0..50_u64, 1..200_u64, priority)
        .prop_map(|(kind, rows, waited, left, priority)| Given(kind, rows, waited, left, priority))
}

proptest! {
    #[test]
    fn everybody_runs_once_in_order_and_within_limits(
        all in prop::collection::vec(given(), 0..60),
        max_rows in 1..20_usize,
        delay in 0..30_u64,
        preferred in prop::collection::vec(1..20_usize, 0..3),
    ) {
        let batching = Batching { max_rows, delay: Duration::from_millis(delay), preferred };
        let kinds = kinds();
        let mut now = Instant::now() + Duration::from_hours(1);
        let mut line = waiting(&all, &kinds, now);
        let mut ran = Vec::new();
        let lasts = |rows: usize| Duration::from_millis(rows as u64);
        while !line.is_empty() {
            match next(line.iter().copied(), now, &batching, lasts) {
                Next::Nothing => prop_assert!(false, "somebody waits"),
                Next::Wait(until) => {
                    prop_assert!(until > now, "no waiting without end");
                    let latest = line[0].since + batching.delay;
                    prop_assert!(until <= latest.max(now), "nobody waits longer than the delay");
                    let soonest = line.iter().map(|one| one.deadline).min().unwrap();
                    prop_assert!(until < soonest, "nobody waits until it is too late");
                    now = until;
                }
                Next::Run(turns) => {
                    let batch: Vec<_> =
                        line.iter().filter(|one| turns.contains(&one.turn)).copied().collect();
                    prop_assert_eq!(batch.len(), turns.len());
                    let rows: usize = batch.iter().map(|one| one.rows).sum();
                    prop_assert!(rows <= max_rows || batch.len() == 1);
                    prop_assert!(batch.iter().all(|one| one.kind == batch[0].kind));
                    prop_assert!(batch.len() == 1 || batch[0].kind.is_some());
                    // Nobody of the same kind goes before the first of that kind.
                    let first = line.iter().find(|one| one.kind == batch[0].kind).unwrap();
                    prop_assert!(first.turn == batch[0].turn || batch[0].kind.is_none());
                    line.retain(|one| !turns.contains(&one.turn));
                    ran.extend(turns);
                }
            }
        }
        ran.sort();
        ran.dedup();
        prop_assert_eq!(ran.len(), all.len());
    }
}
