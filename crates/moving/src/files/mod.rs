//! The store that is a folder: `<experiment>/<run>/{meta.yaml,params,metrics,tags}`, and what is in
//! the bin below `.trash`.

mod models;
mod registry;
mod runs;

pub(crate) use registry::DELETED;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::record::{Experiment, Pairs, Stage};
use crate::source::Reading;
use crate::yaml;

const META: &str = "meta.yaml";
const TRASH: &str = ".trash";
/// The largest value of a parameter or tag that is read.
const LARGEST_VALUE: u64 = 1 << 20;
/// How long a file may be empty before it counts as an empty value.
const SETTLING: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct FileStore {
    folder: PathBuf,
    reading: Reading,
}

impl FileStore {
    pub(crate) fn open(folder: PathBuf, reading: Reading) -> Result<Self> {
        // The folder that was given may be a link; nothing in it is followed.
        let folder = folder.canonicalize().unwrap_or(folder);
        let store = Self { folder, reading };
        if store.experiment_folders()?.is_empty() {
            let why = "no experiment in it: give the folder that MLflow calls `mlruns`";
            return Err(Error::malformed(store.folder.display(), why));
        }
        Ok(store)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn moved_to(&self, below: &str) -> Option<PathBuf> {
        let mut roots = vec![self.folder.clone(), self.folder.join(TRASH)];
        roots.retain(|root| root.join(below).is_dir());
        roots.first().map(|root| root.join(below))
    }

    pub(crate) fn experiments(&self) -> Result<Vec<Experiment>> {
        self.experiment_folders()?.iter().map(|folder| experiment(folder)).collect()
    }

    pub(crate) fn trace_count(&self, experiment: &str) -> Result<i64> {
        let found = folders(&self.experiment_folder(experiment)?.join("traces"))?;
        Ok(i64::try_from(found.len()).unwrap_or(i64::MAX))
    }

    /// Every folder that describes an experiment, those in the bin as well.
    fn experiment_folders(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for root in [self.folder.clone(), self.folder.join(TRASH)] {
            let numbered = |path: &PathBuf| {
                name(path).bytes().all(|b| b.is_ascii_digit()) && path.join(META).is_file()
            };
            found.extend(folders(&root)?.into_iter().filter(numbered));
        }
        Ok(found)
    }

    /// The folder of one experiment.
    fn experiment_folder(&self, id: &str) -> Result<PathBuf> {
        let found = [self.folder.join(id), self.folder.join(TRASH).join(id)]
            .into_iter()
            .find(|path| path.join(META).is_file());
        found.ok_or_else(|| Error::malformed(self.folder.display(), format!("no experiment {id}")))
    }
}

fn experiment(folder: &Path) -> Result<Experiment> {
    let meta = yaml::read(&folder.join(META))?;
    Ok(Experiment {
        id: meta.text("experiment_id").unwrap_or_else(|| name(folder).to_owned()),
        name: meta.required("name")?,
        stage: Stage::read(&meta.text("lifecycle_stage").unwrap_or_default()),
        created_at: meta.int("creation_time")?.unwrap_or_default(),
        updated_at: meta.int("last_update_time")?.unwrap_or_default(),
        tags: values(&folder.join("tags"))?,
        artifact_location: meta.text("artifact_location").unwrap_or_default(),
    })
}

/// The folders in a folder, in the order of their names; none if it is not there.
fn folders(of: &Path) -> Result<Vec<PathBuf>> {
    entries(of).map(|all| all.into_iter().filter(|path| path.is_dir()).collect())
}

fn entries(of: &Path) -> Result<Vec<PathBuf>> {
    // Also the folder itself: a link could lead anywhere.
    if !of.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for entry in std::fs::read_dir(of).map_err(Error::reading(of))? {
        let entry = entry.map_err(Error::reading(of))?;
        if !entry.file_type().map_err(Error::reading(of))?.is_symlink() {
            all.push(entry.path());
        }
    }
    all.sort();
    Ok(all)
}

/// The last part of a path, as text.
fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The files below a folder by their names, which can have slashes.
fn named_files(of: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), of.to_owned())];
    while let Some((prefix, folder)) = open.pop() {
        for path in entries(&folder)? {
            let name = format!("{prefix}{}", name(&path));
            if path.is_dir() {
                open.push((format!("{name}/"), path));
            } else {
                found.push((name, path));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A folder in which each file is a value.
fn values(of: &Path) -> Result<Pairs> {
    named_files(of)?
        .into_iter()
        .map(|(name, path)| Ok((name, read_text(&path, LARGEST_VALUE)?)))
        .collect()
}

/// The same of a folder that is being written to: MLflow opens a file before it writes the value,
/// and what is empty for the moment must not be taken for a value.
fn settled_values(of: &Path) -> Result<Pairs> {
    let mut found = values(of)?;
    let fresh = |name: &str| {
        let written = of.join(name).metadata().and_then(|file| file.modified()).ok();
        written.and_then(|at| at.elapsed().ok()).is_none_or(|age| age < SETTLING)
    };
    found.retain(|(name, value)| !value.is_empty() || !fresh(name));
    Ok(found)
}

fn read_text(path: &Path, most: u64) -> Result<String> {
    let size = std::fs::metadata(path).map_err(Error::reading(path))?.len();
    if size > most {
        let why = format!("it has {size} bytes; at most {most} are read");
        return Err(Error::malformed(path.display(), why));
    }
    std::fs::read_to_string(path).map_err(Error::reading(path))
}
