//! Checkpoints in a folder that is seen from here: finding whole ones, checking files, clearing away.
//!
//! Must hold: what lies there is the job's, and may be anything. Only plain files are opened, none
//! through a link, and nothing outside of the job's own folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use falaj_base::hex;
use rustix::fs::OFlags;
use serde::Deserialize;

use super::keep::touches;
use super::report::check_files;
use super::store::Part;

/// Folders that are looked at, ranks of one, and bytes of a file that says what a rank saved.
const MOST_FOLDERS: usize = 1000;
const MOST_RANKS: u32 = 1 << 16;
const MOST_BYTES: u64 = 1 << 20;
/// What such a file is called, around the number of its rank.
const NAME: (&str, &str) = ("rank-", ".json");

/// What a rank writes as `rank-<n>.json`, once everything else of it is on disk.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finished {
    step: i64,
    /// `FALAJ_START`: files of several starts are no checkpoint.
    attempt: u32,
    /// `FALAJ_WORLD_SIZE`: how many ranks there must be.
    world: u32,
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// A checkpoint that every rank of one start has finished, by what they say themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) step: i64,
    pub(super) attempt: u32,
    pub(super) world: u32,
    pub(super) parts: BTreeMap<u32, Part>,
}

/// The whole checkpoints below a folder, the oldest first.
pub(super) fn whole_ones(folder: &Path) -> Vec<Whole> {
    let mut found: Vec<_> = folders(folder).filter_map(|path| whole(&path)).collect();
    found.sort_by_key(|it| it.step);
    found
}

/// Folders below one; links are none.
fn folders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).take(MOST_FOLDERS)
}

fn whole(folder: &Path) -> Option<Whole> {
    let first = finished(folder, 0)?;
    let (step, attempt, world) = (first.step, first.attempt, first.world);
    if step < 0 || !(1..=MOST_RANKS).contains(&world) {
        return None;
    }
    let path = folder.to_str()?;
    let mut parts = BTreeMap::new();
    let mut next = Some(first);
    for rank in 0..world {
        let it = next.take().or_else(|| finished(folder, rank))?;
        if (it.step, it.attempt, it.world) != (step, attempt, world) {
            return None;
        }
        check_files(&it.files).ok()?;
        parts.insert(rank, Part { path: path.to_owned(), files: it.files });
    }
    Some(Whole { step, attempt, world, parts })
}

fn finished(folder: &Path, rank: u32) -> Option<Finished> {
    let mut text = String::new();
    let file = open(&folder.join(format!("{}{rank}{}", NAME.0, NAME.1))).ok()?;
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Opens a plain file. A pipe would keep us waiting, and a link could lead anywhere.
fn open(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let file = fs::File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no plain file")) }
}

/// Why a checkpoint cannot be gone on from, if that is so. All of it lies below `root`.
pub(super) fn broken(root: &Path, manifest: &BTreeMap<u32, Part>) -> Option<String> {
    manifest.values().find_map(|part| {
        if !Path::new(&part.path).exists() {
            return Some(format!("{} is not there", part.path));
        }
        let Some(folder) = inside(root, &part.path) else {
            return Some(format!("{} leads out of the folder of its job", part.path));
        };
        part.files.iter().find_map(|(name, expected)| match digest(&folder, name) {
            Ok(found) if found == *expected => None,
            Ok(_) => Some(format!("{name} is not what was saved")),
            Err(error) => Some(format!("{name} cannot be read: {error}")),
        })
    })
}

fn digest(folder: &Path, name: &str) -> io::Result<String> {
    let path = folder.join(name);
    // Of a name with several steps, those before the last may be links as well.
    if !path.parent().unwrap_or(folder).canonicalize()?.starts_with(folder) {
        return Err(io::Error::other("it leads out of its folder"));
    }
    let file = open(&path)?;
    // One that grows while it is read never ends.
    let mut file = file.metadata().map(|about| file.take(about.len()))?;
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

/// How many bytes a checkpoint has, as far as its files are there.
pub(super) fn size(manifest: &BTreeMap<u32, Part>) -> u64 {
    let files = manifest.values().flat_map(|part| {
        part.files.keys().map(|name| fs::symlink_metadata(Path::new(&part.path).join(name)))
    });
    files.flatten().fold(0, |sum, about| sum.saturating_add(about.len()))
}

/// Clears away what starts that are over began and did not finish: folders in which some rank has
/// finished and that are not whole. What touches a path of `stays` is left alone.
pub(super) fn clear_halves(root: &Path, stays: &[&str]) {
    for folder in folders(root) {
        let begun = fs::read_dir(&folder).into_iter().flatten().flatten().any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(NAME.0) && name.ends_with(NAME.1)
        });
        if !begun || whole(&folder).is_some() {
            continue;
        }
        if let Some(path) = folder.to_str().filter(|path| !touches(path, stays)) {
            remove(root, path);
        }
    }
}

