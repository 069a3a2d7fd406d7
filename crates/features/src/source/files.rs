//! Parquet files below the configured roots.

use falaj_base::{Error, Result};
use falaj_lake::{File, Place};

use crate::definition::path;

/// The files that a path means, in the order of their names, opened. The path begins with the name of
/// the root.
pub(super) fn open(place: &dyn Place, text: &str, most: usize) -> Result<Vec<File>> {
    let below = text.split_once('/').map_or("", |(_, below)| below);
    let (folder, pattern) = path::split(below);
    if !pattern.contains(['*', '?']) {
        // One file is not looked for among all of its folder.
        let found = place.open(below)?;
        return found.map(|file| vec![file]).ok_or_else(|| none(text));
    }
    // Names that do not fit the pattern count as well, so that a folder has an end.
    let listed = place.list(folder, None, most.saturating_mul(10))?;
    let names = listed.into_iter().map(|entry| entry.name);
    let names: Vec<String> = names.filter(|name| path::matches(pattern, name)).collect();
    if names.len() > most {
        let allowed = format!("at most {most} files (`features.max_source_files`)");
        return Err(Error::invalid("path", text, allowed));
    }
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        // One that went away since it was listed is not there.
        files.extend(place.open(&path)?);
    }
    if files.is_empty() {
        return Err(none(text));
    }
    Ok(files)
}

fn none(text: &str) -> Error {
    Error::invalid("path", text, "a path with at least one file")
}
