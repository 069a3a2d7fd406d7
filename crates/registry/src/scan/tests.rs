//! Real bytes of every format, under honest and dishonest names. `tests/scan/make_fixtures.py` made
//! the bytes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::Class::{Code, OpaqueExecutable as Opaque, Safe, Unknown};
use super::*;

/// The most that looking at one file may read beyond its head.
const MOST_BYTES: u64 = (4 << 20) + 64 * 1024 * 1024;

fn fixtures() -> BTreeMap<String, Vec<u8>> {
    let encoded: BTreeMap<String, String> =
        serde_json::from_str(include_str!("../../tests/scan/fixtures.json")).unwrap();
    encoded.into_iter().map(|(name, text)| (name, STANDARD.decode(text).unwrap())).collect()
}

/// Examines a file that lies in memory, and checks that every range asked for is inside it.
fn look(path: &str, content: &[u8]) -> Finding {
    let size = content.len() as u64;
    let head = &content[..content.len().min(HEAD_BYTES)];
    let mut total = 0;
    let read = |range: Range<u64>| {
        assert!(range.start <= range.end && range.end <= size, "{path}: {range:?} of {size}");
        total += range.end - range.start;
        assert!(total <= MOST_BYTES);
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        std::future::ready(Ok(Bytes::copy_from_slice(&content[range])))
    };
    let looking = examine(Probe { path, size, head }, read);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(looking).unwrap()
}

fn check(path: &str, content: &[u8], wanted: Class, why: &str) {
    let found = look(path, content);
    assert_eq!(found.class, wanted, "{path}: {}", found.reason);
    assert!(found.reason.contains(why), "{path}: {:?} does not say {why:?}", found.reason);
}

#[test]
fn every_pickle_is_known_by_its_content() {
    let mut seen = 0;
    let files = fixtures();
    for (_, content) in files.iter().filter(|(name, _)| name.starts_with("pickle-")) {
        for path in ["weights.bin", "labels.txt", "config.json", "model.safetensors", "noname"] {
            check(path, content, Opaque, "a pickle");
        }
        seen += 1;
    }
    assert_eq!(seen, 6 * 8);
    for name in ["cloudpickle", "joblib", "torch-legacy"] {
        check("model.bin", &files[name], Opaque, "a pickle");
    }
}

#[test]
fn a_pickle_cut_anywhere_is_never_safe() {
    for (name, content) in fixtures().iter().filter(|(name, _)| name.starts_with("pickle-")) {
        for end in 1..content.len().min(300) {
            // The first bytes of some are plain text; only a name for text makes that safe.
            let found = look("weights.bin", &content[..end]);
            assert_ne!(found.class, Safe, "{name} to {end}: {}", found.reason);
        }
    }
}

#[test]
fn hidden_starts_of_pickles_are_found() {
    let shell = b"cos\nsystem\n(S'id'\ntR.";
    check("labels.txt", shell, Opaque, "runs code");
    // What comes after the call does not matter: it has happened.
    check(
        "labels.txt",
        &[shell.as_slice(), b"\nlabels\nof things\n"].concat(),
        Opaque,
        "runs code",
    );
    check("labels.txt", &[b"N0I1\n0".as_slice(), shell].concat(), Opaque, "runs code");
    check("a.csv", &[b"Vcolumn,other\n0".as_slice(), shell].concat(), Opaque, "runs code");
    check("a.txt", b"(S'id'\nios\nsystem\n.", Opaque, "runs code");
    check("a.txt", b"(cos\nsystem\nS'id'\no.", Opaque, "runs code");
    check("a.txt", &[b"Vx\n0".repeat(2000).as_slice(), shell].concat(), Opaque, "as far as");
    check("a.txt", b"cos\nenviron\nS'PATH'\nS'/evil'\nsand more text", Opaque, "runs code");
    check("a.txt", b"csys\npath\nS'/evil'\naand more text", Opaque, "runs code");
    check("a.txt", b"(S'id'\nios\nsystem!", Opaque, "runs code");
    // A finished harmless pickle before the one that calls.
    check("a.txt", &[b"I1\n.".as_slice(), shell].concat(), Opaque, "runs code");
}

