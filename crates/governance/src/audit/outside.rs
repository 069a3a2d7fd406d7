//! The copy of the checkpoints outside the database: one file per day, one JSON line per
//! checkpoint, only ever appended to.
//!
//! Whoever can rewrite the database can rewrite every checkpoint in it. This copy is what then
//! contradicts them, and [`super::service::Audit::verify_store`] listens to it at every start.
//! Keep it on another disk, or ship it off the machine, for the protection to be worth most.
//!
//! Must hold: a line that was appended has reached the disk; a torn last line (power cut) is
//! passed over, since the checkpoint it held is still in the database.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use falaj_base::{Error, Result, Timestamp};
use serde::{Deserialize, Serialize};

/// How much of a file's end is searched for its last whole line; a line takes some 300 bytes.
const TAIL: u64 = 64 * 1024;

#[derive(Serialize, Deserialize)]
struct Copy {
    at: Timestamp,
    note: String,
}

/// The folder of checkpoint copies.
#[derive(Clone, Debug)]
pub(super) struct Outside {
    folder: PathBuf,
}

impl Outside {
    /// Makes the folder if it is not there.
    pub(super) fn open(data_dir: &Path) -> Result<Self> {
        let folder = data_dir.join("checkpoints");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(Error::internal)?;
        Ok(Self { folder })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Appends a note and waits until it is on disk.
    pub(super) fn append(&self, note: &str, at: Timestamp) -> Result<()> {
        self.try_append(note, at).map_err(Error::internal)
    }

    fn try_append(&self, note: &str, at: Timestamp) -> std::io::Result<()> {
        let day: String = at.to_string().chars().take(10).collect();
        let path = self.folder.join(format!("{day}.jsonl"));
        let mut file =
            OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(&path)?;
        let length = file.metadata()?.len();
        let mut line = Vec::new();
        // A torn line before this one is closed, so that it spoils nothing but itself.
        if length > 0 && last_byte(&mut file)? != b'\n' {
            line.push(b'\n');
        }
        serde_json::to_writer(&mut line, &Copy { at, note: note.to_owned() })?;
        line.push(b'\n');
        file.write_all(&line)?;
        file.sync_data()?;
        if length == 0 {
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(())
    }

    /// The last note that was copied; none if there is no copy at all.
    pub(super) fn last(&self) -> Result<Option<String>> {
        self.try_last().map_err(Error::internal)
    }

    fn try_last(&self) -> std::io::Result<Option<String>> {
        let mut files = Vec::new();
        for item in std::fs::read_dir(&self.folder)? {
            let path = item?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                files.push(path);
            }
        }
        files.sort();
        for path in files.iter().rev() {
            let mut file = File::open(path)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
            let mut tail = Vec::new();
            file.take(TAIL).read_to_end(&mut tail)?;
            let whole = |line: &[u8]| serde_json::from_slice::<Copy>(line).ok();
            if let Some(copy) = tail.split(|byte| *byte == b'\n').rev().find_map(whole) {
                return Ok(Some(copy.note));
            }
        }
        Ok(None)
    }
}

fn last_byte(file: &mut File) -> std::io::Result<u8> {
    let mut byte = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut byte)?;
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_counts_across_days_and_torn_writes() {
        let folder = tempfile::tempdir().unwrap();
        let outside = Outside::open(folder.path()).unwrap();
        assert_eq!(outside.last().unwrap(), None);
        let day = |text: &str| text.parse::<Timestamp>().unwrap();
        outside.append("one", day("2026-01-31T23:59:59Z")).unwrap();
        outside.append("two", day("2026-02-01T00:00:01Z")).unwrap();
        assert_eq!(outside.last().unwrap().as_deref(), Some("two"));
        let path = outside.folder().join("2026-02-01.jsonl");
        let torn = OpenOptions::new().append(true).open(&path);
        torn.unwrap().write_all(b"{\"at\":\"2026-02-0").unwrap();
        assert_eq!(outside.last().unwrap().as_deref(), Some("two"));
        outside.append("three", day("2026-02-01T00:00:03Z")).unwrap();
        assert_eq!(outside.last().unwrap().as_deref(), Some("three"));
        std::fs::write(outside.folder().join("2026-02-02.jsonl"), [0; 100]).unwrap();
        assert_eq!(outside.last().unwrap().as_deref(), Some("three"));
    }
}
