//! Checkpoints in a folder that is seen from here: finding whole ones, checking files, clearing away.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use falaj_base::hex;
use serde::Deserialize;

use super::report::check_files;
use super::store::Part;

/// Folders that are looked at, and bytes of one file that says what a rank saved.
const MOST_FOLDERS: usize = 1000;
const MOST_BYTES: u64 = 1 << 20;

/// What a rank writes as `rank-<n>.json`, once everything else of it is on disk.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finished {
    step: i64,
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// Checkpoints below a folder that every one of `world` ranks has finished: step and parts.
pub(super) fn whole_ones(folder: &Path, world: u32) -> Vec<(i64, BTreeMap<u32, Part>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    let mut found: Vec<_> =
        folders.take(MOST_FOLDERS).filter_map(|path| whole(&path, world)).collect();
    found.sort_by_key(|(step, _)| *step);
    found
}

fn whole(folder: &Path, world: u32) -> Option<(i64, BTreeMap<u32, Part>)> {
    let mut step = None;
    let mut parts = BTreeMap::new();
    for rank in 0..world {
        let finished = finished(&folder.join(format!("rank-{rank}.json")))?;
        if finished.step < 0 || *step.get_or_insert(finished.step) != finished.step {
            return None;
        }
        check_files(&finished.files).ok()?;
        let path = folder.to_string_lossy().into_owned();
        parts.insert(rank, Part { path, files: finished.files });
    }
    Some((step?, parts))
}

fn finished(path: &Path) -> Option<Finished> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Why a checkpoint cannot be gone on from, if that is so.
pub(super) fn broken(manifest: &BTreeMap<u32, Part>) -> Option<String> {
    manifest.values().find_map(|part| {
        let folder = Path::new(&part.path);
        if !folder.exists() {
            return Some(format!("{} is not there", part.path));
        }
        part.files.iter().find_map(|(name, expected)| match digest(&folder.join(name)) {
            Ok(found) if found == *expected => None,
            Ok(_) => Some(format!("{name} is not what was saved")),
            Err(error) => Some(format!("{name} cannot be read: {error}")),
        })
    })
}

fn digest(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hex(context.finish().as_ref()));
        }
        context.update(&buffer[..count]);
    }
}

/// Removes something below `root`, and nothing elsewhere.
pub(super) fn remove(root: &Path, path: &str) {
    let Some(path) = inside(root, path) else { return };
    let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    if let Err(error) = removed
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a checkpoint was not removed");
    }
}

/// The path, if it is below the root and leads nowhere else.
fn inside(root: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let below = path.strip_prefix(root).ok()?;
    let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    let real = path.canonicalize().ok()?.starts_with(root.canonicalize().ok()?);
    (plain && real && below.components().next().is_some()).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(folder: &Path, rank: u32, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(format!("rank-{rank}.json")), text).unwrap();
    }

    #[test]
    fn a_checkpoint_counts_when_every_rank_finished_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        rank(&at("a"), 0, r#"{"step": 10}"#);
        rank(&at("a"), 1, r#"{"step": 10}"#);
        rank(&at("half"), 0, r#"{"step": 20}"#);
        rank(&at("torn"), 0, r#"{"step": 30}"#);
        rank(&at("torn"), 1, r#"{"step": 30, "fi"#);
        rank(&at("mixed"), 0, r#"{"step": 40}"#);
        rank(&at("mixed"), 1, r#"{"step": 41}"#);
        rank(&at("outside"), 0, r#"{"step": 50, "files": {"../x": "00"}}"#);
        rank(&at("outside"), 1, r#"{"step": 50}"#);
        fs::write(at("file"), "x").unwrap();
        let found = whole_ones(folder.path(), 2);
        assert_eq!(found.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [10]);
        assert_eq!(found[0].1[&1].path, at("a").to_string_lossy());
        assert_eq!(whole_ones(folder.path(), 1).len(), 4);
    }

    #[test]
    fn files_must_be_what_they_were() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("model.pt"), "weights").unwrap();
        let path = folder.path().to_string_lossy().into_owned();
        let part = |digest: &str| {
            let files = BTreeMap::from([("model.pt".to_owned(), digest.to_owned())]);
            BTreeMap::from([(0, Part { path: path.clone(), files })])
        };
        let good = digest(&folder.path().join("model.pt")).unwrap();
        assert_eq!(broken(&part(&good)), None);
        assert_eq!(broken(&part(&"0".repeat(64))).unwrap(), "model.pt is not what was saved");
        let gone = Part { path: format!("{path}/gone"), files: BTreeMap::new() };
        assert!(broken(&BTreeMap::from([(0, gone)])).unwrap().ends_with("is not there"));
    }

    #[test]
    fn nothing_is_removed_but_what_lies_below() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for name in ["root/a", "beside"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        remove(&root, &text(&folder.path().join("beside")));
        remove(&root, &format!("{}/../beside", text(&root)));
        remove(&root, &text(&root));
        assert!(folder.path().join("beside").exists() && root.join("a").exists());
        remove(&root, &text(&root.join("a")));
        assert!(!root.join("a").exists() && root.exists());
    }
}
