use std::time::Duration;

use falaj_testkit::Random;
use proptest::prelude::*;

use super::*;
use crate::traffic::sequential::Outcomes;

const START: Timestamp = Timestamp::from_micros(1_000_000_000_000);

fn plan() -> Plan {
    let step = |share| Step { share, min_requests: 100, min_seconds: 60 };
    Plan {
        steps: [0.01, 0.05, 0.25, 1.0].map(step).to_vec(),
        errors: vec![Limit::AtMost(0.05), Limit::TimesBaseline(3.0)],
        burst: Burst::default(),
        latency: vec![
            LatencyRule { quantile: Quantile::P95, limit: Limit::TimesBaseline(1.5) },
            LatencyRule { quantile: Quantile::P50, limit: Limit::AtMost(50.0) },
        ],
        quality: None,
        alpha: 0.05,
    }
}

fn seen(requests: u64, errors: u64, millis: f64) -> Observed {
    let mut observed = Observed::default();
    (0..errors).for_each(|_| observed.failed());
    for place in errors..requests {
        // From half to one and a half of the figure.
        observed.succeeded(millis * (0.5 + place as f64 / requests as f64));
    }
    observed
}

fn rollout(plan: Plan, canary: Observed, baseline: Observed) -> Rollout {
    Rollout { canary, baseline, ..Rollout::new(plan, START).unwrap() }
}

