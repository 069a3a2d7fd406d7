//! What a signature vouches for, and everything it must refuse. Exchange with the stock tool is in
//! `tests/signing.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn file(path: &str, content: &str) -> (String, String, u64) {
    (path.into(), Sha256::of(content.as_bytes()).to_string(), content.len() as u64)
}

fn manifest(files: &[(&str, &str)]) -> Manifest {
    Manifest::new(files.iter().map(|(path, content)| file(path, content)).collect()).unwrap()
}

fn sample() -> Manifest {
    manifest(&[("MLmodel", "flavors: {}"), ("sub/w.bin", "weights"), ("sub-a.txt", "text")])
}

/// A bundle whose statement was changed before signing, as another signer might write it.
fn signed_as(change: impl Fn(&mut Value), key: &SigningKey) -> String {
    let bundle = sign(&sample(), key, "sample").unwrap();
    let mut wire: Value = serde_json::from_str(bundle.json()).unwrap();
    let payload = STANDARD.decode(wire["dsseEnvelope"]["payload"].as_str().unwrap()).unwrap();
    let mut statement: Value = serde_json::from_slice(&payload).unwrap();
    change(&mut statement);
    let payload = serde_json::to_vec(&statement).unwrap();
    let header = format!("DSSEv1 28 application/vnd.in-toto+json {} ", payload.len());
    let signature = key.sign(&[header.as_bytes(), &payload].concat()).unwrap();
    wire["dsseEnvelope"]["payload"] = STANDARD.encode(payload).into();
    wire["dsseEnvelope"]["signatures"][0]["sig"] = STANDARD.encode(signature).into();
    wire.to_string()
}

#[test]
fn a_model_verifies_with_its_own_signature() {
    let key = SigningKey::generate().unwrap();
    let bundle = sign(&sample(), &key, "sample").unwrap();
    let verified = verify(&sample(), bundle.json(), key.public_key()).unwrap();
    assert_eq!(verified, Verified { name: "sample".into(), unsigned: vec![] });
}

#[test]
fn the_first_file_that_parts_is_named() {
    let key = SigningKey::generate().unwrap();
    let bundle = sign(&sample(), &key, "sample").unwrap();
    let check = |files: &[(&str, &str)], wanted: Refusal| {
        let found = verify(&manifest(files), bundle.json(), key.public_key()).unwrap_err();
        assert_eq!(found, wanted);
    };
    let (a, b, c) = (("MLmodel", "flavors: {}"), ("sub/w.bin", "weights"), ("sub-a.txt", "text"));
    let path = |path: &str| path.to_owned();
    check(&[a, ("sub/w.bin", "Weights"), c], Refusal::Differs { path: path("sub/w.bin") });
    check(&[a, c], Refusal::Missing { path: path("sub/w.bin") });
    check(&[a, b], Refusal::Missing { path: path("sub-a.txt") });
    check(&[], Refusal::Missing { path: path("MLmodel") });
    check(&[a, b, c, ("z.py", "")], Refusal::Extra { path: path("z.py") });
    check(&[a, ("a.py", ""), b, c], Refusal::Extra { path: path("a.py") });
    // Two differences: the first in path order is the one reported.
    check(&[a, ("b.py", ""), c], Refusal::Extra { path: path("b.py") });
    // A case of a letter is a difference of names.
    check(&[("mlmodel", "flavors: {}"), b, c], Refusal::Missing { path: path("MLmodel") });
}

#[test]
fn files_of_git_are_excluded_and_said_to_be() {
    let key = SigningKey::generate().unwrap();
    let with_git = |text: &str| {
        manifest(&[(".gitattributes", text), (".github/ci.yml", ""), ("model.onnx", "m")])
    };
    let bundle = sign(&with_git("one"), &key, "m").unwrap();
    let verified = verify(&with_git("two"), bundle.json(), key.public_key()).unwrap();
    assert_eq!(verified.unsigned, [".gitattributes", ".github/ci.yml"]);
    // Only at the top, and only these names.
    let hidden = manifest(&[("model.onnx", "m"), ("sub/.gitignore", ""), (".gitx", "")]);
    let refusal = verify(&hidden, bundle.json(), key.public_key()).unwrap_err();
    assert_eq!(refusal, Refusal::Extra { path: ".gitx".into() });
}

