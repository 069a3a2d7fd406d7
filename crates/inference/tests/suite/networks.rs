//! Networks in single floats, half floats and eight bits: every engine that takes one answers as
//! ONNX Runtime did when it was recorded, and what an engine gets wrong is not served.

use crate::fixtures::{Fixture, compare, fixtures, read_all};
use crate::library::runtime;
use falaj_inference::fallback::Fallback;
use falaj_inference::golden::{BatchInvariance, Tolerance, batch_invariance, verify};
use falaj_inference::{DataType, Engine, Engines, Limits, ModelFile, Tensor, run};

/// How far two engines may be apart in eight bits: a sum that falls on the other side of a step.
const STEP: Tolerance = Tolerance { relative: 0.0, absolute: 2e-2 };

fn networks() -> Vec<Fixture> {
    let all = read_all("networks");
    assert!(all.len() >= 10, "the fixtures are there");
    all
}

fn tolerance(fixture: &Fixture) -> Tolerance {
    if fixture.name.ends_with("_static") || fixture.name.ends_with("_dynamic") {
        STEP
    } else {
        Tolerance::of(fixture.golden.outputs[0].1.data_type())
    }
}

fn model(fixture: &Fixture) -> ModelFile {
    ModelFile::read(fixture.bytes.clone(), &Limits::default()).unwrap()
}

#[test]
fn with_onnx_runtime_every_network_answers_as_recorded() {
    let Some(runtime) = runtime() else { return };
    let engines = Engines::new(Some(runtime));
    for fixture in networks() {
        let mut session = engines.load(&model(&fixture)).unwrap();
        let wrong = compare(&mut *session, &fixture.golden, tolerance(&fixture));
        assert_eq!(wrong, None, "{} on {}", fixture.name, session.engine());
    }
}

#[test]
fn without_it_networks_answer_as_recorded_or_are_refused_with_the_operator() {
    let expected = [
        ("convolutions_dynamic", Err("ConvInteger")),
        ("convolutions_fp32", Ok("rten")),
        ("convolutions_static", Ok("rten")),
        ("encoder_dynamic", Ok("rten")),
        ("encoder_fp32", Ok("rten")),
        ("encoder_static", Ok("rten")),
        ("perceptron_dynamic", Ok("rten")),
        ("perceptron_fp16", Err("FP16")),
        ("perceptron_fp32", Ok("kernels")),
        ("perceptron_static", Ok("rten")),
    ];
    for (fixture, (name, engine)) in networks().iter().zip(expected) {
        assert_eq!(fixture.name, name);
        match (Engines::default().choose(&model(fixture)), engine) {
            (Ok(mut chosen), Ok(engine)) => {
                assert_eq!(chosen.session.engine(), engine, "{name}: {}", chosen.why);
                let wrong = compare(&mut *chosen.session, &fixture.golden, tolerance(fixture));
                assert_eq!(wrong, None, "{name} on {engine}");
                let told = chosen.why.contains("falaj engine install");
                assert_eq!(told, engine == "rten", "{name}: {}", chosen.why);
            }
            (Err(error), Err(reason)) => {
                assert!(error.message().contains(reason), "{name}: {error}");
                assert!(error.message().contains("falaj engine install"), "{name}: {error}");
            }
            (chosen, _) => panic!("{name}: {:?}", chosen.map(|chosen| chosen.why)),
        }
    }
}

#[test]
fn eight_bits_are_close_to_the_floats_they_were_made_from() {
    let all = networks();
    for kind in ["perceptron", "convolutions", "encoder"] {
        let find = |end: &str| all.iter().find(|one| one.name == format!("{kind}_{end}")).unwrap();
        let recorded = |end: &str| find(end).golden.outputs[0].1.expect::<f32>().unwrap().to_vec();
        let floats = recorded("fp32");
        for end in ["static", "dynamic"] {
            let bits = recorded(end);
            let apart = bits.iter().zip(&floats).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart > 0.0 && apart < 0.1, "{kind}_{end}: {apart}");
        }
    }
}

/// Enough rows that differ, made of the recorded ones.
fn rows(fixture: &Fixture) -> Vec<(String, Tensor)> {
    let many = |tensor: &Tensor| {
        let louder = |by: f32| match tensor.get::<f32>() {
            Some(all) => Tensor::of(tensor.shape(), all.iter().map(|x| x * by).collect::<Vec<_>>()),
            None => Ok(tensor.clone()),
        };
        Tensor::stacked(&[louder(1.0).unwrap(), louder(3.0).unwrap()]).unwrap()
    };
    fixture.golden.inputs.iter().map(|(name, tensor)| (name.clone(), many(tensor))).collect()
}

#[test]
fn only_scales_that_are_measured_at_each_run_make_answers_depend_on_the_batch() {
    let Some(runtime) = runtime() else { return };
    for fixture in networks() {
        let mut session = runtime.load(&model(&fixture)).unwrap();
        let found = batch_invariance(&mut *session, &rows(&fixture)).unwrap();
        let alike = matches!(found, BatchInvariance::Exact | BatchInvariance::Rounding { .. });
        assert_eq!(alike, !fixture.name.ends_with("_dynamic"), "{}: {found:?}", fixture.name);
    }
}

/// Fixtures that the fallback takes and answers otherwise than ONNX Runtime, or not at all: the
/// golden pair keeps each of them from being served.
const WRONG_ON_FALLBACK: &[&str] = &["cast_float_bool", "pow_int", "slice_plain"];

#[test]
fn the_fallback_answers_as_onnx_runtime_did_or_the_golden_pair_refuses() {
    let (mut right, mut wrong) = (0, Vec::new());
    for fixture in fixtures().into_iter().chain(networks()) {
        let Ok(mut session) = Fallback.load(&model(&fixture)) else { continue };
        let tolerance = if fixture.name.ends_with("_static") { Some(STEP) } else { None };
        match verify(&mut *session, &fixture.golden, tolerance) {
            Ok(()) => right += 1,
            Err(error) => wrong.push((fixture.name, error.message().to_owned())),
        }
    }
    println!("{right} fixtures agree on the fallback");
    let names: Vec<&str> = wrong.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, WRONG_ON_FALLBACK, "{wrong:#?}");
    assert!(right > 100, "{right}");
}

#[test]
fn the_fallback_shares_a_model_and_refuses_numbers_that_do_not_fit() {
    let fixture = networks().into_iter().find(|one| one.name == "encoder_fp32").unwrap();
    let model = model(&fixture);
    let mut first = Fallback.load(&model).unwrap();
    let mut second = first.another().unwrap();
    assert!(first.bytes() >= fixture.bytes.len() && second.bytes() == 0);
    let one = run(&mut *first, &fixture.golden.inputs, &[]).unwrap();
    drop(first);
    assert_eq!(run(&mut *second, &fixture.golden.inputs, &[]).unwrap(), one);

    let wide = Tensor::of([1, 8], vec![1_i64 << 40; 8]).unwrap();
    let error = run(&mut *second, &[("ids".to_owned(), wide)], &[]).unwrap_err();
    assert!(error.message().contains("32 bits"), "{error}");
    // An id that no word has.
    let unknown = Tensor::of([1, 8], vec![1000_i64; 8]).unwrap();
    let error = run(&mut *second, &[("ids".to_owned(), unknown)], &[]).unwrap_err();
    assert_eq!(error.code().id, "invalid-input", "{error}");
    assert_eq!(model.metadata().inputs[0].data_type, DataType::I64);
}
