use proptest::prelude::*;

use super::*;

fn answered(outputs: &[(String, Tensor)]) -> Answered<'_> {
    Answered { outputs, millis: 5.0 }
}

fn one(name: &str, tensor: Tensor) -> Vec<(String, Tensor)> {
    vec![(name.to_owned(), tensor)]
}

fn compared(primary: Tensor, shadow: Tensor) -> OutputReport {
    let mut diff = Shadow::default();
    diff.record(answered(&one("y", primary)), Some(answered(&one("y", shadow))));
    diff.report().outputs["y"].clone()
}

#[test]
fn labels_that_flip_are_counted_by_kind() {
    let labels = |texts: [&str; 4]| Tensor::strings([4], texts).unwrap();
    let found = compared(labels(["a", "b", "a", "a"]), labels(["a", "a", "b", "b"]));
    assert_eq!((found.labels, found.flipped), (4, 3));
    let flips: Vec<_> =
        found.flips.iter().map(|f| (f.primary.as_str(), f.shadow.as_str(), f.count)).collect();
    assert_eq!(flips, [("a", "b", 2), ("b", "a", 1)]);
    assert_eq!((found.numbers, found.psi), (0.0, None));
    let integers = |all: [i64; 2]| Tensor::of([2], all.to_vec()).unwrap();
    // Two that are the same double are still two labels.
    let big = 1_i64 << 60;
    let found = compared(integers([big, 7]), integers([big + 1, 7]));
    assert_eq!((found.labels, found.flipped), (2, 1));
}

#[test]
fn of_a_row_of_scores_the_highest_is_the_label() {
    let scores = |all: [f32; 6]| Tensor::of([2, 3], all.to_vec()).unwrap();
    let found =
        compared(scores([0.1, 0.7, 0.2, 0.5, 0.3, 0.2]), scores([0.2, 0.6, 0.2, 0.2, 0.3, 0.5]));
    assert_eq!((found.labels, found.flipped), (2, 1));
    assert_eq!((found.flips[0].primary.as_str(), found.flips[0].shadow.as_str()), ("0", "2"));
    assert!((found.max_distance - 0.3).abs() < 1e-6);
    assert!((found.mean_distance - (0.1 + 0.1 + 0.3 + 0.3) / 6.0).abs() < 1e-6);
}

#[test]
fn a_single_score_has_a_distance_and_no_label() {
    let found = compared(
        Tensor::of([3, 1], vec![1.0_f64, 2.0, f64::NAN]).unwrap(),
        Tensor::of([3, 1], vec![1.5_f64, f64::INFINITY, f64::NAN]).unwrap(),
    );
    assert_eq!((found.labels, found.flipped, found.one_sided), (0, 0, 1));
    assert_eq!((found.numbers, found.max_distance), (2.0, 0.5));
}

#[test]
fn another_shape_type_or_nothing_is_never_equal() {
    let mut diff = Shadow::default();
    let given = one("y", Tensor::of([2], vec![1.0_f32, 2.0]).unwrap());
    for other in [
        one("y", Tensor::of([2, 1], vec![1.0_f32, 2.0]).unwrap()),
        one("y", Tensor::of([2], vec![1.0_f64, 2.0]).unwrap()),
        one("z", Tensor::of([2], vec![1.0_f32, 2.0]).unwrap()),
        vec![],
    ] {
        diff.record(answered(&given), Some(answered(&other)));
    }
    diff.record(answered(&given), None);
    let report = diff.report();
    assert_eq!((report.compared, report.failed), (4, 1));
    assert_eq!((report.outputs["y"].unlike, report.outputs["y"].numbers), (4, 0.0));
    assert_eq!(report.outputs.len(), 1);
}