#[test]
fn lists_of_words_are_not_pickles() {
    for text in [
        "cat\ndog\nbird\n",
        "class\nfoo\nbar\n",
        "cat\ndog\ncow\nhorse\nape\n",
        "cat\ndog\ncow\nhorse\nbird\n",
        "Plan\nParis\nRome\n",
        "Vienna\nVenice\nVilnius\n",
        "(in brackets)\n",
        "I\nLive\nFor\nThis\n",
        "]\n",
        "}\n",
        "0\n1\n2\n",
        "Name,Price\nN,1\n",
        "N\n",
        "Just text.",
        "c",
        "tree\nversion=v4\n",
    ] {
        check("labels.txt", text.as_bytes(), Safe, "");
    }
}

#[test]
fn what_is_inside_decides() {
    let files = fixtures();
    for (name, path, class, why) in [
        ("torch", "weights.bin", Opaque, "PyTorch"),
        ("torch", "model.safetensors", Opaque, "PyTorch"),
        ("torch-prefixed", "weights.bin", Opaque, "PyTorch"),
        ("torch-comment", "weights.bin", Opaque, "PyTorch"),
        ("torchscript", "weights.bin", Opaque, "TorchScript"),
        ("keras", "m.zip", Opaque, "model.weights.h5"),
        ("hdf5", "weights.bin", Opaque, "HDF5"),
        ("hdf5-userblock", "weights.bin", Opaque, "HDF5"),
        ("npy", "a.npy", Safe, "plain values"),
        ("npy-structured", "a.npy", Safe, "plain values"),
        ("npy-object", "a.npy", Opaque, "Python objects"),
        ("npy-object", "a.txt", Opaque, "Python objects"),
        ("npy-structured-object", "a.npy", Opaque, "Python objects"),
        ("npy-wide", "a.npy", Safe, "plain values"),
        ("npy-wide-object", "a.npy", Opaque, "Python objects"),
        ("npz", "a.npz", Safe, "plain values"),
        ("npz-object", "a.npz", Opaque, "\"b.npy\""),
        ("npz-compressed", "a.npz", Unknown, "compressed"),
        ("skops", "model.skops", Safe, "skops"),
        ("onnx", "model.onnx", Safe, "ONNX"),
        ("onnx", "model", Safe, "ONNX"),
        ("onnx-long", "model.onnx", Safe, "ONNX"),
        ("safetensors", "model.safetensors", Safe, "safetensors"),
        ("safetensors-long", "model.safetensors", Safe, "safetensors"),
        ("parquet", "data", Safe, "Parquet"),
        ("feather", "data", Safe, "Arrow"),
        ("png", "plot.png", Safe, "PNG"),
        ("jpeg", "plot.jpg", Safe, "JPEG"),
        ("wheel", "x.zip", Code, "__init__.py"),
        ("zip", "x.zip", Unknown, "archive of 2 files"),
        ("zip-empty", "x.zip", Unknown, "archive of 0 files"),
        ("zip-damaged", "x.zip", Unknown, "without a readable directory"),
        ("elf", "weights.bin", Code, "ELF"),
        ("elf", "model.onnx", Code, "ELF"),
        ("joblib-gzip", "x", Unknown, "gzip"),
    ] {
        check(path, &files[name], class, why);
    }
}

#[test]
fn a_name_that_loaders_unpickle_counts_whatever_is_inside() {
    let files = fixtures();
    for (path, content) in [
        ("model.pkl", files["png"].as_slice()),
        ("model.pkl", b""),
        ("MODEL.PKL", b"text"),
        ("model.pkl.", b"text"),
        ("model.pkl ", b"text"),
        ("model.pkl\u{200b}", b"text"),
        ("model.p\u{202e}kl", b"text"),
        ("model.pkl\0", b"text"),
        ("model.pkl::$DATA", b"text"),
        ("a\\b\\model.pkl", b"text"),
        ("../../model.pkl", b"text"),
        ("model.pkl/", b"text"),
        (".pkl", b"text"),
        ("model.pkl.gz", files["joblib-gzip"].as_slice()),
        ("model.pkl.gz.bak.xz", b"text"),
        ("model.joblib", files["joblib-zlib"].as_slice()),
        ("model.joblib", files["joblib-lzma"].as_slice()),
        ("model.dill", b"\0\0"),
        ("model.pt", files["safetensors"].as_slice()),
        ("model.pth", b"x"),
        ("weights.h5", b"x"),
        ("m.keras", b"x"),
        ("saved_model.pb", files["saved-model"].as_slice()),
        ("x.RData", b"x"),
    ] {
        check(path, content, Opaque, "named");
    }
    // A pickle's suffix in the middle says nothing about what follows it.
    check("model.pkl.json", b"{}", Safe, "JSON");
    check("model.pkl/config.json", b"{}", Safe, "JSON");
}