/// Removes something below `root`, and nothing elsewhere. Of a link only the link goes: what it leads to
/// may be one that stays.
pub(super) fn remove(root: &Path, path: &str) {
    let (path, Ok(real)) = (Path::new(path), root.canonicalize()) else { return };
    let Ok(below) = path.strip_prefix(root) else { return };
    let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    let (Some(above), Some(name)) = (below.parent(), below.file_name()) else { return };
    let above = real.join(above);
    if !plain || above.canonicalize().ok().as_ref() != Some(&above) {
        return;
    }
    let path = above.join(name);
    let is_dir = fs::symlink_metadata(&path).is_ok_and(|about| about.is_dir());
    let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a checkpoint was not removed");
    }
}

/// The path without links, if it is below the root and leads nowhere else.
fn inside(root: &Path, path: &str) -> Option<PathBuf> {
    if !is_below(root, path) {
        return None;
    }
    let (real, root) = (Path::new(path).canonicalize().ok()?, root.canonicalize().ok()?);
    (real.starts_with(&root) && real != root).then_some(real)
}

/// Whether a path is written as one below the root.
pub(super) fn is_below(root: &Path, path: &str) -> bool {
    let Ok(below) = Path::new(path).strip_prefix(root) else { return false };
    let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    plain && below.components().next().is_some()
}

