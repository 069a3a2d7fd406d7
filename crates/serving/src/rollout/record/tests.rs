use super::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn weights() -> Vec<(Name, f64)> {
    vec![(name("main"), 1.0), (name("next"), 1.0)]
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn strategy(json: Value) -> Strategy {
    serde_json::from_value(json).unwrap()
}

fn source() -> impl Source {
    let mut random = falaj_testkit::Random::new(1);
    move || random.number()
}

/// So many answers of a variant, so many of them failures.
fn seen(variant: &str, requests: u64, errors: u64) -> Seen {
    let mut observed = Observed::default();
    for n in 0..requests {
        if n < errors {
            observed.failed();
        } else {
            observed.succeeded(1.0);
        }
    }
    Seen { variants: [(name(variant), observed)].into(), ..Seen::default() }
}

/// A record is what it is after being stored, too.
fn stored(record: Record) -> Record {
    let text = serde_json::to_string(&record).unwrap();
    let read: Record = serde_json::from_str(&text).unwrap();
    assert_eq!(read, record);
    read
}

fn canary() -> Strategy {
    strategy(json!({"canary": {
        "variant": "next",
        "steps": [{"share": 0.1, "min_requests": 50}, {"share": 0.5, "min_requests": 50}],
        "errors": [{"at_most": 0.02}],
    }}))
}

#[test]
fn a_canary_that_behaves_advances_and_takes_over() {
    let canary = canary();
    let (mut record, shares) = Record::begin(Some(&canary), &weights(), at(0), None).unwrap();
    assert_eq!(shares.unwrap(), [(name("main"), 0.9), (name("next"), 0.1)]);
    let judge =
        |record: &mut Record, now| record.judge(&canary, &[], &weights(), at(now), &mut source());
    assert_eq!(judge(&mut record, 1), Move::Stay);
    record.add(&seen("main", 500, 0), Some(&canary)).unwrap();
    assert_eq!(judge(&mut record, 2), Move::Stay);
    record.add(&seen("next", 60, 0), Some(&canary)).unwrap();
    let mut record = stored(record);
    let Move::Share { event, shares, why } = judge(&mut record, 3) else { panic!("no step") };
    assert_eq!((event, &why["share"]), ("endpoint.advanced", &json!(0.5)));
    assert_eq!((&why["step"], &why["canary"]["requests"]), (&json!(1), &json!(60)));
    assert_eq!(shares, [(name("main"), 0.5), (name("next"), 0.5)]);
    assert_eq!(judge(&mut record, 4), Move::Stay);
    record.add(&seen("main", 60, 0), Some(&canary)).unwrap();
    record.add(&seen("next", 60, 0), Some(&canary)).unwrap();
    let Move::End { event, left, .. } = judge(&mut record, 5) else { panic!("no end") };
    assert_eq!((event, left), ("endpoint.promoted", vec![name("next")]));
    assert_eq!(record.decided.as_ref().unwrap().event, "endpoint.promoted");
    assert_eq!(record.variants[&name("next")].requests, 120);
    stored(record);
}

#[test]
fn a_canary_that_fails_is_taken_away() {
    let canary = canary();
    let (mut record, _) = Record::begin(Some(&canary), &weights(), at(0), None).unwrap();
    record.add(&seen("main", 500, 0), Some(&canary)).unwrap();
    record.add(&seen("next", 20, 18), Some(&canary)).unwrap();
    let found = record.judge(&canary, &[], &weights(), at(1), &mut source());
    let Move::End { event, left, why } = found else { panic!("{found:?}") };
    assert_eq!((event, left), ("endpoint.rolled-back", vec![name("main")]));
    assert_eq!(why["rule"], json!("error_burst"));
}

#[test]
fn a_test_tells_once_which_is_better_or_makes_it_the_only_one() {
    for (then, wanted) in [("tell", "endpoint.compared"), ("promote", "endpoint.promoted")] {
        let test = strategy(json!({"test": {
            "control": "main", "outcome": "rate", "then": then,
            "design": {"effect": 0.1},
        }}));
        let (mut record, shares) = Record::begin(Some(&test), &weights(), at(0), None).unwrap();
        assert_eq!(shares, None);
        let judge =
            |record: &mut Record| record.judge(&test, &[], &weights(), at(1), &mut source());
        for n in 0..2000_u32 {
            let (low, high) = (f64::from(u8::from(n % 10 < 2)), f64::from(u8::from(n % 10 < 6)));
            record.outcome(&name("main"), low, &test, at(1)).unwrap();
            record.outcome(&name("next"), high, &test, at(1)).unwrap();
        }
        let mut record = stored(record);
        match judge(&mut record) {
            Move::Tell { event, why } => {
                assert_eq!((event, &why["better"]), (wanted, &json!("next")));
            }
            Move::End { event, left, why } => {
                assert_eq!((event, left), (wanted, vec![name("next")]));
                assert_eq!(why["verdict"], json!("b_better"));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(judge(&mut record), Move::Stay);
        let bad = record.outcome(&name("main"), 0.5, &test, at(1)).unwrap_err();
        assert_eq!(bad.field(), Some("value"));
    }
}

#[test]
fn a_bandit_moves_to_whoever_earns_more() {
    let bandit = strategy(json!({"bandit": {"reward": "binary", "floor": 0.05}}));
    let (mut record, shares) = Record::begin(Some(&bandit), &weights(), at(0), None).unwrap();
    let shares = shares.unwrap();
    assert_eq!(shares, [(name("main"), 0.5), (name("next"), 0.5)]);
    for n in 0..400_u32 {
        let (low, high) = (f64::from(u8::from(n % 10 < 2)), f64::from(u8::from(n % 10 < 6)));
        record.outcome(&name("main"), low, &bandit, at(1)).unwrap();
        record.outcome(&name("next"), high, &bandit, at(1)).unwrap();
    }
    let judge = |record: &mut Record, shares: &Shares, now| {
        record.judge(&bandit, shares, &weights(), at(now), &mut source())
    };
    assert_eq!(judge(&mut record, &shares, 2), Move::Stay, "too early");
    let Move::Share { event, shares, why } = judge(&mut record, &shares, 11) else { panic!() };
    assert_eq!(event, "endpoint.shared");
    assert!(shares[1].1 > 0.9 && shares[0].1 >= 0.05, "{shares:?}");
    assert_eq!(why["earned"][1]["outcomes"], json!(400.0));
    assert_eq!(judge(&mut record, &shares, 30), Move::Stay, "nothing moved");
}

#[test]
fn shadows_of_several_servers_add_up() {
    let (mut record, _) = Record::begin(None, &weights(), at(0), None).unwrap();
    let tensor = |value: f32| {
        let tensor = falaj_inference::Tensor::new(vec![1], falaj_inference::Data::F32(vec![value]));
        vec![("y".to_owned(), tensor.unwrap())]
    };
    let (one, two) = (tensor(1.0), tensor(2.0));
    let mut shadow = Shadow::default();
    let answered = |outputs| crate::traffic::shadow::Answered { outputs, millis: 1.0 };
    shadow.record(answered(&one), Some(answered(&two)));
    let seen = Seen { shadows: [(name("next"), shadow)].into(), ..Seen::default() };
    record.add(&seen, None).unwrap();
    record.add(&seen, None).unwrap();
    assert_eq!(record.shadows[&name("next")].report().compared, 2);
    stored(record);
}

#[test]
fn requests_of_the_step_before_count_but_are_not_judged() {
    let canary = canary();
    let (mut record, _) = Record::begin(Some(&canary), &weights(), at(0), None).unwrap();
    // As whoever tells does it with what was shared out otherwise.
    record.add(&seen("next", 60, 60), None).unwrap();
    assert_eq!(record.variants[&name("next")].requests, 60);
    let Some(Progress::Canary(rollout)) = &record.progress else { panic!("no canary") };
    assert_eq!(rollout.canary.requests, 0);
    let judged = record.judge(&canary, &[], &weights(), at(9), &mut source());
    assert_eq!(judged, Move::Stay, "a burst of errors of another step");
}