#[test]
fn code_is_code() {
    for path in ["code/model.py", "x.ipynb", "lib.so", "a.DLL", "run.sh", "a.whl", "Dockerfile"] {
        check(path, b"", Code, "named");
    }
    check("run", b"#!/bin/sh\nid\n", Code, "#!");
    check("readme.txt", b"#!/usr/bin/env python\n", Code, "#!");
    check("plot.html", b"<script>", Code, "named");
}

#[test]
fn text_is_safe_only_if_it_is_what_it_says() {
    check("MLmodel", b"flavors:\n  sklearn: {}\n", Safe, "YAML");
    check("m/MLmodel", b"a: !!python/object/apply:os.system [id]\n", Opaque, "!!python/");
    let late = [b"# padding\n".repeat(1000).as_slice(), b"a: !!python/name:os.system\n"].concat();
    check("conda.yaml", &late, Opaque, "!!python/");
    check("big.yaml", &b"# x\n".repeat(300_000), Unknown, "too long");
    check("config.json", b"{\"a\": [1, 2]}", Safe, "JSON");
    check("config.json", b"{\"a\": ", Unknown, "not JSON");
    check("config.json", b"\x00\x01\x02", Unknown, "not");
    check("long.json", format!("[{}1]", "1,".repeat(5000)).as_bytes(), Safe, "JSON");
    check("long.json", "word ".repeat(5000).as_bytes(), Unknown, "not JSON");
    check("a.jsonl", b"{}\n{}\n", Safe, "line by line");
    check("a.jsonl", b"{}\nnot\n", Unknown, "not JSON");
    check("README.md", "# Überschrift\n".as_bytes(), Safe, "text");
    // A character torn by the end of the head is not damage.
    let torn = format!("{}é rest", "a".repeat(HEAD_BYTES - 1));
    check("a.txt", torn.as_bytes(), Safe, "text");
    check("a.txt", b"a\xffb", Unknown, "not");
    check("a.txt", b"a\x1b[2Jb", Unknown, "not");
    check("noname", b"plain words", Unknown, "text");
    check("noname", b"\x00\x01", Unknown, "neither");
    check("_SUCCESS", b"", Safe, "empty");
    check("model.onnx", b"\x08\x0a not really", Unknown, "neither");
}

#[test]
fn the_worst_file_gives_the_verdict() {
    let find = |path: &str| look(path, b"{}");
    let verdict = |paths: &[&str]| Report::new(paths.iter().map(|p| find(p)).collect()).verdict;
    assert_eq!(verdict(&[]), Verdict::Safe);
    assert_eq!(verdict(&["a.json"]), Verdict::Safe);
    assert_eq!(verdict(&["a.json", "b.weird"]), Verdict::Unrecognised);
    assert_eq!(verdict(&["a.json", "b.weird", "c.py"]), Verdict::ContainsCode);
    assert_eq!(verdict(&["a.json", "b.weird", "c.py", "d.pkl"]), Verdict::UnsafeFormat);
    let json = serde_json::to_value(Report::new(vec![find("d.pkl")])).unwrap();
    assert_eq!(json["verdict"], "unsafe-format");
    assert_eq!(json["files"][0]["class"], "opaque-executable");
}

/// Starts of the formats that are looked into, so that random bytes get past the first check.
fn starts() -> impl Strategy<Value = Vec<u8>> {
    let files = fixtures();
    let whole: Vec<Vec<u8>> = files.into_values().filter(|bytes| bytes.len() < 3000).collect();
    prop::sample::select(whole)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_files_never_panic_or_read_outside(
        mut content in starts(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
        path in "[a-z./\\\\ ]{0,12}(npy|json|yaml|txt|)",
    ) {
        for (at, byte) in damage {
            let at = at.index(content.len().max(1));
            if let Some(place) = content.get_mut(at) {
                *place = byte;
            }
        }
        if is_cut {
            content.truncate(cut.index(content.len() + 1));
        }
        look(&path, &content);
    }

    #[test]
    fn random_bytes_never_panic(content in prop::collection::vec(any::<u8>(), 0..200), path in ".{0,20}") {
        look(&path, &content);
    }
}
