//! Signatures exchanged with the stock `model-signing` tool, in both directions.

use std::fs;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_registry::signing::{Manifest, PublicKey, Refusal, Sha256, SigningKey, sign, verify};

use crate::{folder, python};

/// Names chosen for their order: parts sort differently from whole paths, letters from bytes.
const FILES: [(&str, &str); 7] = [
    ("MLmodel", "flavors: {}\n"),
    ("sub/w.bin", "weights"),
    ("sub/deeper/x", ""),
    ("sub-a.txt", "text"),
    ("ünïcode é.txt", "text"),
    (".hidden", "text"),
    (".gitattributes", "*.bin filter=lfs\n"),
];

fn manifest(files: &[(&str, &str)]) -> Manifest {
    let facts = |(path, content): &(&str, &str)| {
        let digest = Sha256::of(content.as_bytes()).to_string();
        ((*path).to_owned(), digest, content.len() as u64)
    };
    Manifest::new(files.iter().map(facts).collect()).unwrap()
}

fn write(model: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = model.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Runs the tool; `Err` holds what it said.
fn model_signing(python: &str, arguments: &[&str]) -> Result<(), String> {
    let output =
        Command::new(python).args(["-m", "model_signing"]).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned()) }
}

#[test]
fn the_stock_tool_verifies_what_we_sign() {
    let Some(python) = python("model-signing") else { return };
    let folder = folder("stock_verifies");
    let model = folder.join("model");
    write(&model, &FILES);
    let key = SigningKey::generate().unwrap();
    let bundle = sign(&manifest(&FILES), &key, "model").unwrap();
    let public_key = folder.join("key.pub");
    fs::write(&public_key, key.public_key().pem()).unwrap();
    let check = |place: &Path| {
        fs::write(place, bundle.json()).unwrap();
        let [model, place, key] =
            [model.as_path(), place, &public_key].map(|path| path.to_str().unwrap());
        let arguments = ["verify", "key", model, "--signature", place, "--public_key", key];
        model_signing(&python, &arguments)
    };
    let beside = folder.join("beside.sig");
    assert_eq!(check(&beside), Ok(()));
    fs::write(model.join("sub/w.bin"), "Weights").unwrap();
    fs::remove_file(model.join("sub-a.txt")).unwrap();
    fs::write(model.join("extra.py"), "").unwrap();
    let said = check(&beside).unwrap_err();
    for wanted in ["Hash mismatch for 'sub/w.bin'", "Missing files", "Extra files"] {
        assert!(said.contains(wanted), "{said}");
    }
    fs::remove_file(model.join("extra.py")).unwrap();
    write(&model, &FILES);
    // Inside the model as `model.sig`, where people put it.
    assert_eq!(check(&model.join("model.sig")), Ok(()));
}

#[test]
fn we_verify_what_the_stock_tool_signs() {
    let Some(python) = python("model-signing") else { return };
    let folder = folder("stock_signs");
    let model = folder.join("model");
    write(&model, &FILES);
    let key = SigningKey::generate().unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(key.to_pkcs8().unwrap().expose())
    );
    let private_key = folder.join("key.pem");
    fs::write(&private_key, pem).unwrap();
    let place = model.join("model.sig");
    let [model, at, private] = [&model, &place, &private_key].map(|path| path.to_str().unwrap());
    let arguments = ["sign", "key", model, "--signature", at, "--private_key", private];
    assert_eq!(model_signing(&python, &arguments), Ok(()));

    let bundle = fs::read_to_string(&place).unwrap();
    let mut files = FILES.to_vec();
    files.push(("model.sig", &bundle));
    let verified = verify(&manifest(&files), &bundle, key.public_key()).unwrap();
    assert_eq!(verified.name, "model");
    assert_eq!(verified.unsigned, [".gitattributes", "model.sig"]);
    files.push(("extra.py", ""));
    let refusal = verify(&manifest(&files), &bundle, key.public_key()).unwrap_err();
    assert_eq!(refusal, Refusal::Extra { path: "extra.py".into() });
    // The same files give the same total, whoever signs.
    let ours = sign(&manifest(&FILES), &key, "model").unwrap();
    assert_eq!(total(ours.json()), total(&bundle));
}

fn total(bundle: &str) -> String {
    let bundle: serde_json::Value = serde_json::from_str(bundle).unwrap();
    let payload = STANDARD.decode(bundle["dsseEnvelope"]["payload"].as_str().unwrap()).unwrap();
    let statement: serde_json::Value = serde_json::from_slice(&payload).unwrap();
    statement["subject"][0]["digest"]["sha256"].as_str().unwrap().to_owned()
}

/// A signature kept from `model-signing` 1.1.1: what was signed once must verify for ever.
#[test]
fn a_signature_of_the_past_still_verifies() {
    let key = PublicKey::from_pem(include_str!("../signing/stock.pub")).unwrap();
    let bundle = include_str!("../signing/stock.sig");
    let verified = verify(&manifest(&FILES), bundle, &key).unwrap();
    assert_eq!(verified.name, "model");
    let changed: Vec<_> = FILES.iter().map(|(path, _)| (*path, "changed")).collect();
    let refusal = verify(&manifest(&changed), bundle, &key).unwrap_err();
    assert_eq!(refusal, Refusal::Differs { path: ".hidden".into() });
}
