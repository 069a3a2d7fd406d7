//! Files: those that are not there, or are not the same, are sent.

use std::collections::HashMap;

use aws_lc_rs::digest;
use falaj_base::hex;
use falaj_moving::artifact::{File, Folder, Location};
use futures::{StreamExt, TryStreamExt, stream};

use super::mlflow::Move;
use crate::exit::Result;
use crate::moving::Kind;

/// What is there: sizes and digests by path.
type There = HashMap<String, (u64, Option<String>)>;

impl Move {
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

    /// Copies what lies at a location to a folder of the project.
    pub(super) async fn copy_files(&mut self, uri: &str, to: &str) -> Result<()> {
        let location = self.present(uri, to);
        if self.no_artifacts || !location.is_readable() {
            return Ok(());
        }
        let folder = Folder::open(&location)?;
        let files = folder.files().await?;
        self.account.found(Kind::Files, files.len());
        for file in &files {
            self.account.found(Kind::Bytes, usize::try_from(file.size).unwrap_or(usize::MAX));
        }
        if files.is_empty() || self.dry_run {
            return Ok(());
        }
        let there = self.project.files(to).await?;
        let mut missing = Vec::new();
        for file in files {
            if !is_there(&folder, &file, &there).await? {
                missing.push(file);
            }
        }
        let project = &self.project;
        stream::iter(&missing)
            .map(|file| project.put(&folder, &file.path, file.size, to))
            .buffer_unordered(self.concurrency)
            .try_collect::<()>()
            .await?;
        self.account.sent(Kind::Files, missing.len());
        for file in &missing {
            self.account.sent(Kind::Bytes, usize::try_from(file.size).unwrap_or(usize::MAX));
        }
        Ok(())
    }

    /// The location, or where its store was moved to since it wrote where its files are.
    fn present(&self, uri: &str, to: &str) -> Location {
        let location = self.locate(uri);
        let gone = location.local().is_some_and(|path| !path.is_dir());
        if !gone {
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
    let Some(sha256) = sha256 else { return Ok(true) };
    let mut sum = digest::Context::new(&digest::SHA256);
    let mut pieces = folder.read(&file.path).await?;
    while let Some(piece) = pieces.try_next().await? {
        sum.update(&piece);
    }
    Ok(hex(sum.finish().as_ref()) == *sha256)
}
