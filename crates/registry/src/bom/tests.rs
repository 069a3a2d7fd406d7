//! Reading requirements and signatures, and the document's shape. The official schema is asked in
//! `tests/oracles/bom.rs`.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::signing::Sha256;

fn manifest(paths: &[&str]) -> Manifest {
    let digest = || Sha256::of(b"x").to_string();
    Manifest::new(paths.iter().map(|path| ((*path).to_owned(), digest(), 1)).collect()).unwrap()
}

fn facts(paths: &[&str]) -> ModelFacts {
    let at = Timestamp::from_micros(1_700_000_000_000_000);
    ModelFacts::new("wine", "3", manifest(paths), Uuid::from_u128(7), at)
}

fn show(requirements: Vec<Requirement>) -> Vec<String> {
    let show = |r: Requirement| {
        let range = r.specifier.clone().filter(|_| r.version.is_none());
        format!("{}{}", r.purl(), range.map(|range| format!(" {range}")).unwrap_or_default())
    };
    requirements.into_iter().map(show).collect()
}

#[test]
fn requirements_are_read_as_pip_writes_them() {
    let text = "\
# comment
mlflow==3.1.0
Scikit_Learn [extra] == 1.5.2  # why
torch==2.4.0+cpu ; python_version >= '3.9'
numpy>=1.2,<2
pandas
ruamel.yaml===0.18 --hash=sha256:abc
jax[cuda12]~=0.4
wild==1.*
two==1,!=2
epoch==1!2.0
split==\\
  1.0
spaced (>=1.0)
direct @ https://user:secret@host/x-1.0.whl
-r other.txt
-e git+https://host/x.git#egg=x
--index-url https://user:secret@host/simple
./local.whl
https://host/x.whl
git+ssh://git@host/x.git
dir/x.whl
C:\\x.whl
==1.0
-lead==1
trail-==1
no spaces allowed
";
    let found = requirements_txt(text);
    assert!(!format!("{found:?}").contains("secret"));
    assert_eq!(
        show(found),
        [
            "pkg:pypi/mlflow@3.1.0",
            "pkg:pypi/scikit-learn@1.5.2",
            "pkg:pypi/torch@2.4.0%2Bcpu",
            "pkg:pypi/numpy >=1.2,<2",
            "pkg:pypi/pandas",
            "pkg:pypi/ruamel-yaml@0.18",
            "pkg:pypi/jax ~=0.4",
            "pkg:pypi/wild ==1.*",
            "pkg:pypi/two ==1,!=2",
            "pkg:pypi/epoch@1%212.0",
            "pkg:pypi/split@1.0",
            "pkg:pypi/spaced >=1.0",
            "pkg:pypi/direct",
        ]
    );
}

#[test]
fn conda_environments_are_read_as_conda_writes_them() {
    let text = "\
name: mlflow-env
channels:
- conda-forge
dependencies:
- python=3.11.2
- pip<=23.2.1
- conda-forge::openblas=0.3=h1_0 # fast
- 'quoted==1.0'
- pip:
  - mlflow==3.1.0
  - \"cloudpickle==3.1.2\"
  - -r more.txt
- libgomp
variables:
- not=1
";
    assert_eq!(
        show(conda_yaml(text)),
        [
            "pkg:conda/python@3.11.2",
            "pkg:conda/pip <=23.2.1",
            "pkg:conda/openblas@0.3",
            "pkg:conda/quoted@1.0",
            "pkg:pypi/mlflow@3.1.0",
            "pkg:pypi/cloudpickle@3.1.2",
            "pkg:conda/libgomp",
        ]
    );
    // The same, with lists indented under their keys.
    let indented = "dependencies:\n  - python=3.11\n  - pip:\n      - a==1\n  - b=2\nprefix: x\n";
    assert_eq!(
        show(conda_yaml(indented)),
        ["pkg:conda/python@3.11", "pkg:pypi/a@1", "pkg:conda/b@2"]
    );
    assert_eq!(conda_yaml("dependencies: [a, b]"), []);
}