/// What is wrong with a path and files that a rank says it has saved, if something is. Digests are
/// looked at when a start goes on from it.
pub(super) fn amiss(root: &Path, part: &Part) -> Option<String> {
    let Some(folder) = inside(root, &part.path) else {
        return Some(format!("`{}` is not there, or leads out of CHECKPOINT_DIR", part.path));
    };
    part.files.keys().find_map(|name| {
        let path = folder.join(name);
        let within = path.parent().and_then(|above| above.canonicalize().ok());
        if !within.is_some_and(|above| above.starts_with(&folder)) {
            return Some(format!("`{name}` is not there, or leads out of its folder"));
        }
        let plain = fs::symlink_metadata(&path).is_ok_and(|about| about.is_file());
        (!plain).then(|| format!("`{name}` is not there, or is no plain file"))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn rank(folder: &Path, rank: u32, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(format!("rank-{rank}.json")), text).unwrap();
    }

    fn said(step: i64, attempt: u32, world: u32) -> String {
        format!(r#"{{"step": {step}, "attempt": {attempt}, "world": {world}}}"#)
    }

    fn steps(folder: &Path) -> Vec<i64> {
        whole_ones(folder).iter().map(|it| it.step).collect()
    }

    #[test]
    fn a_checkpoint_counts_when_every_rank_of_one_start_finished_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        rank(&at("a"), 0, &said(10, 1, 2));
        rank(&at("a"), 1, &said(10, 1, 2));
        rank(&at("half"), 0, &said(20, 1, 2));
        rank(&at("torn"), 0, &said(30, 1, 2));
        rank(&at("torn"), 1, r#"{"step": 30, "fi"#);
        rank(&at("mixed"), 0, &said(40, 1, 2));
        rank(&at("mixed"), 1, &said(41, 1, 2));
        rank(&at("starts"), 0, &said(45, 2, 2));
        rank(&at("starts"), 1, &said(45, 1, 2));
        rank(&at("silent"), 0, r#"{"step": 47}"#);
        rank(
            &at("outside"),
            0,
            r#"{"step": 50, "attempt": 1, "world": 1, "files": {"../x": "00"}}"#,
        );
        rank(&at("nobody"), 0, &said(60, 1, 0));
        symlink(at("a"), at("link")).unwrap();
        fs::write(at("file"), "x").unwrap();
        assert_eq!(steps(folder.path()), [10]);
        let found = &whole_ones(folder.path())[0];
        assert_eq!((found.attempt, found.world), (1, 2));
        assert_eq!(found.parts[&1].path, at("a").to_string_lossy());
    }

    #[test]
    fn a_half_stays_one_however_many_ranks_come_next() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["good", "half", "used"] {
            rank(&at(name), 0, &said(10, 1, 2));
        }
        rank(&at("good"), 1, &said(10, 1, 2));
        fs::create_dir(at("other")).unwrap();
        // A start with one rank goes on here: what two began is no checkpoint of one.
        assert_eq!(steps(folder.path()), [10]);
        let used = at("used").join("inner");
        clear_halves(folder.path(), &[used.to_str().unwrap()]);
        let left = |name: &str| at(name).exists();
        assert!(left("good") && left("used") && left("other") && !left("half"));
    }

    #[test]
    fn files_must_be_what_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let inner = root.join("a");
        fs::create_dir_all(inner.join("deep")).unwrap();
        fs::write(inner.join("model.pt"), "weights").unwrap();
        fs::write(inner.join("deep/model.pt"), "weights").unwrap();
        fs::write(folder.path().join("secret"), "weights").unwrap();
        symlink(folder.path().join("secret"), inner.join("link")).unwrap();
        symlink(folder.path(), inner.join("out")).unwrap();
        symlink(folder.path(), root.join("away")).unwrap();
        let part = |path: &Path, name: &str, digest: &str| {
            let files = BTreeMap::from([(name.to_owned(), digest.to_owned())]);
            Part { path: path.to_str().unwrap().to_owned(), files }
        };
        let good = digest(&inner.canonicalize().unwrap(), "model.pt").unwrap();
        let check = |part: Part| broken(&root, &BTreeMap::from([(0, part)]));
        assert_eq!(check(part(&inner, "model.pt", &good)), None);
        assert_eq!(check(part(&inner, "deep/model.pt", &good)), None);
        let changed = check(part(&inner, "model.pt", &"0".repeat(64))).unwrap();
        assert_eq!(changed, "model.pt is not what was saved");
        assert!(check(part(&root.join("gone"), "x", &good)).unwrap().ends_with("is not there"));
        // The same bytes, but not the job's own.
        for (path, name) in [
            (inner.as_path(), "link"),
            (&inner, "out/secret"),
            (&inner, "deep"),
            (&root.join("away"), "secret"),
            (folder.path(), "secret"),
            (Path::new("/dev"), "zero"),
        ] {
            assert!(check(part(path, name, &good)).is_some(), "{} {name}", path.display());
            assert!(amiss(&root, &part(path, name, &good)).is_some(), "{}", path.display());
        }
        assert_eq!(amiss(&root, &part(&inner, "deep/model.pt", "")), None);
        assert_eq!(size(&BTreeMap::from([(0, part(&inner, "model.pt", ""))])), 7);
    }

    #[test]
    fn a_pipe_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a");
        fs::create_dir(&inner).unwrap();
        let made = std::process::Command::new("mkfifo").arg(inner.join("rank-0.json")).status();
        assert!(made.unwrap().success());
        assert!(whole_ones(folder.path()).is_empty());
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
        fs::create_dir_all(root.join("stays/inner")).unwrap();
        symlink(root.join("stays"), root.join("last")).unwrap();
        remove(&root, &text(&root.join("last/inner")));
        remove(&root, &text(&root.join("last")));
        assert!(root.join("stays/inner").exists() && !root.join("last").exists());
        remove(&root, &text(&root.join("a")));
        assert!(!root.join("a").exists() && root.exists());
    }
}