fn later(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

fn told(decision: &Decision) -> String {
    match decision {
        Decision::Wait { reason: Reason::Unsure { rule, .. } } => format!("unsure {rule}"),
        Decision::Wait { reason } => {
            serde_json::to_value(reason).unwrap()["reason"].as_str().unwrap().to_owned()
        }
        Decision::Advance { share } => format!("advance {share}"),
        Decision::Promote => "promote".to_owned(),
        Decision::RollBack { rule, .. } => format!("back {rule}"),
    }
}

#[test]
fn a_table_of_decisions_on_errors_and_times() {
    for (canary, baseline, seconds, wanted) in [
        // (requests, errors, milliseconds)
        ((200, 1, 10.0), (9_000, 20, 10.0), 100, "advance 0.05"),
        ((99, 0, 10.0), (9_000, 20, 10.0), 100, "too_few_requests"),
        ((200, 1, 10.0), (50, 0, 10.0), 100, "too_few_baseline_requests"),
        ((200, 1, 10.0), (9_000, 20, 10.0), 59, "too_early"),
        ((200, 80, 10.0), (9_000, 20, 10.0), 100, "back error_burst"),
        ((12, 12, 10.0), (0, 0, 10.0), 1, "back error_burst"),
        ((5, 5, 10.0), (0, 0, 10.0), 1, "too_few_requests"),
        ((60, 15, 10.0), (0, 0, 10.0), 1, "too_few_requests"),
        ((200, 12, 10.0), (9_000, 300, 10.0), 100, "unsure error_rate"),
        ((400, 60, 10.0), (9_000, 300, 10.0), 100, "back error_rate"),
        // Kept in itself, but far above the baseline.
        ((5_000, 100, 10.0), (9_000, 20, 10.0), 100, "back error_rate"),
        ((200, 0, 12.0), (9_000, 20, 10.0), 100, "advance 0.05"),
        ((300, 0, 30.0), (9_000, 20, 10.0), 100, "back latency_p95"),
        ((300, 0, 70.0), (9_000, 20, 70.0), 100, "back latency_p50"),
    ] {
        let see = |(requests, errors, millis)| seen(requests, errors, millis);
        let rollout = rollout(plan(), see(canary), see(baseline));
        let found = told(&rollout.decide(later(seconds)));
        assert_eq!(found, wanted, "{canary:?} beside {baseline:?}");
    }
}

#[test]
fn a_good_version_walks_all_the_way() {
    let mut rollout = Rollout::new(plan(), START).unwrap();
    let mut walked = Vec::new();
    for minute in 1..10 {
        if rollout.share() < 1.0 {
            rollout.baseline = seen(5_000, 10, 10.0);
        }
        rollout.canary = seen(150, 0, 10.0);
        let decision = rollout.decide(later(minute * 60));
        walked.push(told(&decision));
        match decision {
            Decision::Advance { .. } => rollout.advance(later(minute * 60)),
            _ => break,
        }
        assert_eq!(told(&rollout.decide(later(minute * 60))), "too_few_requests");
    }
    assert_eq!(walked, ["advance 0.05", "advance 0.25", "advance 1", "promote"]);
    // The measure of the last step is the baseline as it was last seen.
    assert_eq!(rollout.baseline.requests, 5_000);
    rollout.canary = seen(5_000, 200, 10.0);
    assert_eq!(told(&rollout.decide(later(900))), "back error_rate");
}

fn with_quality(prove: bool) -> Plan {
    let design = Design { minimum: 50, ..Design::of(0.05) };
    let quality = Some(Quality { design, max_drop: 0.02, prove });
    Plan { quality, errors: vec![], latency: vec![], ..plan() }
}

fn with_outcomes(events: u64, trials: u64) -> Observed {
    let outcomes = (trials > 0).then_some(Outcomes::Rate { events, trials });
    Observed { outcomes, ..seen(200, 0, 10.0) }
}

#[test]
fn a_table_of_decisions_on_quality() {
    for (prove, canary, baseline, wanted) in [
        (false, (0, 0), (0, 0), "advance 0.05"),
        (true, (0, 0), (0, 0), "too_few_outcomes"),
        (true, (20, 40), (900, 1_800), "too_few_outcomes"),
        (false, (500, 1_000), (5_000, 10_000), "advance 0.05"),
        (true, (500, 1_000), (5_000, 10_000), "unsure quality"),
        (true, (25_000, 50_000), (250_000, 500_000), "advance 0.05"),
        (false, (400, 1_000), (5_000, 10_000), "back quality"),
        // Worse, but not provably by more than what is allowed.
        (false, (470, 1_000), (5_000, 10_000), "advance 0.05"),
    ] {
        let (canary, baseline) =
            (with_outcomes(canary.0, canary.1), with_outcomes(baseline.0, baseline.1));
        let shown = format!("{:?} beside {:?}", canary.outcomes, baseline.outcomes);
        let rollout = rollout(with_quality(prove), canary, baseline);
        assert_eq!(told(&rollout.decide(later(100))), wanted, "{shown}");
    }
}

#[test]
fn where_lower_is_better_a_rise_is_the_drop() {
    let mut plan = with_quality(false);
    plan.quality.as_mut().unwrap().design.goal = Goal::Lower;
    let worse = rollout(plan.clone(), with_outcomes(600, 1_000), with_outcomes(5_000, 10_000));
    let Decision::RollBack { rule: Rule::Quality, observed, allowed } = worse.decide(later(100))
    else {
        panic!("{:?}", worse.decide(later(100)))
    };
    assert!((observed + 0.1).abs() < 1e-9 && (allowed + 0.02).abs() < 1e-9);
    let better = rollout(plan, with_outcomes(400, 1_000), with_outcomes(5_000, 10_000));
    assert_eq!(told(&better.decide(later(100))), "advance 0.05");
}

#[test]
fn a_version_that_keeps_the_rules_is_seldom_rolled_back_under_constant_looking() {
    let mut random = Random::new(9);
    let mut back = 0;
    for _ in 0..300 {
        let plan = Plan {
            errors: vec![Limit::AtMost(0.05)],
            latency: vec![LatencyRule { quantile: Quantile::P95, limit: Limit::AtMost(95.0) }],
            ..plan()
        };
        let mut rollout = rollout(plan, Observed::default(), seen(1_000, 0, 10.0));
        for _ in 0..600 {
            // Exactly at the limits.
            if random.below(100) < 5 {
                rollout.canary.failed();
            } else {
                rollout.canary.succeeded(random.below(1000) as f64 / 10.0);
            }
            if matches!(rollout.decide(later(100)), Decision::RollBack { .. }) {
                back += 1;
                break;
            }
        }
    }
    assert!(back <= 15, "{back} of 300");
}

#[test]
fn nonsense_is_refused_by_name() {
    let with = |change: fn(&mut Plan)| {
        let mut plan = plan();
        change(&mut plan);
        Rollout::new(plan, START).map(|_| ()).map_err(|e| e.field().unwrap_or_default().to_owned())
    };
    for (change, field) in [
        ((|plan| plan.steps.clear()) as fn(&mut Plan), "steps"),
        (|plan| plan.steps[1].share = 0.01, "steps[1].share"),
        (|plan| plan.steps[3].share = 1.01, "steps[3].share"),
        (|plan| plan.steps[0].share = f64::NAN, "steps[0].share"),
        (|plan| plan.errors[0] = Limit::AtMost(1.5), "errors[0]"),
        (|plan| plan.errors[1] = Limit::TimesBaseline(0.5), "errors[1]"),
        (|plan| plan.latency[0].limit = Limit::AtMost(-1.0), "latency[0]"),
        (|plan| plan.latency = vec![plan.latency[0]; 20], "rules"),
        (|plan| plan.burst.rate = 0.0, "burst.rate"),
        (|plan| plan.alpha = 0.0, "alpha"),
    ] {
        assert_eq!(with(change).unwrap_err(), field);
    }
    assert!(with(|_| ()).is_ok());
}

proptest! {
    #[test]
    fn it_survives_being_stored_and_never_decides_before_the_least(
        requests in 0..100_u64, errors in 0..9_u64, millis in 0.1..1e4_f64, prove: bool,
    ) {
        let errors = errors.min(requests);
        let plan = if prove { with_quality(prove) } else { plan() };
        let rollout = rollout(plan, seen(requests, errors, millis), with_outcomes(3, 10));
        let text = serde_json::to_string(&rollout).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Rollout>(&text).unwrap(), &rollout);
        let decision = rollout.decide(later(1_000));
        prop_assert!(matches!(decision, Decision::Wait { .. }), "{decision:?}");
    }
}
