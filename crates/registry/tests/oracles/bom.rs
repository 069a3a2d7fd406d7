//! Bills of materials against the official `CycloneDX` schema, as `cyclonedx-python-lib` ships it.

use std::fs;
use std::process::Command;

use falaj_base::Timestamp;
use falaj_registry::bom::{
    Considerations, Dataset, Metric, ModelFacts, columns, conda_yaml, document, requirements_txt,
};
use falaj_registry::signing::{Manifest, Sha256};
use uuid::Uuid;

use crate::{folder, python};

/// Prints a line for each document that the schema refuses.
const VALIDATE: &str = "
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
validator = JsonStrictValidator(SchemaVersion.V1_6)
for path in sys.argv[1:]:
    error = validator.validate_str(open(path, encoding='utf-8').read())
    if error:
        print(path.rsplit('/')[-1], repr(str(error)))
";

fn facts(paths: &[&str]) -> ModelFacts {
    let digest = || Sha256::of(b"x").to_string();
    let files = paths.iter().map(|path| ((*path).to_owned(), digest(), 1)).collect();
    let at = Timestamp::from_micros(1_700_000_000_123_456);
    ModelFacts::new("wine", "3", Manifest::new(files).unwrap(), Uuid::now_v7(), at)
}

/// A version about which everything is known.
fn full() -> ModelFacts {
    let mut facts = facts(&["MLmodel", "model.skops", "sub/ünï code.txt"]);
    let some = |text: &str| Some(text.to_owned());
    facts.group = some("acme/vision");
    facts.description = some("Predicts quality.\nIn two lines.");
    facts.licence = some("Apache-2.0");
    facts.author = some("ana");
    facts.task = some("classification");
    facts.architecture_family = some("linear model");
    facts.architecture = some("LogisticRegression");
    facts.inputs = columns(r#"[{"type": "double", "name": "alcohol", "required": true}]"#);
    facts.outputs = columns(r#"[{"type": "long"}]"#);
    facts.datasets = vec![
        Dataset {
            name: "wine".into(),
            digest: some("a1b2"),
            source: some("s3://bucket/wine.csv"),
            context: some("training"),
        },
        Dataset { name: "no\u{202e}t".into(), source: some("a local file"), ..Dataset::default() },
    ];
    facts.metrics = vec![
        Metric { name: "accuracy".into(), value: 0.97, slice: some("test") },
        Metric { name: "loss".into(), value: f64::NAN, slice: None },
    ];
    facts.considerations = Considerations {
        users: vec!["sommeliers".into()],
        use_cases: vec!["sorting".into()],
        technical_limitations: vec!["red wine only".into()],
        performance_tradeoffs: vec!["recall over precision".into()],
        ethical: vec![("drink".into(), some("less")), ("more".into(), None)],
    };
    facts.requirements = requirements_txt("mlflow==3.1.0\ntorch==2.4.0+cpu\nnumpy>=1.2,<2\n");
    let conda = "dependencies:\n- python=3.11.2\n- pip:\n  - mlflow==3.1.0\n";
    facts.requirements.extend(conda_yaml(conda));
    facts.properties = vec![("run".into(), "0123".into()), ("scan".into(), "safe".into())];
    facts
}

/// Facts that try to break out of every field.
fn hostile() -> ModelFacts {
    let mut facts = full();
    let bad = || "\"\\\n\r\t\u{0}\u{7f}<script>&{}[]\u{1f600}".to_owned();
    facts.name = bad();
    facts.version = String::new();
    facts.group = Some(bad());
    facts.licence = Some(bad());
    facts.author = Some(String::new());
    facts.inputs = vec![bad(), String::new()];
    facts.datasets.push(Dataset { name: bad(), source: Some(bad()), ..Dataset::default() });
    facts.datasets.push(Dataset { source: Some("http://[::1".into()), ..Dataset::default() });
    facts.datasets.push(Dataset { source: Some("a://".into()), ..Dataset::default() });
    facts.datasets.push(Dataset { source: Some("http:// ".into()), ..Dataset::default() });
    facts.considerations.ethical.push((bad(), Some(bad())));
    facts.properties.push((bad(), bad()));
    facts
}

#[test]
fn the_official_schema_accepts_every_document() {
    let Some(python) = python("cyclonedx") else { return };
    let folder = folder("bom");
    let mut wrong = document(&full());
    wrong["metadata"]["component"]["type"] = "magic".into();
    let paths = [
        ("empty.json", document(&facts(&[]))),
        ("bare.json", document(&facts(&["a"]))),
        ("full.json", document(&full())),
        ("hostile.json", document(&hostile())),
        ("wrong.json", wrong),
    ]
    .map(|(name, document)| {
        let path = folder.join(name);
        fs::write(&path, document.to_string()).unwrap();
        path
    });
    let output = Command::new(&python).args(["-c", VALIDATE]).args(paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    // Only the one that is wrong on purpose: the validator does look.
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("wrong.json") && said.contains("magic"), "{said}");
}
