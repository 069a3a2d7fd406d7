//! What attempts on other machines leave in a folder that those machines see too.
//!
//! The engine's own scripts write there: `exit`, the truth about how an attempt ended, and the output of
//! each rank. What the engine itself says is asked only where there is no `exit`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::folder;
use crate::{End, RankEnd};

/// By the engine's script, at the end.
pub(crate) const EXIT: &str = "exit";
/// By the engine's script, before it starts anything: milliseconds since 1970.
pub(crate) const STARTED: &str = "started-at";
/// By the server, before it tells the engine: milliseconds since 1970.
pub(crate) const STOP: &str = "stop";

/// No rank outlives the first failure longer. Engines need a second or two around it.
pub(crate) const LONGEST_GANG_GRACE: Duration = Duration::from_millis(2_500);

/// The end as it was written down.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ending {
    ranks: BTreeMap<u32, (RankEnd, u64)>,
    timed_out: bool,
    /// Its ranks were told to end, by whomever.
    told: bool,
    pub(crate) ended: u64,
}

impl Ending {
    /// `None` as long as there is none, or only a part of it is to be seen.
    pub(crate) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let bytes = folder::read_small(&folder.join(EXIT))?;
        Ok(bytes.and_then(|bytes| Self::parse(&String::from_utf8_lossy(&bytes))))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut ending = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words.as_slice() {
                ["rank", rank, "exit", code, at] => {
                    let how = RankEnd::Exit(code.parse().ok()?);
                    ending.ranks.insert(rank.parse().ok()?, (how, at.parse().ok()?));
                }
                ["rank", rank, "signal", signal, at] => {
                    let how = RankEnd::Signal(signal.parse().ok()?);
                    ending.ranks.insert(rank.parse().ok()?, (how, at.parse().ok()?));
                }
                ["rank", rank, "not-started", at] => {
                    let how = (RankEnd::NotStarted, at.parse().ok()?);
                    ending.ranks.insert(rank.parse().ok()?, how);
                }
                ["timed-out"] => ending.timed_out = true,
                ["told"] => ending.told = true,
                ["ended", at] => ending.ended = at.parse().ok()?,
                _ => {}
            }
        }
        // The last line, so that a file that is only half there is not taken for a short one.
        (ending.ended > 0).then_some(ending)
    }

    /// What it means, of so many ranks, when it was told to stop at some time or never.
    pub(crate) fn end(&self, ranks: u32, stopped: Option<u64>) -> End {
        if self.timed_out {
            return End::TimedOut;
        }
        // A rank that could not write its end was killed with all that was around it.
        let of = |rank: u32| {
            let (how, at) =
                self.ranks.get(&rank).copied().unwrap_or((RankEnd::Signal(9), u64::MAX));
            (at, rank, how)
        };
        let failed = (0..ranks).map(of).filter(|(_, _, how)| *how != RankEnd::Exit(0));
        let first = failed.min_by_key(|(at, rank, _)| (*at, *rank));
        let last = self.ranks.values().map(|(_, at)| *at).max().unwrap_or(self.ended);
        match (first, stopped) {
            (None, Some(told)) if last >= told => End::Stopped,
            // Told by others, it saved and ended well, but not because it was done.
            (None, None) if self.told => End::Lost,
            (None, _) => End::Succeeded,
            // Clocks differ between machines: what ends by these signals ended because it was told to.
            (Some((_, _, RankEnd::Signal(9 | 15))), Some(_)) => End::Stopped,
            (Some((at, _, _)), Some(told)) if at >= told => End::Stopped,
            (Some((_, rank, how)), _) => End::Failed { rank, how },
        }
    }
}

/// The number in a small file.
pub(crate) fn number(path: &Path) -> io::Result<Option<u64>> {
    let bytes = folder::read_small(path)?;
    Ok(bytes.and_then(|bytes| String::from_utf8_lossy(&bytes).trim().parse().ok()))
}

/// Writes down that an attempt is told to stop; the first time counts.
pub(crate) fn note_stop(folder: &Path) -> io::Result<()> {
    let path = folder.join(STOP);
    if path.exists() {
        return Ok(());
    }
    folder::put_bytes(&path, crate::shim::now().to_string().as_bytes(), 0o600)
}

/// A word as a shell reads it, whatever is in it.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str, stopped: Option<u64>) -> Option<End> {
        Ending::parse(text).map(|ending| ending.end(2, stopped))
    }

    #[test]
    fn an_end_is_what_was_written_down() {
        let failed = |rank, how| Some(End::Failed { rank, how });
        for (text, stopped, wanted) in [
            ("rank 0 exit 0 10\nrank 1 exit 0 11\nended 12\n", None, Some(End::Succeeded)),
            // Only a part of it has arrived.
            ("rank 0 exit 0 10\nrank 1 exit 0 11\n", None, None),
            ("", None, None),
            // The first one counts, whichever number it has.
            (
                "rank 0 signal 15 12\nrank 1 exit 3 11\nended 13\n",
                None,
                failed(1, RankEnd::Exit(3)),
            ),
            // One that left nothing was killed.
            ("rank 0 exit 0 10\nended 12\n", None, failed(1, RankEnd::Signal(9))),
            ("rank 0 not-started 9\nended 12\n", None, failed(0, RankEnd::NotStarted)),
            ("rank 0 signal 15 12\ntimed-out\nended 13\n", Some(11), Some(End::TimedOut)),
            ("rank 0 exit 0 10\nrank 1 exit 0 20\nended 21\n", Some(15), Some(End::Stopped)),
            ("rank 0 exit 0 10\nrank 1 exit 0 11\nended 21\n", Some(15), Some(End::Succeeded)),
            ("rank 0 signal 15 10\nrank 1 signal 9 11\nended 21\n", Some(15), Some(End::Stopped)),
            (
                "rank 0 exit 1 10\nrank 1 signal 15 20\nended 21\n",
                Some(15),
                failed(0, RankEnd::Exit(1)),
            ),
            ("rank 0 exit 1 16\nrank 1 signal 15 20\nended 21\n", Some(15), Some(End::Stopped)),
            ("ended 21\n", Some(15), Some(End::Stopped)),
            // Never a success if it was told to end.
            ("rank 0 exit 0 10\nrank 1 exit 0 11\ntold\nended 12\n", None, Some(End::Lost)),
            (
                "rank 0 exit 1 10\nrank 1 signal 15 11\ntold\nended 12\n",
                None,
                failed(0, RankEnd::Exit(1)),
            ),
        ] {
            assert_eq!(end(text, stopped), wanted, "{text}");
        }
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(quoted("it's $HOME\n"), "'it'\\''s $HOME\n'");
    }
}
