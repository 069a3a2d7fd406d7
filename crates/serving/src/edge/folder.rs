//! The models of a folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use falaj_base::{Error, Name, Result};
use falaj_inference::Limits;
use falaj_inference::onnx::{external_files, gather};

/// What a model's file is called.
const USUAL: &str = "model.onnx";

/// A model that lies there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub name: Name,
    pub version: u64,
    pub file: PathBuf,
}

/// The models of a folder, by name and version.
pub(super) fn look(folder: &Path, name: Option<Name>) -> Result<Vec<Found>> {
    if let Some(file) = model_in(folder)? {
        let name = name.map_or_else(|| name_of(folder), Ok)?;
        return Ok(vec![Found { name, version: 1, file }]);
    }
    let mut found = Vec::new();
    for model in folders(folder)? {
        let name = name_of(&model)?;
        if let Some(file) = model_in(&model)? {
            found.push(Found { name, version: 1, file });
            continue;
        }
        for below in folders(&model)? {
            let Some(version) = version_of(&below) else { continue };
            if let Some(file) = model_in(&below)? {
                found.push(Found { name: name.clone(), version, file });
            }
        }
    }
    if found.is_empty() {
        let allowed = format!("a folder with {USUAL}, NAME/{USUAL} or NAME/VERSION/{USUAL}");
        return Err(Error::invalid("models", folder.display(), allowed));
    }
    found.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
    Ok(found)
}

/// The model as one file, with what lies in the files beside it.
pub(super) fn read(file: &Path, limits: &Limits) -> Result<Bytes> {
    let model = read_file(file, limits.file_bytes as u64)?;
    let beside = file.parent().unwrap_or(Path::new("."));
    let mut files = HashMap::new();
    let mut left = (limits.file_bytes as u64).saturating_sub(model.len() as u64);
    for name in external_files(&model, limits)? {
        let content = read_file(&beside.join(&name), left)?;
        left -= content.len() as u64;
        files.insert(name, content);
    }
    if files.is_empty() { Ok(model) } else { gather(&model, &files, limits) }
}

/// A file that lies beside a model; none if there is none or it is larger than this.
pub(super) fn small(model: &Path, name: &str, most: u64) -> Option<Bytes> {
    read_file(&model.parent()?.join(name), most).ok()
}

fn read_file(file: &Path, most: u64) -> Result<Bytes> {
    let unread = |error: std::io::Error| {
        Error::invalid("models", file.display(), "files that can be read").caused_by(error)
    };
    let size = std::fs::metadata(file).map_err(unread)?.len();
    if size > most {
        let allowed = format!("at most {most} bytes for a model and the files beside it");
        return Err(Error::invalid(
            "models",
            format!("{} ({size} bytes)", file.display()),
            allowed,
        ));
    }
    std::fs::read(file).map(Bytes::from).map_err(unread)
}

/// The model in a folder: the usual name, or the only one that ends like it.
fn model_in(folder: &Path) -> Result<Option<PathBuf>> {
    let usual = folder.join(USUAL);
    if usual.is_file() {
        return Ok(Some(usual));
    }
    let ends = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "onnx");
    let mut models = entries(folder)?.into_iter().filter(|path| path.is_file() && ends(path));
    match (models.next(), models.next()) {
        (Some(one), None) => Ok(Some(one)),
        (Some(one), Some(other)) => {
            let both = format!("{} and {}", one.display(), other.display());
            Err(Error::invalid("models", both, format!("one model in a folder, or {USUAL}")))
        }
        (None, _) => Ok(None),
    }
}

fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|path| path.is_dir()).collect())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let unread = |error: std::io::Error| {
        Error::invalid("models", folder.display(), "a folder that can be read").caused_by(error)
    };
    let listing = std::fs::read_dir(folder).map_err(unread)?;
    let mut paths = listing
        .map(|entry| entry.map(|entry| entry.path()).map_err(unread))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn name_of(folder: &Path) -> Result<Name> {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    Name::new(whole.file_name().unwrap_or_default().to_string_lossy())
}

fn version_of(folder: &Path) -> Option<u64> {
    folder.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        root
    }

    fn found(files: &[&str], at: &str) -> Vec<(String, u64, String)> {
        let root = tree(files);
        let found = look(&root.path().join(at), None).unwrap();
        let below = |path: &Path| path.strip_prefix(root.path()).unwrap().display().to_string();
        found.iter().map(|f| (f.name.to_string(), f.version, below(&f.file))).collect()
    }

    #[test]
    fn models_lie_in_three_ways() {
        let one = |name: &str, version, file: &str| (name.to_owned(), version, file.to_owned());
        assert_eq!(found(&["iris/model.onnx"], "iris"), [one("iris", 1, "iris/model.onnx")]);
        assert_eq!(
            found(&["iris/net.onnx", "iris/MLmodel"], "iris"),
            [one("iris", 1, "iris/net.onnx")]
        );
        assert_eq!(
            found(&["a/model.onnx", "b/2/model.onnx", "b/10/model.onnx", "b/notes/x", "c/x"], "."),
            [
                one("a", 1, "a/model.onnx"),
                one("b", 2, "b/2/model.onnx"),
                one("b", 10, "b/10/model.onnx")
            ]
        );
    }

    #[test]
    fn what_is_unclear_is_refused() {
        for (files, says) in [
            (&["a/x.onnx", "a/y.onnx"][..], "one model in a folder"),
            (&["a/readme"][..], "NAME/VERSION"),
            (&["Bad Name/model.onnx"][..], "name"),
        ] {
            let root = tree(files);
            let error = look(root.path(), None).unwrap_err();
            assert!(error.message().contains(says), "{error}");
        }
        assert!(look(Path::new("/nowhere"), None).is_err());
    }
}
