//! Which files a store consists of, and whose it is: a small file that is replaced as a whole.
//!
//! Must hold: what it names lasts before it does. Frozen in a test: it outlives the process.

use std::fs::{self, File};
use std::io::Write;

use falaj_base::Result;
use serde::{Deserialize, Serialize};

use super::folder::{Folder, damaged, failed};
use crate::store::{Home, Position};

const FORMAT: u32 = 1;

/// What there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format: u32,
    /// What keys are hashed with, so that nobody can choose keys that meet.
    pub(super) seed: u64,
    /// The runs of each level, in the order of their keys; the youngest level first.
    pub(super) levels: Vec<Vec<u64>>,
    /// What was applied after all of them.
    pub(super) tail: u64,
    /// How far in the log that was when this was written; the tail says how far it is by now.
    reached: (i64, i64),
    home: Option<String>,
    pub(super) id: Option<String>,
}

impl Manifest {
    pub(super) fn new(seed: u64, levels: Vec<Vec<u64>>, tail: u64, reached: Position) -> Self {
        let reached = (reached.tx, reached.seq);
        Self { format: FORMAT, seed, levels, tail, reached, home: None, id: None }
    }

    /// With whose it is.
    pub(super) fn of(self, home: Option<&Home>, id: Option<&str>) -> Self {
        Self { home: home.map(ToString::to_string), id: id.map(ToOwned::to_owned), ..self }
    }

    pub(super) fn home(&self) -> Option<Home> {
        self.home.as_deref().map(Home::read)
    }

    /// Whether it names this file.
    pub(super) fn names(&self, number: u64) -> bool {
        self.tail == number || self.levels.iter().flatten().any(|run| *run == number)
    }

    /// What is written in the folder; none in a new one.
    pub(super) fn read(folder: &Folder) -> Result<Option<Self>> {
        let text = match fs::read(folder.manifest()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed)?,
        };
        let wrong = |error: serde_json::Error| damaged(folder.path()).caused_by(error);
        let read: Self = serde_json::from_slice(&text).map_err(wrong)?;
        if read.format != FORMAT {
            return Err(damaged(folder.path()));
        }
        Ok(Some(read))
    }

    /// Takes the place of the one before, and lasts.
    pub(super) fn write(&self, folder: &Folder) -> Result<()> {
        let (path, new) = (folder.manifest(), folder.manifest().with_extension("new"));
        let text = serde_json::to_vec(self).map_err(falaj_base::Error::internal)?;
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(&new, &path)).map_err(failed)?;
        folder.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_it_was() {
        let home = Home { installation: "a".to_owned(), generation: "1".to_owned() };
        let manifest = Manifest::new(7, vec![vec![4], vec![1, 2]], 5, Position { tx: 3, seq: -1 })
            .of(Some(&home), Some("one"));
        let text = r#"{"format":1,"seed":7,"levels":[[4],[1,2]],"tail":5,"reached":[3,-1],"home":"a/1","id":"one"}"#;
        assert_eq!(serde_json::to_string(&manifest).unwrap(), text);
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::open(folder.path()).unwrap();
        assert_eq!(Manifest::read(&folder).unwrap(), None);
        manifest.write(&folder).unwrap();
        let read = Manifest::read(&folder).unwrap().unwrap();
        assert_eq!((&read, read.home()), (&manifest, Some(home)));
        assert!([1, 2, 4, 5].into_iter().all(|number| read.names(number)) && !read.names(3));
        for wrong in [text.replace(":1,", ":2,"), "{".to_owned()] {
            fs::write(folder.manifest(), wrong).unwrap();
            let error = Manifest::read(&folder).unwrap_err();
            assert!(error.message().contains("damaged"), "{error:?}");
        }
    }
}
