//! Which of several servers this is: what its own machine runs, no other server knows of.
//!
//! Must hold: it is the same at every start from one data folder, and no other folder has it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use falaj_base::{Error, Result};
use uuid::Uuid;

const FILE: &str = "server-id";

/// The id that a folder holds; a new one if it holds none.
pub(crate) fn id_in(folder: &Path) -> Result<String> {
    let path = folder.join(FILE);
    if let Some(known) = read(&path)? {
        return Ok(known);
    }
    fs::create_dir_all(folder).map_err(Error::internal)?;
    let id = Uuid::now_v7().simple().to_string();
    let part = path.with_extension("part");
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&part)?;
        file.write_all(id.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &path)
    };
    write().map_err(Error::internal)?;
    Ok(id)
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::internal(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_and_another_has_another() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = id_in(&one.path().join("below")).unwrap();
        assert_eq!(id_in(&one.path().join("below")).unwrap(), first);
        assert_ne!(id_in(two.path()).unwrap(), first);
    }
}
