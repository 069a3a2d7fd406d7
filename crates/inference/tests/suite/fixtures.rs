//! Every fixture through every engine, against what ONNX Runtime answered when it was made.
//!
//! ONNX Runtime itself is tested too where its library is found: see `library`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::library::runtime;
use falaj_inference::golden::{BatchInvariance, Golden, Tolerance, batch_invariance, differs};
use falaj_inference::kernels::{Kernels, operators};
use falaj_inference::onnx::proto::ModelProto;
use falaj_inference::{Data, DataType, Engine, Limits, ModelFile, Session, Tensor, run};
use prost::Message;
use serde_json::Value;

/// What our kernels do not cover, and why.
const UNCOVERED: &[(&str, &str)] = &[("sk_neighbors", "Scan"), ("sk_neighbors_value", "Scan")];

/// Fixtures whose answers need not agree to the last digit: long sums added in another order,
/// and functions that are approximated.
const CLOSE: Tolerance = Tolerance { relative: 2e-6, absolute: 2e-7 };

pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) golden: Golden,
}

pub(crate) fn fixtures() -> Vec<Fixture> {
    let all = read_all("cases");
    assert!(all.len() > 300, "the fixtures are there");
    all
}

/// The fixtures of a folder, by their names.
pub(crate) fn read_all(folder: &str) -> Vec<Fixture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(folder);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "onnx"));
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let recorded: Value = serde_json::from_str(&text).unwrap();
        Fixture {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            bytes: std::fs::read(path).unwrap(),
            golden: Golden {
                inputs: tensors(&recorded["inputs"]),
                outputs: tensors(&recorded["outputs"]),
            },
        }
    };
    paths.iter().map(read).collect()
}

fn tensors(list: &Value) -> Vec<(String, Tensor)> {
    let read = |value: &Value| (value["name"].as_str().unwrap().to_owned(), tensor(value));
    list.as_array().unwrap().iter().map(read).collect()
}

fn tensor(value: &Value) -> Tensor {
    let shape = value["shape"].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap() as usize);
    let data = value["data"].as_array().unwrap();
    let float = |x: &Value| match x.as_str() {
        Some("NaN") => f64::NAN,
        Some("Infinity") => f64::INFINITY,
        Some("-Infinity") => f64::NEG_INFINITY,
        _ => x.as_f64().unwrap(),
    };
    let whole = |x: &Value| x.as_i64().unwrap();
    let data = match DataType::parse(value["datatype"].as_str().unwrap()).unwrap() {
        DataType::F32 => Data::F32(data.iter().map(|x| float(x) as f32).collect()),
        DataType::F16 => {
            Data::F16(data.iter().map(|x| half::f16::from_f64(float(x)).to_bits()).collect())
        }
        DataType::F64 => Data::F64(data.iter().map(float).collect()),
        DataType::I64 => Data::I64(data.iter().map(whole).collect()),
        DataType::I32 => Data::I32(data.iter().map(|x| whole(x) as i32).collect()),
        DataType::I16 => Data::I16(data.iter().map(|x| whole(x) as i16).collect()),
        DataType::I8 => Data::I8(data.iter().map(|x| whole(x) as i8).collect()),
        DataType::U8 => Data::U8(data.iter().map(|x| whole(x) as u8).collect()),
        DataType::Bool => Data::Bool(data.iter().map(|x| x.as_bool().unwrap()).collect()),
        DataType::Bytes => {
            let text = |x: &Value| x.as_str().unwrap().to_owned().into();
            Data::Bytes(data.iter().map(text).collect())
        }
        other => panic!("no fixture has {other}"),
    };
    Tensor::new(shape.collect(), data).unwrap()
}

/// What is wrong with a session's answers; nothing if they are the recorded ones.
pub(crate) fn compare(
    session: &mut dyn Session,
    golden: &Golden,
    tolerance: Tolerance,
) -> Option<String> {
    let names: Vec<String> = golden.outputs.iter().map(|(name, _)| name.clone()).collect();
    let got = match run(session, &golden.inputs, &names) {
        Ok(got) => got,
        Err(error) => return Some(error.chain()),
    };
    let mut pairs = golden.outputs.iter().zip(&got);
    pairs.find_map(|((name, recorded), (_, got))| {
        differs(recorded, got, tolerance).map(|difference| format!("{name}: {difference}"))
    })
}

#[test]
fn our_kernels_answer_as_onnx_runtime_did() {
    let mut wrong = Vec::new();
    let mut exact = 0;
    for Fixture { name, bytes, golden } in fixtures() {
        let model = ModelFile::read(bytes, &Limits::default()).unwrap();
        let known = UNCOVERED.iter().find(|(uncovered, _)| *uncovered == name);
        match (Kernels.load(&model), known) {
            (Ok(mut session), None) => {
                let none = Tolerance { relative: 0.0, absolute: 0.0 };
                if compare(&mut *session, &golden, none).is_none() {
                    exact += 1;
                } else if let Some(difference) = compare(&mut *session, &golden, CLOSE) {
                    wrong.push(format!("{name}: {difference}"));
                }
            }
            (Err(error), Some((_, why))) if error.message().contains(why) => {}
            (Err(error), _) => wrong.push(format!("{name}: {}", error.chain())),
            (Ok(_), Some(_)) => wrong.push(format!("{name} is covered after all")),
        }
    }
    println!("{exact} fixtures agree to the last bit");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn rows_are_answered_alike_in_every_batch() {
    let mut tried = 0;
    for Fixture { name, bytes, golden } in fixtures() {
        let model = ModelFile::read(bytes, &Limits::default()).unwrap();
        // What libraries export is served by row; single operators may mix rows, and some must.
        let Some(mut session) = Kernels.load(&model).ok().filter(|_| by_row(&name)) else {
            continue;
        };
        tried += 1;
        let found = batch_invariance(&mut *session, &golden.inputs).unwrap();
        assert_eq!(found, BatchInvariance::Exact, "{name}");
    }
    assert!(tried > 100, "{tried}");
}

fn by_row(name: &str) -> bool {
    let families = ["sk_", "lgbm_", "xgb_", "tree_", "linear_", "scaler_", "normalizer_", "svm_"];
    let alone = ["tree_one_dimension"];
    families.iter().any(|family| name.starts_with(family)) && !alone.contains(&name)
}

#[test]
fn onnx_runtime_itself_answers_the_same() {
    let Some(runtime) = runtime() else { return };
    let mut wrong = Vec::new();
    for Fixture { name, bytes, golden } in fixtures() {
        let model = ModelFile::read(bytes, &Limits::default()).unwrap();
        match runtime.load(&model) {
            Ok(mut session) => {
                if let Some(difference) = compare(&mut *session, &golden, CLOSE) {
                    wrong.push(format!("{name}: {difference}"));
                }
            }
            Err(error) => wrong.push(format!("{name}: {}", error.chain())),
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_operator_has_a_fixture() {
    let mut met = BTreeSet::new();
    for fixture in fixtures() {
        let model = ModelProto::decode(&fixture.bytes[..]).unwrap();
        for node in model.graph.unwrap().node {
            let domain = if node.domain().is_empty() { "ai.onnx" } else { node.domain() };
            met.insert((domain.to_owned(), node.op_type().to_owned()));
        }
    }
    let missing: Vec<_> = operators()
        .filter(|(domain, name)| !met.contains(&((*domain).to_owned(), (*name).to_owned())))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