#[test]
fn a_changed_bundle_is_refused() {
    let key = SigningKey::generate().unwrap();
    let good: Value =
        serde_json::from_str(sign(&sample(), &key, "sample").unwrap().json()).unwrap();
    let check = |change: &dyn Fn(&mut Value), wanted: &str| {
        let mut bundle = good.clone();
        change(&mut bundle);
        let refusal =
            verify(&sample(), &bundle.to_string(), key.public_key()).unwrap_err().to_string();
        assert!(refusal.contains(wanted), "{refusal:?} does not say {wanted:?}");
    };
    let payload = || STANDARD.encode("{}");
    check(&|b| b["dsseEnvelope"]["payload"] = payload().into(), "does not fit");
    check(&|b| b["dsseEnvelope"]["payload"] = "%".into(), "payload is not base64");
    check(&|b| b["dsseEnvelope"]["signatures"][0]["sig"] = "AAAA".into(), "does not fit");
    check(&|b| b["dsseEnvelope"]["signatures"] = json!([]), "0 signatures");
    check(&|b| b["dsseEnvelope"]["payloadType"] = "text/plain".into(), "the payload type");
    check(&|b| b["mediaType"] = "application/json".into(), "the media type");
    check(&|b| b["verificationMaterial"] = json!({"certificate": {}}), "a certificate");
    check(&|b| b["verificationMaterial"]["publicKey"]["hint"] = "00".into(), "another key");
    check(&|b| *b = json!([]), "not a model signature");
    check(&|b| *b = Value::Null, "not a model signature");
}

#[test]
fn another_key_does_not_verify_with_or_without_its_name() {
    let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
    let bundle = sign(&sample(), &key, "sample").unwrap();
    let refusal = verify(&sample(), bundle.json(), other.public_key()).unwrap_err();
    assert_eq!(refusal, Refusal::OtherKey);
    let mut unnamed: Value = serde_json::from_str(bundle.json()).unwrap();
    unnamed["verificationMaterial"]["publicKey"] = json!({});
    let unnamed = unnamed.to_string();
    assert_eq!(verify(&sample(), &unnamed, other.public_key()).unwrap_err(), Refusal::BadSignature);
    verify(&sample(), &unnamed, key.public_key()).unwrap();
}

#[test]
fn a_signed_statement_is_read_strictly() {
    let key = SigningKey::generate().unwrap();
    let check = |change: &dyn Fn(&mut Value), wanted: &str| {
        let bundle = signed_as(change, &key);
        let refusal = verify(&sample(), &bundle, key.public_key()).unwrap_err().to_string();
        assert!(refusal.contains(wanted), "{refusal:?} does not say {wanted:?}");
    };
    let first = |s: &mut Value, field: &str, value: &str| {
        s["predicate"]["resources"][0][field] = value.into();
    };
    check(&|s| s["_type"] = "x".into(), "the statement type");
    check(&|s| s["predicateType"] = "https://slsa.dev/provenance/v1".into(), "predicate type");
    check(&|s| s["predicate"]["serialization"]["method"] = "shards".into(), "\"shards\"");
    check(&|s| s["predicate"]["serialization"]["hash_type"] = "blake3".into(), "\"blake3\"");
    check(&|s| s["subject"] = json!([]), "0 subjects");
    check(&|s| s["subject"][0]["digest"]["sha256"] = "0".repeat(64).into(), "own list");
    check(&|s| first(s, "algorithm", "blake2"), "a file's hash");
    check(&|s| first(s, "digest", "zz"), "not a SHA-256");
    for hostile in ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "C:x", "a\\b", "a\nb"] {
        check(&|s| first(s, "name", hostile), "it names the file");
    }
    // Nothing signed and everything excluded would vouch for anything.
    let empty = Sha256::of(b"").to_string();
    check(
        &|s| {
            s["subject"][0]["digest"]["sha256"] = empty.clone().into();
            s["predicate"]["resources"] = json!([]);
            s["predicate"]["serialization"]["ignore_paths"] = json!(["."]);
        },
        "covers no file",
    );
}

#[test]
fn a_signer_may_exclude_paths_but_not_everything() {
    let key = SigningKey::generate().unwrap();
    let ignoring = |paths: Value| {
        signed_as(|s| s["predicate"]["serialization"]["ignore_paths"] = paths.clone(), &key)
    };
    let mut files: Vec<_> = [("MLmodel", "flavors: {}"), ("sub/w.bin", "weights")].into();
    files.extend([("sub-a.txt", "text"), ("model.sig", "{}"), ("logs/a/b", "")]);
    let model = manifest(&files);
    let verified =
        verify(&model, &ignoring(json!(["model.sig", "logs"])), key.public_key()).unwrap();
    assert_eq!(verified.unsigned, ["logs/a/b", "model.sig"]);
    for everything in [json!(["."]), json!([""]), json!(["/"]), json!(["./"]), json!([".."])] {
        verify(&model, &ignoring(everything), key.public_key()).unwrap_err();
    }
}