#[test]
fn a_package_named_twice_is_listed_once_with_its_version() {
    let mut facts = facts(&["a"]);
    facts.requirements = requirements_txt("B>1\nA\na==2\nb==3\nb==4\n");
    let document = document(&facts);
    let purls: Vec<_> = document["components"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|component| component["purl"].as_str())
        .collect();
    assert_eq!(purls, ["pkg:pypi/a@2", "pkg:pypi/b@3"]);
}

#[test]
fn signatures_are_shown_in_words() {
    let columns = |schema: &serde_json::Value| columns(&schema.to_string());
    assert_eq!(
        columns(&json!([
            {"type": "double", "name": "alcohol", "required": true},
            {"type": "string", "name": "note", "required": false},
            {"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 28, 28]}},
            {"type": "array", "items": {"type": "long"}, "name": "ids"},
            {"type": "object", "properties": {"role": {"type": "string"}}, "name": "message"},
            {"type": "map", "values": {"type": "double"}},
        ])),
        [
            "alcohol: double",
            "note: string (optional)",
            "float32[-1, 28, 28]",
            "ids: array(long)",
            "message: object(role: string)",
            "map(double)",
        ]
    );
    for not_a_schema in ["", "null", "{}", "[1", "\"x\""] {
        assert_eq!(super::columns(not_a_schema), [""; 0]);
    }
    assert_eq!(columns(&json!([1, null, {}])), ["any", "any", "any"]);
    assert_eq!(columns(&json!(vec![json!({"type": "long"}); 1500])).len(), 1001);
    assert_eq!(super::columns(&"[".repeat(100_000)), [""; 0]);
}

#[test]
fn a_model_without_facts_still_has_a_document() {
    let document = document(&facts(&[]));
    assert_eq!(document["serialNumber"], "urn:uuid:00000000-0000-0000-0000-000000000007");
    assert_eq!(document["metadata"]["timestamp"], "2023-11-14T22:13:20.000000Z");
    let model = &document["metadata"]["component"];
    assert_eq!(model["type"], "machine-learning-model");
    assert!(model.get("hashes").is_none());
    assert!(model.get("modelCard").is_none());
    assert!(document.get("components").is_none());
}

#[test]
fn the_models_hash_is_what_a_signature_vouches_for() {
    let facts = facts(&["a", "b/c", ".gitignore"]);
    let document = document(&facts);
    let hash = &document["metadata"]["component"]["hashes"][0];
    assert_eq!(hash["content"], facts.files.digest().to_string());
    assert_eq!(document["components"].as_array().unwrap().len(), 3);
    assert_eq!(document["dependencies"][0]["dependsOn"].as_array().unwrap().len(), 3);
}

#[test]
fn metrics_without_a_number_keep_their_words() {
    let mut facts = facts(&["a"]);
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.25, 1e300] {
        facts.metrics.push(Metric { name: "m".into(), value, slice: None });
    }
    let document = document(&facts);
    let metrics = &document["metadata"]["component"]["modelCard"]["quantitativeAnalysis"];
    let values: Vec<_> = metrics["performanceMetrics"].as_array().unwrap().iter().collect();
    assert_eq!(values[0]["value"], "NaN");
    assert_eq!(values[1]["value"], "Infinity");
    assert_eq!(values[2]["value"], "-Infinity");
    assert_eq!(values[3]["value"], "0.25");
    assert_eq!(values[4]["value"], "1e300");
}

#[test]
fn only_plain_addresses_are_urls() {
    let mut facts = facts(&["a"]);
    let sources =
        ["s3://bucket/a.csv", "https://h/a b", "not a url", "https://user:pw@h/x", "://x"];
    facts.datasets = sources
        .map(|source| Dataset { source: Some(source.into()), ..Dataset::default() })
        .to_vec();
    let document = document(&facts);
    let parameters = &document["metadata"]["component"]["modelCard"]["modelParameters"];
    let urls: Vec<_> = parameters["datasets"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|dataset| dataset["contents"]["url"].as_str())
        .collect();
    assert_eq!(urls, ["s3://bucket/a.csv", "https://h/x"]);
    assert!(!document.to_string().contains("pw"), "a password in an address is not repeated");
}

proptest! {
    #[test]
    fn any_text_can_be_read(text in "[a-z=<>\\[\\]@;#:\\-. \n\\\\'\"]{0,200}") {
        let _ = (requirements_txt(&text), conda_yaml(&text), columns(&text));
    }
}
