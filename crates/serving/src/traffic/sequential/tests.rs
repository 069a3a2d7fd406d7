//! Promises kept under simulation: every seed is fixed, every look counts.

use proptest::prelude::*;

use super::*;
use crate::traffic::random::{Source, normal, seeded};

/// How often, in `runs` tests of `outcomes` each, a difference was found at any look.
fn found(
    runs: usize,
    outcomes: usize,
    design: Design,
    kind: Outcomes,
    share_b: f64,
    seed: u64,
    draw: impl Fn(Side, &mut dyn FnMut() -> f64, &mut dyn FnMut() -> f64) -> f64,
) -> (usize, usize) {
    let mut source = seeded(seed);
    let (mut a_better, mut b_better) = (0, 0);
    for _ in 0..runs {
        let mut test = Test::new(design, kind).unwrap();
        for _ in 0..outcomes {
            let side = if source.unit() < share_b { Side::B } else { Side::A };
            let uniform = source.unit();
            let bell = normal(&mut source);
            test.record(side, draw(side, &mut || uniform, &mut || bell)).unwrap();
            match test.look().verdict {
                Verdict::ABetter => a_better += 1,
                Verdict::BBetter => b_better += 1,
                _ => continue,
            }
            break;
        }
    }
    (a_better, b_better)
}

#[test]
fn a_rate_against_itself_is_found_different_no_more_often_than_promised() {
    for (rate, effect, share_b) in
        [(0.5, 0.1, 0.5), (0.5, 0.05, 0.1), (0.1, 0.1, 0.5), (0.03, 0.05, 0.5)]
    {
        let mut design = Design::of(effect);
        design.minimum = 20;
        let draw = |_, uniform: &mut dyn FnMut() -> f64, _: &mut dyn FnMut() -> f64| {
            f64::from(u8::from(uniform() < rate))
        };
        let (a, b) = found(2_000, 1_000, design, Outcomes::RATE, share_b, 17, draw);
        assert!(a + b <= 100, "{} of 2,000 at {rate}, {share_b} to B", a + b);
    }
}

#[test]
fn a_mean_against_itself_is_found_different_no_more_often_than_promised() {
    // Bell-shaped, and strongly skewed (the square of a normal).
    for (skewed, effect, share_b) in [(false, 0.5, 0.5), (false, 0.1, 0.1), (true, 0.3, 0.5)] {
        let draw = |_, _: &mut dyn FnMut() -> f64, bell: &mut dyn FnMut() -> f64| {
            let bell = bell();
            if skewed { bell * bell } else { 1000.0 + bell }
        };
        let (a, b) = found(2_000, 1_200, Design::of(effect), Outcomes::MEAN(), share_b, 23, draw);
        assert!(a + b <= 100, "{} of 2,000, {effect}, {share_b} to B", a + b);
    }
}

#[test]
fn the_same_looks_with_a_test_for_one_look_would_err_far_more() {
    let mut source = seeded(29);
    let mut wrong = 0;
    for _ in 0..200 {
        let (mut a, mut b) = (Moments::default(), Moments::default());
        for n in 1..=600 {
            a.record(normal(&mut source)).unwrap();
            b.record(normal(&mut source)).unwrap();
            let variance = (a.scatter() + b.scatter()) / (a.weight() * a.weight());
            if n >= 100 && (a.mean() - b.mean()).abs() > 1.96 * variance.sqrt() {
                wrong += 1;
                break;
            }
        }
    }
    assert!(wrong > 30, "{wrong} of 200");
}

#[test]
fn a_difference_that_matters_is_found_and_on_the_right_side() {
    let rates = |side, uniform: &mut dyn FnMut() -> f64, _: &mut dyn FnMut() -> f64| {
        f64::from(u8::from(uniform() < if side == Side::B { 0.35 } else { 0.25 }))
    };
    let (a, b) = found(100, 4_000, Design::of(0.1), Outcomes::RATE, 0.5, 31, rates);
    assert!(b >= 95 && a <= 1, "{a} {b}");
    let means = |side, _: &mut dyn FnMut() -> f64, bell: &mut dyn FnMut() -> f64| {
        5.0 + bell() - if side == Side::B { 0.3 } else { 0.0 }
    };
    let (a, b) = found(100, 3_000, Design::of(0.3), Outcomes::MEAN(), 0.5, 37, means);
    assert!(a >= 95 && b <= 1, "{a} {b}");
    let lower = Design { goal: Goal::Lower, ..Design::of(0.3) };
    let (a, b) = found(100, 3_000, lower, Outcomes::MEAN(), 0.5, 37, means);
    assert!(b >= 95 && a <= 1, "{a} {b}");
}