#[test]
fn scores_that_drift_apart_show_in_the_index() {
    let mut random = falaj_testkit::Random::new(3);
    let mut scores = |shift: f64| {
        let score = |_| shift + (random.number() >> 11) as f64 / (1_u64 << 53) as f64;
        Sketch::of((0..5_000).map(score).collect::<Vec<_>>())
    };
    let (first, same, little, far) = (scores(0.0), scores(0.0), scores(0.05), scores(0.5));
    let index = |other| psi(&first, other).unwrap();
    assert!(index(&same) < 0.02, "{}", index(&same));
    assert!(index(&little) > index(&same), "{}", index(&little));
    assert!(index(&far) > 0.5, "{}", index(&far));
    assert_eq!(psi(&first, &Sketch::default()), None);
    // All equal: one bin, nothing apart.
    let constant = Sketch::of([1.0; 100]);
    assert!(psi(&constant, &constant).unwrap().abs() < 1e-12);
    assert!(psi(&constant, &Sketch::of([2.0; 100])).unwrap() > 1.0);
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut diff = Shadow::default();
    let many: Vec<_> = (0..20)
        .map(|n| (format!("y{n}"), Tensor::strings([40], (0..40).map(|n| n.to_string())).unwrap()))
        .collect();
    let other: Vec<_> = (0..20)
        .map(|n| (format!("y{n}"), Tensor::strings([40], vec!["x".repeat(9_999); 40]).unwrap()))
        .collect();
    diff.record(answered(&many), Some(answered(&other)));
    let report = diff.report();
    assert_eq!((report.outputs.len(), report.outputs_not_compared), (16, 4));
    assert_eq!((report.outputs["y0"].flipped, report.outputs["y0"].flips.len()), (40, 32));
    assert!(serde_json::to_vec(&diff).unwrap().len() < 120_000);
}

#[test]
fn times_stand_beside_each_other() {
    let mut diff = Shadow::default();
    for millis in 1..=100 {
        let primary = Answered { outputs: &[], millis: f64::from(millis) };
        let shadow = Answered { outputs: &[], millis: f64::from(2 * millis) };
        diff.record(primary, Some(shadow));
    }
    let report = diff.report();
    assert!((report.mean_slower - 50.5).abs() < 1e-9);
    let (primary, shadow) = (report.primary_millis.unwrap(), report.shadow_millis.unwrap());
    assert!((shadow.p95 / primary.p95 - 2.0).abs() < 0.05, "{primary:?} {shadow:?}");
}

proptest! {
    #[test]
    fn merged_is_as_if_seen_together_and_survives_being_stored(
        pairs in prop::collection::vec((-3.0..3.0_f64, -3.0..3.0_f64, 0..3_u8, 0..3_u8), 0..40),
        cut in 0..40_usize,
    ) {
        let record = |diff: &mut Shadow, (x, y, a, b): (f64, f64, u8, u8)| {
            let make = |score: f64, label: u8| vec![
                ("score".to_owned(), Tensor::of([1], vec![score]).unwrap()),
                ("label".to_owned(), Tensor::strings([1], [label.to_string()]).unwrap()),
            ];
            diff.record(answered(&make(x, a)), Some(answered(&make(y, b))));
        };
        let (mut together, mut one, mut two) = <(Shadow, Shadow, Shadow)>::default();
        for (place, &pair) in pairs.iter().enumerate() {
            record(&mut together, pair);
            record(if place < cut { &mut one } else { &mut two }, pair);
        }
        one.merge(&two);
        let (merged, whole) = (one.report(), together.report());
        prop_assert_eq!(merged.compared, whole.compared);
        for (name, diff) in &whole.outputs {
            let other = &merged.outputs[name];
            prop_assert_eq!((diff.flipped, diff.labels), (other.flipped, other.labels));
            prop_assert_eq!(diff.psi, other.psi);
            prop_assert!((diff.mean_distance - other.mean_distance).abs() < 1e-9);
            prop_assert!((diff.max_distance - other.max_distance).abs() < 1e-12);
        }
        let text = serde_json::to_string(&together).unwrap();
        prop_assert_eq!(serde_json::from_str::<Shadow>(&text).unwrap(), together);
    }
}
