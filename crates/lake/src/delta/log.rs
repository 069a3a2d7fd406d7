//! Which files of the log are needed.

use falaj_base::{Error, Result};
use serde::Deserialize;

use crate::limits::Budget;
use crate::path::joined;
use crate::place::{Entry, Place};

pub(super) const FOLDER: &str = "_delta_log";
const HINT: &str = "_last_checkpoint";
/// A hint is a line; more is none.
const MAX_HINT: u64 = 64 << 10;

/// The files of a log that matter.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    /// Commits by version, with the time that their files were written, in milliseconds.
    pub(super) commits: Vec<(u64, i64)>,
    /// Complete checkpoints by version, each with its files.
    pub(super) checkpoints: Vec<(u64, Vec<String>)>,
}

/// One file of a log.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    Commit(u64),
    /// A checkpoint in one file.
    Whole(u64),
    /// One of several parts: which, of how many.
    Part(u64, u64, u64),
    Other,
}

fn named(name: &str) -> Named {
    let number = |digits: &str, length: usize| {
        let plain = digits.len() == length && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse::<u64>().ok()).flatten()
    };
    let mut parts = name.split('.');
    let Some(version) = parts.next().and_then(|digits| number(digits, 20)) else {
        return Named::Other;
    };
    let rest: Vec<&str> = parts.collect();
    match rest.as_slice() {
        ["json"] => Named::Commit(version),
        ["checkpoint", "parquet"] => Named::Whole(version),
        // With an id of its own, as the second version of checkpoints has it.
        ["checkpoint", id, "parquet" | "json"] if id.len() == 36 => Named::Whole(version),
        ["checkpoint", part, of, "parquet"] => match (number(part, 10), number(of, 10)) {
            (Some(part), Some(of)) if (1..=of).contains(&part) => Named::Part(version, part, of),
            _ => Named::Other,
        },
        _ => Named::Other,
    }
}

impl Log {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let mut log = Self::default();
        let mut parts: Vec<(u64, u64, u64, &str)> = Vec::new();
        for entry in entries {
            match named(&entry.name) {
                Named::Commit(version) => log.commits.push((version, entry.modified)),
                Named::Whole(version) => log.checkpoints.push((version, vec![entry.name.clone()])),
                Named::Part(version, part, of) => parts.push((version, of, part, &entry.name)),
                Named::Other => {}
            }
        }
        parts.sort_unstable();
        for all in parts.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (version, of) = (all[0].0, all[0].1);
            // Parts of which one is missing are what a writer left that never finished.
            if all.len() as u64 == of {
                let names = all.iter().map(|part| part.3.to_owned()).collect();
                log.checkpoints.push((version, names));
            }
        }
        log.commits.sort_unstable();
        log.checkpoints.sort_unstable();
        log
    }

    /// The latest version there is.
    pub(super) fn latest(&self) -> Option<u64> {
        let commit = self.commits.last().map(|it| it.0);
        commit.max(self.checkpoints.last().map(|it| it.0))
    }

    /// A checkpoint to begin with, and the commits to go on with, up to a version; else the version
    /// whose commit is missing.
    pub(super) fn up_to(&self, version: u64) -> Result<(Option<&[String]>, Vec<u64>), u64> {
        let begin = self.checkpoints.iter().rev().find(|it| it.0 <= version);
        let first = begin.map_or(0, |it| it.0.saturating_add(1));
        let (mut next, mut commits) = (first, Vec::new());
        for (number, _) in self.commits.iter().filter(|it| (first..=version).contains(&it.0)) {
            if *number != next {
                return Err(next);
            }
            commits.push(next);
            next += 1;
        }
        if next <= version {
            return Err(next);
        }
        Ok((begin.map(|it| it.1.as_slice()), commits))
    }
}

/// The name of the file of a commit.
pub(super) fn commit(version: u64) -> String {
    format!("{version:020}.json")
}

#[derive(Deserialize)]
struct Hint {
    version: u64,
}

/// Reads the list of the log. If only the latest version is wanted, what came before the checkpoint
/// that the table points to is left out.
pub(super) fn listed(
    place: &dyn Place,
    table: &str,
    only_latest: bool,
    budget: &Budget,
) -> Result<Log> {
    let folder = joined(table, FOLDER);
    let most = budget.limits().listed;
    let hinted = if only_latest { hint(place, &folder)? } else { None };
    if let Some(version) = hinted {
        // Any name of that version comes after the bare number.
        let after = format!("{version:020}");
        let log = Log::of(&place.list(&folder, Some(&after), most)?);
        // A hint that points nowhere is no hint.
        if log.checkpoints.iter().any(|it| it.0 >= version) {
            return Ok(log);
        }
    }
    Ok(Log::of(&place.list(&folder, None, most)?))
}

fn hint(place: &dyn Place, folder: &str) -> Result<Option<u64>> {
    let Some(file) = place.open(&joined(folder, HINT))? else { return Ok(None) };
    if file.size() > MAX_HINT {
        return Ok(None);
    }
    let text = file.whole(MAX_HINT)?;
    Ok(serde_json::from_slice::<Hint>(&text).ok().map(|hint| hint.version))
}

pub(super) fn missing(place: &dyn Place, table: &str, version: u64) -> Error {
    let name = place.shown(&joined(&joined(table, FOLDER), &commit(version)));
    Error::invalid(name, "absent", "every commit since a checkpoint, or since version 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(names: &[&str]) -> Log {
        let entry = |name: &&str| Entry { name: (*name).to_owned(), size: 1, modified: 5 };
        Log::of(&names.iter().map(entry).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_those_of_the_protocol() {
        let id = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5";
        for (name, is) in [
            ("00000000000000000003.json", Named::Commit(3)),
            ("00000000000000000003.checkpoint.parquet", Named::Whole(3)),
            (&format!("00000000000000000003.checkpoint.{id}.json"), Named::Whole(3)),
            ("00000000000000000003.checkpoint.0000000001.0000000002.parquet", Named::Part(3, 1, 2)),
            ("00000000000000000003.checkpoint.0000000003.0000000002.parquet", Named::Other),
            ("00000000000000000003.00000000000000000005.compacted.json", Named::Other),
            ("00000000000000000003.crc", Named::Other),
            ("3.json", Named::Other),
            ("99999999999999999999.json", Named::Other),
            ("+0000000000000000003.json", Named::Other),
            ("_last_checkpoint", Named::Other),
        ] {
            assert_eq!(named(name), is, "{name}");
        }
    }

    #[test]
    fn a_version_needs_every_commit_since_a_checkpoint() {
        let all = log(&[
            "00000000000000000000.json",
            "00000000000000000001.json",
            "00000000000000000002.checkpoint.0000000001.0000000002.parquet",
            "00000000000000000002.checkpoint.0000000002.0000000002.parquet",
            "00000000000000000002.json",
            "00000000000000000003.checkpoint.0000000001.0000000002.parquet",
            "00000000000000000003.json",
            "00000000000000000005.json",
        ]);
        assert_eq!(all.latest(), Some(5));
        assert_eq!(all.up_to(1).unwrap(), (None, vec![0, 1]));
        let (begin, commits) = all.up_to(3).unwrap();
        assert_eq!((begin.unwrap().len(), commits), (2, vec![3]));
        assert_eq!(all.up_to(5), Err(4));
        assert_eq!(all.up_to(9), Err(4));
        assert_eq!(log(&["00000000000000000001.json"]).up_to(1), Err(0));
        assert_eq!(log(&[]).latest(), None);
    }
}