#[test]
fn a_field_given_twice_is_refused() {
    let key = SigningKey::generate().unwrap();
    let bundle = sign(&sample(), &key, "sample").unwrap();
    let twice = bundle.json().replacen("{\"mediaType\"", "{\"mediaType\":\"x\",\"mediaType\"", 1);
    assert!(matches!(
        verify(&sample(), &twice, key.public_key()),
        Err(Refusal::Malformed(why)) if why.contains("duplicate")
    ));
}

#[test]
fn manifests_refuse_what_a_disk_could_not_hold() {
    for path in ["", ".", "..", "/a", "a/", "a//b", "a/./b", "../a", "C:\\x", "a\0", "a\u{85}b"] {
        let error = Manifest::new(vec![file(path, "")]).unwrap_err();
        assert_eq!(error.field(), Some("path"), "{path:?}");
    }
    assert!(Manifest::new(vec![file(&"a/".repeat(600), "")]).is_err());
    assert!(Manifest::new(vec![file("a", ""), file("a", "")]).is_err());
    assert!(Manifest::new(vec![file("a/b", ""), file("a-b", ""), file("a", "")]).is_err());
    assert!(Manifest::new(vec![("a".into(), "abc".into(), 0)]).is_err());
    assert!(Manifest::new(vec![file("ünïcode é.txt", ""), file("a b", "")]).is_ok());
}

#[test]
fn nothing_to_sign_is_refused() {
    let key = SigningKey::generate().unwrap();
    assert!(sign(&manifest(&[]), &key, "m").is_err());
    assert!(sign(&manifest(&[(".gitignore", "")]), &key, "m").is_err());
    assert!(sign(&sample(), &key, "").is_err());
}

#[test]
fn keys_travel_as_pkcs8_and_pem_and_are_not_shown() {
    let key = SigningKey::generate().unwrap();
    let pkcs8 = key.to_pkcs8().unwrap();
    assert_eq!(format!("{pkcs8:?}"), "(hidden)");
    let same = SigningKey::from_pkcs8(pkcs8.expose()).unwrap();
    assert_eq!(same.public_key().pem(), key.public_key().pem());
    assert_eq!(format!("{key:?}"), format!("{same:?}"));
    let public = PublicKey::from_pem(key.public_key().pem()).unwrap();
    assert_eq!(public.id(), key.public_key().id());
    // The same key on one line, with Windows line ends around it, is the same key.
    let body: String = public.pem().lines().filter(|line| !line.starts_with('-')).collect();
    let loose = format!("-----BEGIN PUBLIC KEY-----\r\n{body}\r\n-----END PUBLIC KEY-----\r\n");
    assert_eq!(PublicKey::from_pem(&loose).unwrap().pem(), public.pem());

    assert!(SigningKey::from_pkcs8(b"not a key").is_err());
    let off_curve =
        STANDARD.encode([STANDARD.decode(&body).unwrap()[..90].to_vec(), vec![0]].concat());
    for bad in ["", "-----BEGIN PUBLIC KEY----------END PUBLIC KEY-----", off_curve.as_str()] {
        assert!(PublicKey::from_pem(bad).is_err());
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{bad}\n-----END PUBLIC KEY-----");
        assert!(PublicKey::from_pem(&pem).is_err());
    }
}

proptest! {
    #[test]
    fn any_text_is_a_refusal_and_not_a_panic(text in ".{0,300}") {
        let key = SigningKey::generate().unwrap();
        prop_assert!(verify(&sample(), &text, key.public_key()).is_err());
    }

    #[test]
    fn any_change_of_one_byte_of_the_envelope_is_noticed(at in 0_usize..200, bit in 0_u8..6) {
        let key = SigningKey::generate().unwrap();
        let bundle = sign(&sample(), &key, "sample").unwrap();
        let mut wire: Value = serde_json::from_str(bundle.json()).unwrap();
        let mut payload =
            STANDARD.decode(wire["dsseEnvelope"]["payload"].as_str().unwrap()).unwrap();
        payload[at] ^= 1 << bit;
        wire["dsseEnvelope"]["payload"] = STANDARD.encode(payload).into();
        prop_assert_eq!(
            verify(&sample(), &wire.to_string(), key.public_key()).unwrap_err(),
            Refusal::BadSignature
        );
    }
}
