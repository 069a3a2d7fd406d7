//! Files below the configured roots.
//!
//! Must hold: nothing outside a root is opened, whatever links lie below it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aws_lc_rs::digest::{Context, SHA256};
use falaj_base::{Error, Result, code, hex};
use falaj_governance::tenancy::Project;

use crate::config::{FeaturesConfig, SourceRoot};
use crate::definition::path;

/// A file as it was when it was opened.
#[derive(Debug)]
pub(super) struct Opened {
    /// The path that the source names, with the name of the file in it.
    pub(super) name: String,
    pub(super) file: File,
    pub(super) sha256: String,
    seen: (u64, SystemTime),
}

impl Opened {
    /// Refuses a file that was written to since.
    pub(super) fn unchanged(&self) -> Result<()> {
        if seen(&self.file, &self.name)? == self.seen {
            return Ok(());
        }
        let text = format!("the file `{}` changed while it was read", self.name);
        Err(Error::new(&code::CHANGED, text))
    }

    pub(super) fn handle(&self) -> Result<File> {
        self.file.try_clone().map_err(|error| unreadable(&self.name, error))
    }
}

/// The root that a path begins with, if sources of the project may read there.
pub(crate) fn root_of<'a>(
    config: &'a FeaturesConfig,
    project: &Project,
    path: &str,
) -> Result<&'a SourceRoot> {
    let name = path.split('/').next().unwrap_or_default();
    let open = |root: &&SourceRoot| {
        root.name.as_str() == name
            && root.tenant == project.tenant
            && root.project.as_ref().is_none_or(|only| *only == project.name)
    };
    config.source_roots.iter().find(open).ok_or_else(|| {
        let roots = config.source_roots.iter().filter(|root| root.tenant == project.tenant);
        let names: Vec<_> = roots.map(|root| root.name.as_str()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let allowed =
            format!("a path below a root of the project (`features.source_roots`: {names})");
        Error::invalid("path", path, allowed)
    })
}

/// The files that a path means, in the order of their names, opened and hashed.
pub(super) fn open(root: &SourceRoot, text: &str, most: usize) -> Result<Vec<Opened>> {
    let below = text.split_once('/').map_or("", |(_, below)| below);
    let (folder, pattern) = path::split(below);
    let (folder, pattern) = if below.contains('/') { (folder, pattern) } else { ("", below) };
    let root_path = root.path.canonicalize().map_err(|error| unreadable(text, error))?;
    let there = root_path.join(folder);
    let mut names = Vec::new();
    let listed = std::fs::read_dir(&there).map_err(|error| unreadable(text, error))?;
    for entry in listed {
        let name = entry.map_err(|error| unreadable(text, error))?.file_name();
        // A name that is no text cannot be named by a source.
        if let Some(name) = name.to_str().filter(|name| path::matches(pattern, name)) {
            names.push(name.to_owned());
        }
        if names.len() > most {
            let allowed = format!("at most {most} files (`features.max_source_files`)");
            return Err(Error::invalid("path", text, allowed));
        }
    }
    if names.is_empty() {
        return Err(Error::invalid("path", text, "a path with at least one file"));
    }
    names.sort_unstable();
    let prefix = text.strip_suffix(pattern).unwrap_or_default();
    names.iter().map(|name| one(&root_path, &there.join(name), format!("{prefix}{name}"))).collect()
}

fn one(root: &Path, place: &Path, name: String) -> Result<Opened> {
    let real: PathBuf = place.canonicalize().map_err(|error| unreadable(&name, error))?;
    if !real.starts_with(root) {
        return Err(Error::invalid("path", name, "files below the root, and no links out of it"));
    }
    let file = File::open(&real).map_err(|error| unreadable(&name, error))?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err(Error::invalid("path", name, "plain files"));
    }
    let seen = seen(&file, &name)?;
    let sha256 = hashed(&file).map_err(|error| unreadable(&name, error))?;
    Ok(Opened { name, file, sha256, seen })
}

fn seen(file: &File, name: &str) -> Result<(u64, SystemTime)> {
    let found = file.metadata().map_err(|error| unreadable(name, error))?;
    Ok((found.len(), found.modified().map_err(|error| unreadable(name, error))?))
}

fn hashed(mut file: &File) -> std::io::Result<String> {
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

/// What the disk says is for the log: a caller learns the name that they gave.
fn unreadable(name: &str, error: std::io::Error) -> Error {
    Error::invalid("path", name, "files that the server can read").caused_by(error)
}
