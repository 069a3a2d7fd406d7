//! What attempts on other machines leave in a folder that those machines see too.
//!
//! The engine's own scripts write there: `exit`, the truth about how an attempt ended, and the output of
//! each rank. What the engine itself says is asked only where there is no `exit`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use falaj_base::Secret;
use zeroize::Zeroizing;

use crate::plain;
use crate::{End, Launch, RankEnd, Usage};

/// By the engine's script, at the end.
pub(crate) const EXIT: &str = "exit";
/// By the engine's script, before it starts anything: milliseconds since 1970.
pub(crate) const STARTED: &str = "started-at";
/// By the server, before it tells the engine: milliseconds since 1970.
pub(crate) const STOP: &str = "stop";

/// No rank outlives the first failure longer. Engines need a second or two around it.
pub(crate) const LONGEST_GANG_GRACE: Duration = Duration::from_millis(2_500);

/// How often ends are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// How soon an attempt is looked at again that has left an end which cannot be told yet.
const AGAIN: Duration = Duration::from_millis(500);

/// The end as it was written down.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ending {
    ranks: BTreeMap<u32, (RankEnd, u64)>,
    timed_out: bool,
    /// Its ranks were told to end, by whomever.
    told: bool,
    /// The ranks that ended before anybody told them to.
    untold: BTreeSet<u32>,
    pub(crate) ended: u64,
}

impl Ending {
    /// `None` as long as there is none, or only a part of it is to be seen.
    pub(crate) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let bytes = plain::read(&folder.join(EXIT), plain::RECORD)?;
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
                ["untold", rank] => {
                    ending.untold.insert(rank.parse().ok()?);
                }
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
        let untold = !self.told && (0..ranks).all(|rank| self.untold.contains(&rank));
        match (first, stopped) {
            // They were done before they heard of it, whatever the clocks of machines say.
            (None, Some(_)) if untold => End::Succeeded,
            (None, Some(_)) if self.told => End::Stopped,
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

/// Ranks that lie evenly on nodes, one node after the other, as engines are asked for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Even {
    pub(crate) nodes: usize,
    /// Ranks of each.
    pub(crate) per_node: usize,
    /// GPUs of each rank.
    pub(crate) gpus: usize,
}

impl Even {
    /// `engine` is what a refusal calls it.
    pub(crate) fn of(launch: &Launch, engine: &str) -> Result<Self, String> {
        let mut nodes: Vec<(&str, usize)> = Vec::new();
        for rank in &launch.ranks {
            match nodes.last_mut() {
                Some((node, count)) if *node == rank.node => *count += 1,
                _ => nodes.push((&rank.node, 1)),
            }
        }
        let per_node = nodes.first().map_or(0, |(_, count)| *count);
        if nodes.iter().any(|(_, count)| *count != per_node) {
            return Err(format!(
                "ranks: on {engine}, each node has equally many, and those of a node stand together"
            ));
        }
        let gpus = launch.ranks.first().map_or(0, |rank| rank.gpus.len());
        if launch.ranks.iter().any(|rank| rank.gpus.len() != gpus) {
            return Err(format!("ranks: on {engine}, each has equally many GPUs"));
        }
        Ok(Self { nodes: nodes.len(), per_node, gpus })
    }
}

/// The number in a small file.
pub(crate) fn number(path: &Path) -> io::Result<Option<u64>> {
    let bytes = plain::read(path, plain::WORD)?;
    Ok(bytes.and_then(|bytes| String::from_utf8_lossy(&bytes).trim().parse().ok()))
}

/// What the ranks of an attempt use, as those who follow them write it: thousandths of a second of CPU, bytes of
/// memory now and at most, bytes read and written. `None` as long as nobody has written anything.
pub(crate) fn usage(folder: &Path, ranks: u32) -> io::Result<Option<Usage>> {
    let mut all: Option<Usage> = None;
    // The number of ranks stands where the job can write too.
    for rank in 0..ranks.min(u32::try_from(crate::MOST_RANKS).unwrap_or(u32::MAX)) {
        let Some(bytes) = plain::read(&folder.join(format!("rank-{rank}.usage")), plain::WORD)?
        else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes);
        let numbers: Vec<u64> =
            text.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        let [cpu, memory, peak, read, written] = numbers[..] else { continue };
        let sum = all.get_or_insert_with(Usage::default);
        sum.cpu_seconds += Duration::from_millis(cpu).as_secs_f64();
        sum.memory_bytes = sum.memory_bytes.saturating_add(memory);
        sum.peak_memory_bytes = sum.peak_memory_bytes.saturating_add(peak);
        sum.read_bytes = sum.read_bytes.saturating_add(read);
        sum.written_bytes = sum.written_bytes.saturating_add(written);
    }
    Ok(all)
}