#[test]
fn the_interval_covers_the_difference_at_all_times_together() {
    let mut source = seeded(41);
    let mut missed = 0;
    for _ in 0..500 {
        let (mut a, mut b) = (Moments::default(), Moments::default());
        for _ in 0..800 {
            a.record(normal(&mut source)).unwrap();
            b.record(0.4 + normal(&mut source)).unwrap();
            let now = compare(&Design::of(0.2), &Outcomes::Mean(a), &Outcomes::Mean(b)).unwrap();
            if now.is_some_and(|now| now.low > 0.4 || now.high < 0.4) {
                missed += 1;
                break;
            }
        }
    }
    assert!(missed <= 25, "{missed} of 500");
}

#[test]
fn the_same_twice_ends_as_no_meaningful_difference() {
    let mut source = seeded(43);
    let mut test = Test::new(Design::of(0.2), Outcomes::MEAN()).unwrap();
    let ended = (0..20_000).find_map(|n| {
        test.record(if n % 2 == 0 { Side::A } else { Side::B }, normal(&mut source)).unwrap();
        Some(test.look().verdict).filter(|verdict| *verdict != Verdict::KeepGoing)
    });
    assert_eq!(ended, Some(Verdict::NoMeaningfulDifference));
}

#[test]
fn outcomes_that_are_all_alike_are_not_certainty_at_once() {
    let mut test = Test::new(Design::of(0.01), Outcomes::MEAN()).unwrap();
    for n in 0..198 {
        test.record(if n % 2 == 0 { Side::A } else { Side::B }, 1.0).unwrap();
        assert_eq!(test.look().verdict, Verdict::KeepGoing);
        assert!(test.look().comparison.is_none());
    }
    // No event at all is no evidence either, however many trials.
    let mut rates = Test::new(Design::of(0.01), Outcomes::RATE).unwrap();
    for n in 0..5_000 {
        rates.record(if n % 2 == 0 { Side::A } else { Side::B }, 0.0).unwrap();
    }
    assert_eq!(rates.look().verdict, Verdict::KeepGoing);
}

#[test]
fn nonsense_is_refused() {
    for design in [
        Design { effect: 0.0, ..Design::of(1.0) },
        Design { effect: f64::NAN, ..Design::of(1.0) },
        Design { alpha: 0.0, ..Design::of(1.0) },
        Design { alpha: 0.6, ..Design::of(1.0) },
        Design { minimum: 1, ..Design::of(1.0) },
    ] {
        assert!(Test::new(design, Outcomes::RATE).is_err(), "{design:?}");
    }
    let mut rate = Outcomes::RATE;
    for value in [0.5, -1.0, 2.0, f64::NAN] {
        assert!(rate.record(value).is_err(), "{value}");
    }
    assert!(rate.merge(&Outcomes::MEAN()).is_err());
    assert!(Outcomes::MEAN().record(f64::INFINITY).is_err());
}

proptest! {
    #[test]
    fn p_value_and_interval_agree(
        a in prop::collection::vec(-5.0..5.0_f64, 20..60),
        b in prop::collection::vec(-5.0..9.0_f64, 20..60),
        effect in 0.01..10.0_f64,
    ) {
        let design = Design { minimum: 20, ..Design::of(effect) };
        let side = |numbers: &[f64]| Outcomes::Mean(Moments::of(numbers.iter().copied()));
        let now = compare(&design, &side(&a), &side(&b)).unwrap().unwrap();
        prop_assert!(now.low <= now.difference && now.difference <= now.high);
        let outside = now.low > 0.0 || now.high < 0.0;
        // At the very border rounding may decide.
        if (now.p - design.alpha).abs() > 1e-9 {
            prop_assert_eq!(outside, now.p < design.alpha);
        }
        let turned = compare(&design, &side(&b), &side(&a)).unwrap().unwrap();
        prop_assert!((turned.low + now.high).abs() < 1e-9 * (1.0 + now.high.abs()));
    }

    #[test]
    fn it_survives_being_stored(outcomes in prop::collection::vec((any::<bool>(), any::<bool>()), 0..300)) {
        let mut test = Test::new(Design { minimum: 20, ..Design::of(0.1) }, Outcomes::RATE).unwrap();
        for (side, value) in outcomes {
            let side = if side { Side::A } else { Side::B };
            test.record(side, f64::from(u8::from(value))).unwrap();
            test.look();
        }
        let text = serde_json::to_string(&test).unwrap();
        prop_assert_eq!(serde_json::from_str::<Test>(&text).unwrap(), test);
    }
}
