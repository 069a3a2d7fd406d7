//! `falaj engine` with the real library of ONNX Runtime, packed as its Python package packs it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use falaj_inference::runtime::Search;

use crate::place::Place;

/// A package with one library, as its index hands it out but for the compression.
fn package(library: &Path, to: &Path) {
    let content = std::fs::read(library).unwrap();
    let name = library.file_name().unwrap().to_string_lossy();
    let name = format!("onnxruntime/capi/{name}");
    let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &content);
    let record = format!("{name},sha256={},{}\n", URL_SAFE_NO_PAD.encode(sum), content.len());
    let files =
        [(name.as_str(), &content[..]), ("onnxruntime-1.31.1.dist-info/RECORD", record.as_bytes())];
    let (mut all, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let at = u32::try_from(all.len()).unwrap().to_le_bytes();
        let size = u32::try_from(content.len()).unwrap().to_le_bytes();
        let length = u16::try_from(name.len()).unwrap().to_le_bytes();
        let facts = [&[20, 0][..], &[0; 12], &size, &size, &length].concat();
        all.extend([b"PK\x03\x04", &facts[..], &[0; 2], name.as_bytes(), content].concat());
        directory
            .extend([b"PK\x01\x02", &[20, 0][..], &facts, &[0; 12], &at, name.as_bytes()].concat());
    }
    let start = u32::try_from(all.len()).unwrap().to_le_bytes();
    let length = u32::try_from(directory.len()).unwrap().to_le_bytes();
    all.extend(directory);
    all.extend([b"PK\x05\x06", &[0; 4][..], &[2, 0, 2, 0], &length, &start, &[0; 2]].concat());
    std::fs::write(to, all).unwrap();
}

#[test]
fn a_package_is_installed_and_its_library_found() {
    let search = Search::of_tests();
    let Some(library) = search.first().unwrap() else {
        assert!(search.environments.is_empty(), "scripts/setup test installs ONNX Runtime");
        println!("skipped: FALAJ_TEST_PYTHON is not set");
        return;
    };
    let place = Place::new();
    let (wheel, data) = (place.path("onnxruntime.whl"), place.path("data"));
    package(&library, &wheel);
    let (wheel, data) = (wheel.to_str().unwrap(), data.to_str().unwrap());
    let json = |arguments: &[&str]| {
        let common = ["--data-dir", data, "--output", "json"];
        place.run(&[&["engine"], arguments, &common].concat())
    };

    let wrong = "0".repeat(64);
    let run = json(&["install", "--from", wheel, "--sha256", &wrong]);
    assert_eq!(run.code, 8, "{}", run.stderr);
    assert!(run.stderr.contains("has the SHA-256"), "{}", run.stderr);

    let installed = json(&["install", "--from", wheel]).json();
    let path = place.path("data/engine").join(library.file_name().unwrap());
    assert_eq!(installed["library"], path.to_str().unwrap());
    assert_eq!(std::fs::read(&path).unwrap().len(), std::fs::read(&library).unwrap().len());

    let status = json(&["status"]).json();
    let engine = |name: &str| {
        let all = status["engines"].as_array().unwrap();
        all.iter().find(|engine| engine["name"] == name).unwrap().clone()
    };
    assert_eq!(engine("onnxruntime")["library"], path.to_str().unwrap());
    let version = path.file_name().unwrap().to_str().unwrap().replace("libonnxruntime.so.", "");
    assert_eq!(engine("onnxruntime")["version"], version);
    assert_eq!(engine("kernels")["there"], true);
    let looked = status["looked_in"].as_array().unwrap();
    assert!(looked.contains(&format!("{data}/engine").into()), "{looked:?}");

    let again = json(&["install", "--if-missing", "--python", "/nowhere"]).json();
    assert_eq!(again["installed"], false);
}

#[test]
fn a_python_that_is_not_there_is_named_with_the_way_out() {
    let place = Place::new();
    let run = place.run(&["engine", "install", "--data-dir", "data", "--python", "/no/python"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    for part in ["/no/python", "--from"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    // Nothing is left of the attempt.
    let left = std::fs::read_dir(place.path("data/engine")).unwrap();
    assert_eq!(left.count(), 0);
}