/// Writes down that an attempt is told to stop; the first time counts.
pub(crate) fn note_stop(folder: &Path) -> io::Result<()> {
    let path = folder.join(STOP);
    if number(&path)?.is_some() {
        return Ok(());
    }
    plain::put_bytes(&path, crate::shim::now().to_string().as_bytes(), 0o600)
}

/// The attempts whose ends are waited for.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    folders: Vec<PathBuf>,
    /// Some have left an end already, and what it means is not known yet.
    again: bool,
}

impl Awaited {
    pub(crate) fn add(&mut self, folder: PathBuf) {
        if plain::is_there(&folder.join(EXIT)) {
            self.again = true;
        } else {
            self.folders.push(folder);
        }
    }

    /// From now on these are waited for.
    pub(crate) fn replace(awaited: &Mutex<Self>, by: Self) {
        *awaited.lock().unwrap_or_else(PoisonError::into_inner) = by;
    }

    /// Waits until one of them has left an end, or the time is up.
    pub(crate) fn wait(awaited: &Mutex<Self>, at_most: Duration) {
        let begun = Instant::now();
        loop {
            let (ended, at_most) = {
                let awaited = awaited.lock().unwrap_or_else(PoisonError::into_inner);
                let ended = awaited.folders.iter().any(|one| plain::is_there(&one.join(EXIT)));
                (ended, if awaited.again { at_most.min(AGAIN) } else { at_most })
            };
            let left = at_most.saturating_sub(begun.elapsed());
            if ended || left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

/// Variables as `NAME=value`, each with a zero byte after it: what a shell reads without interpreting it.
pub(crate) fn variables<'a>(all: impl Iterator<Item = (&'a String, &'a str)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in all {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// The same of secrets.
pub(crate) fn secret_variables(secrets: &BTreeMap<String, Secret>) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(variables(secrets.iter().map(|(name, value)| (name, value.expose()))))
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
    fn what_ranks_use_is_added_up() {
        let folder = tempfile::tempdir().unwrap();
        let write = |rank: u32, text: &str| {
            std::fs::write(folder.path().join(format!("rank-{rank}.usage")), text).unwrap();
        };
        assert_eq!(usage(folder.path(), 3).unwrap(), None);
        write(0, "1500 10 20 3 4\n");
        // Half of it, or something else, is nothing.
        write(1, "1 2");
        write(2, "500 1 2 0 18446744073709551615\n");
        write(3, "9 9 9 9 9");
        let wanted = Usage {
            cpu_seconds: 2.0,
            memory_bytes: 11,
            peak_memory_bytes: 22,
            read_bytes: 3,
            written_bytes: u64::MAX,
        };
        assert_eq!(usage(folder.path(), 3).unwrap(), Some(wanted));
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
            // Done before it was told, though its clock is ahead; and told, though its clock is behind.
            (
                "rank 0 exit 0 10\nuntold 0\nrank 1 exit 0 20\nuntold 1\nended 21\n",
                Some(15),
                Some(End::Succeeded),
            ),
            (
                "rank 0 exit 0 10\nuntold 0\nrank 1 exit 0 11\ntold\nended 12\n",
                Some(15),
                Some(End::Stopped),
            ),
            (
                "rank 0 exit 0 10\nuntold 0\nrank 1 exit 0 20\nended 21\n",
                Some(15),
                Some(End::Stopped),
            ),
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
    fn an_end_that_is_not_understood_yet_is_no_reason_to_look_all_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("attempt");
        std::fs::create_dir(&here).unwrap();
        let awaited = Mutex::new(Awaited::default());
        awaited.lock().unwrap().add(here.clone());
        plain::put_bytes(&here.join(EXIT), b"", 0o600).unwrap();
        let begun = Instant::now();
        Awaited::wait(&awaited, Duration::from_secs(30));
        assert!(begun.elapsed() < Duration::from_millis(200), "its end is not noticed");
        let again = Mutex::new(Awaited::default());
        again.lock().unwrap().add(here);
        let begun = Instant::now();
        Awaited::wait(&again, Duration::from_secs(30));
        assert!((AGAIN..Duration::from_secs(10)).contains(&begun.elapsed()));
    }

    #[test]
    fn a_stop_is_noted_once_whatever_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("attempt");
        std::fs::create_dir(&here).unwrap();
        let outside = folder.path().join("outside");
        std::fs::write(&outside, "no number").unwrap();
        std::os::unix::fs::symlink(&outside, here.join(STOP)).unwrap();
        assert_eq!(number(&here.join(STOP)).unwrap(), None);
        note_stop(&here).unwrap();
        let noted = number(&here.join(STOP)).unwrap();
        assert!(noted.is_some());
        note_stop(&here).unwrap();
        assert_eq!(number(&here.join(STOP)).unwrap(), noted);
        assert_eq!(std::fs::read_to_string(outside).unwrap(), "no number");
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(quoted("it's $HOME\n"), "'it'\\''s $HOME\n'");
    }
}
