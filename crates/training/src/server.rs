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
    let part = folder.join(format!("{FILE}.{id}"));
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&part)?;
        file.write_all(id.as_bytes())?;
        file.sync_all()?;
        // Of several who do this at the same time one succeeds, and the others take what it wrote.
        match fs::hard_link(&part, &path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                fs::rename(&part, &path)
            }
            _ => fs::remove_file(&part),
        }
    };
    write().map_err(Error::internal)?;
    read(&path)?.ok_or_else(|| Error::internal(format!("{} is empty", path.display())))
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

    #[test]
    fn those_who_ask_at_the_same_time_have_the_same() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let (folder, together) = (folder.path(), std::sync::Barrier::new(8));
            let ask = || {
                together.wait();
                id_in(folder).unwrap()
            };
            let found: Vec<String> = std::thread::scope(|scope| {
                let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
                asking.into_iter().map(|it| it.join().unwrap()).collect()
            });
            assert!(found.iter().all(|id| *id == found[0]), "{found:?}");
            assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing is left over");
        }
    }
}
