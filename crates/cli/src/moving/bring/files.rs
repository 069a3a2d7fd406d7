//! Files: those that are not there, or are not the same, are sent.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use aws_lc_rs::digest;
use falaj_base::hex;
use falaj_moving::artifact::{File, Folder, Listing, Location};
use futures::{StreamExt, TryStreamExt, stream};

use super::Bring;
use crate::exit::{Failure, Result};
use crate::moving::{Kind, Way};

/// How many files are remembered from round to round.
const MOST_KNOWN: usize = 100_000;

/// What is there: sizes and digests by path.
type There = HashMap<String, (u64, Option<String>)>;

/// What lies in a folder.
pub(super) struct Found {
    folder: Folder,
    files: Vec<File>,
    /// Whether it could be looked through.
    whole: bool,
}

impl Found {
    /// A text that is another one when a file was added or changed.
    pub(super) fn extent(found: Option<&Self>) -> String {
        let all = found.map(|found| found.files.as_slice()).unwrap_or_default();
        let one = |file: &File| format!("{}\n{}\n{}", file.path, file.size, file.modified);
        let texts: Vec<String> = all.iter().map(one).collect();
        falaj_moving::digest::mark(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

impl Bring<'_> {
    /// The address that files keep, if they do not come along; else remembers where they go.
    pub(super) fn stays(&mut self, uri: &str, to: &str) -> Option<String> {
        let location = self.locate(uri);
        let away = uri.contains("://") && !uri.starts_with("file:");
        let keep = self.no_artifacts || !location.is_readable();
        if keep && away && !uri.starts_with("mlflow-artifacts:") {
            if !self.no_artifacts {
                let scheme = uri.split(':').next().unwrap_or_default();
                self.account.note(format!("files at {scheme}: stay there; runs point at them"));
            }
            return Some(uri.to_owned());
        }
        if keep && !self.no_artifacts {
            let what = uri.split_once(':').map_or(uri, |(scheme, _)| scheme);
            self.account.note(format!(
                "files at {what}: could not be read: say with --artifact-root where they are"
            ));
        }
        self.rehomed.insert(plain(uri), format!("mlflow-artifacts:/{to}"));
        None
    }

    /// What lies at a location, if it can be read. `what` it is of is said where it may not be, and
    /// it comes without files.
    pub(super) async fn look(&mut self, what: &str, uri: &str, to: &str) -> Result<Option<Found>> {
        let location = self.present(uri, to);
        if self.no_artifacts || !location.is_readable() {
            return Ok(None);
        }
        let folder = Folder::open(&location)?;
        let files = if self.allowed.admits(&location) {
            folder.list(self.allowed.is_root(&location)).await.map_err(Failure::from)
        } else {
            let refusal = self.allowed.refusal(&format!("the files of {what}"), &location);
            Err(Failure::usage(refusal.to_string()))
        };
        let Listing { files, hidden } = match files {
            Err(failure) => {
                self.account.refused(failure.message().to_owned());
                return Ok(Some(Found { folder, files: Vec::new(), whole: false }));
            }
            Ok(files) => files,
        };
        if hidden > 0 {
            let names = "hidden files and folders that are no artifacts";
            self.account.note(format!("{hidden} {names} were not read beside those of {what}"));
        }
        self.account.found(Kind::Files, files.len());
        for file in &files {
            self.account.found(Kind::Bytes, usize::try_from(file.size).unwrap_or(usize::MAX));
        }
        Ok(Some(Found { folder, files, whole: true }))
    }

    /// Copies what was found to a folder of the project. Tells whether all of it is there now: a
    /// file that changes while it is read, or that the server refuses, comes another time.
    pub(super) async fn copy_files(&mut self, found: Found, to: &str) -> Result<bool> {
        let complete = self.copy_found(found, to).await?;
        if !complete {
            self.incomplete.insert(to.to_owned());
        }
        Ok(complete)
    }

    /// Whether files at an address of this server are missing that should have come.
    pub(super) fn lacks_files(&self, address: &str) -> bool {
        let Some(path) = address.strip_prefix("mlflow-artifacts:/") else { return false };
        let below = |folder: &String| {
            path.strip_prefix(folder.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.incomplete.iter().any(below)
    }

    async fn copy_found(&mut self, found: Found, to: &str) -> Result<bool> {
        let Found { folder, files, whole } = found;
        if files.is_empty() || self.dry_run {
            return Ok(whole);
        }
        let there = match self.project.files(to).await {
            Err(refused) if refused.is_refusal() => {
                self.account.refused(format!("the files below {to}: {}", refused.message()));
                return Ok(false);
            }
            there => there?,
        };
        let (mut missing, mut without) = (Vec::new(), HashSet::new());
        for file in &files {
            let place = format!("{to}/{}", file.path);
            let known = self.memory.files.get(&place) == Some(&(file.size, file.modified));
            let same = there.get(&file.path).is_some_and(|(size, _)| *size == file.size);
            if known && same {
                continue;
            }
            match is_there(&folder, file, &there).await {
                Ok(true) => {}
                Ok(false) => missing.push(file),
                Err(unread) if unread.is_refusal() => {
                    self.account.refused(format!("the file {place}: {}", unread.message()));
                    without.insert(file.path.as_str());
                }
                Err(failure) => return Err(failure),
            }
        }
        let (project, from) = (&self.project, (self.way, self.name.as_str()));
        let sent: Vec<Result<()>> = stream::iter(&missing)
            .map(|file| project.put(&folder, file, to, from))
            .buffered(self.concurrency)
            .collect()
            .await;
        let mut changed = HashSet::new();
        for (file, sent) in missing.iter().zip(sent) {
            if let Err(failure) = sent {
                if self.way == Way::Sync && has_changed(&folder, file).await? {
                    changed.insert(file.path.as_str());
                } else if failure.is_refusal() {
                    let (path, why) = (&file.path, failure.message());
                    self.account.refused(format!("the file {to}/{path}: {why}"));
                    without.insert(file.path.as_str());
                } else {
                    return Err(failure);
                }
                continue;
            }
            self.account.sent(Kind::Files, 1);
            self.account.sent(Kind::Bytes, usize::try_from(file.size).unwrap_or(usize::MAX));
        }
        let came = |file: &&File| {
            let path = file.path.as_str();
            !changed.contains(path) && !without.contains(path)
        };
        for file in files.iter().filter(came) {
            // Forgotten ones are only compared once more.
            if self.memory.files.len() >= MOST_KNOWN {
                self.memory.files.clear();
            }
            let place = format!("{to}/{}", file.path);
            self.memory.files.insert(place, (file.size, file.modified));
        }
        if !changed.is_empty() {
            let count = changed.len();
            let more = "changed while they were read; run again to bring them";
            self.account.note(format!("{count} files below {to} {more}"));
        }
        Ok(whole && changed.is_empty() && without.is_empty())
    }

    /// The location, or where its store was moved to since it wrote where its files are.
    fn present(&self, uri: &str, to: &str) -> Location {
        let location = self.locate(uri);
        let usable = location.local().is_none_or(Path::is_dir) && self.allowed.admits(&location);
        if usable || location.local().is_none() {
            return location;
        }
        // `<experiment>/<run>/artifacts` is how a folder of files is laid out as well, with the
        // experiment's old number.
        let tail: Vec<&str> = uri.trim_end_matches('/').rsplit('/').collect();
        let depth = if to.contains("/models/") { 4 } else { 3 };
        let below: Vec<&str> = tail.into_iter().take(depth).rev().collect();
        let moved = self.source.moved_to(&below.join("/"));
        moved.map_or(location, Location::Local)
    }
}

/// One spelling for each place.
pub(super) fn plain(uri: &str) -> String {
    let path = falaj_moving::artifact::local_path(uri).map(|path| path.display().to_string());
    path.unwrap_or_else(|| uri.to_owned()).trim_end_matches('/').to_owned()
}

async fn is_there(folder: &Folder, file: &File, there: &There) -> Result<bool> {
    let Some((size, sha256)) = there.get(&file.path) else { return Ok(false) };
    if *size != file.size {
        return Ok(false);
    }
    // What was sent in parts has no digest to compare: it is sent again, and has one then.
    let Some(sha256) = sha256 else { return Ok(false) };
    let mut sum = digest::Context::new(&digest::SHA256);
    let mut pieces = folder.read(file).await?;
    while let Some(piece) = pieces.try_next().await? {
        sum.update(&piece);
    }
    Ok(hex(sum.finish().as_ref()) == *sha256)
}

/// Whether a file is not as it was found.
async fn has_changed(folder: &Folder, file: &File) -> Result<bool> {
    Ok(!folder.list(false).await?.files.contains(file))
}
