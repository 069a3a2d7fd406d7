//! Output of containers, copied into the folder of their attempt as long as the cluster has it.
//!
//! The cluster knows no offsets: it gives a log from a second on, each line with its time. So a copy notes
//! the time of the last line that it has, how many lines have that very time, and how much of an
//! unfinished one is there.
//!
//! Must hold: what is copied is what was written, each byte once, also if this process is killed in the
//! middle: a file that is longer than its note is cut back before it goes on.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures::{AsyncBufRead, AsyncBufReadExt};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::api::{Api, Fault};
use crate::shim::logs::bound;
use crate::{folder, plain};

/// The most that is copied at once.
const MOST: u64 = 8 << 20;
/// Nobody's times are longer.
const LONGEST_TIME: usize = 64;
/// How far lines may be out of order: those of both streams are written side by side.
const APART: i64 = 2_000_000_000;
const SECOND: i64 = 1_000_000_000;
/// The most of an answer that is repeated.
const SHOWN: usize = 200;
/// What a node says that does not have a container any more, or cannot ask for it now.
const NO_CONTAINER: &str = "unable to retrieve container logs";

/// How far a copy has come. Kept in a file: the names are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Position {
    /// Bytes in the copy.
    length: u64,
    /// Of the last line, in nanoseconds since 1970.
    time: Option<i64>,
    /// How many whole lines have that time.
    same: u32,
    /// How much of an unfinished one is there.
    open: u64,
    /// Nothing comes any more.
    pub(super) done: bool,
}

impl Position {
    pub(super) fn read(folder: &Path, rank: u32) -> io::Result<Self> {
        Ok(plain::get(&note(folder, rank), plain::RECORD)?.unwrap_or_default())
    }

    fn since(&self) -> Option<Timestamp> {
        let seconds = self.time?.div_euclid(SECOND) - 1;
        Timestamp::from_second(seconds).ok()
    }
}

fn note(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("rank-{rank}.copied"))
}

/// Finds what is new in a log that is given from some time on.
#[derive(Debug)]
struct Reader {
    at: Position,
    /// Whether the end of the copy has been passed.
    found: bool,
    /// Lines of the last time that have been passed.
    passed: u32,
    first: bool,
    line: Line,
    /// Whether what followed the copy is not there any more.
    gap: bool,
}

#[derive(Debug)]
enum Line {
    /// Its time, as far as it was read.
    Time(Vec<u8>),
    /// It is in the copy; whether it is the last one there.
    Known(bool),
    /// So much of it is known.
    Grown(u64),
    New,
}

impl Reader {
    fn new(at: Position) -> Self {
        let found = at.time.is_none();
        let line = Line::Time(Vec::new());
        Self { at, found, passed: 0, first: true, line, gap: false }
    }

    /// Takes a part of the log in; whether it is one.
    fn feed(&mut self, mut bytes: &[u8], new: &mut Vec<u8>) -> bool {
        while !bytes.is_empty() {
            if let Line::Time(time) = &mut self.line {
                let Some(end) = bytes.iter().position(|b| matches!(b, b' ' | b'\n')) else {
                    time.extend_from_slice(bytes);
                    return time.len() <= LONGEST_TIME;
                };
                time.extend_from_slice(&bytes[..end]);
                let Some(time) = parse(time).filter(|_| bytes[end] == b' ') else { return false };
                bytes = &bytes[end + 1..];
                self.line = self.begin(time);
                self.first = false;
                continue;
            }
            let end = bytes.iter().position(|b| *b == b'\n').map(|at| at + 1);
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            bytes = rest;
            self.take(part, new);
            if end.is_some() {
                self.finish();
            }
        }
        true
    }

    /// What a line of this time is.
    fn begin(&mut self, time: i64) -> Line {
        if !self.found {
            let last = self.at.time.unwrap_or(i64::MIN);
            let far = if self.first { last } else { last.saturating_add(APART) };
            if time == last && self.passed == self.at.same {
                // All whole ones of that time are behind: this is the unfinished one.
                self.found = true;
                return Line::Grown(self.at.open);
            }
            if time <= far {
                self.passed += u32::from(time == last);
                let is_last = time == last && self.passed == self.at.same && self.at.open == 0;
                return Line::Known(is_last);
            }
            self.found = true;
            self.gap = true;
        }
        if self.at.time != Some(time) {
            self.at.time = Some(time);
            self.at.same = 0;
        }
        self.at.open = 0;
        Line::New
    }

    fn take(&mut self, part: &[u8], new: &mut Vec<u8>) {
        let part = match &mut self.line {
            Line::Time(_) | Line::Known(_) => return,
            Line::Grown(known) => {
                let skipped = usize::try_from(*known).unwrap_or(usize::MAX).min(part.len());
                *known -= skipped as u64;
                &part[skipped..]
            }
            Line::New => part,
        };
        self.at.open += part.len() as u64;
        self.at.length += part.len() as u64;
        new.extend_from_slice(part);
    }

    fn finish(&mut self) {
        if let Line::Known(is_last) = self.line {
            self.found = is_last;
        } else {
            self.at.same += 1;
            self.at.open = 0;
        }
        self.line = Line::Time(Vec::new());
    }
}

fn parse(time: &[u8]) -> Option<i64> {
    let time: Timestamp = std::str::from_utf8(time).ok()?.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

/// How long the copy of an output is.
pub(super) fn length(source: &Source) -> io::Result<u64> {
    Position::read(&source.folder, source.rank).map(|at| at.length)
}

/// Whose output is copied, and where to.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) folder: PathBuf,
    pub(super) rank: u32,
    pub(super) pod: String,
    pub(super) container: String,
    /// Whether it has ended, and all of it must be there.
    pub(super) ended: bool,
    /// Whether its pod is being removed: as soon as it has ended, its node removes what it wrote.
    pub(super) removed: bool,
    /// The most that is kept.
    pub(super) keep: u64,
}

/// What came of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// All there is, or will be if it has ended.
    All,
    /// There is more.
    Part,
}

/// Copies what is new, as far as that goes until then.
pub(super) async fn copy(api: &Api, source: &Source, until: Instant) -> Result<Copied, Fault> {
    let failed = |error: io::Error| Fault::Away(format!("{}: {error}", source.folder.display()));
    let at = Position::read(&source.folder, source.rank).map_err(failed)?;
    if at.done {
        return Ok(Copied::All);
    }
    let slow = || Fault::Away(format!("Kubernetes: the log of {} does not come", source.pod));
    let log = api.log(&source.pod, &source.container, at.since());
    let log = match timeout_at(until, log).await.map_err(|_| slow())? {
        Ok(log) => log,
        Err(Fault::Away(text)) => return Err(Fault::Away(text)),
        // Not started yet, or gone.
        Err(_) if !source.ended => return Ok(Copied::All),
        Err(fault) => return give_up(source, fault).map_err(failed),
    };
    let read = take(log, source, at, until).await;
    read.map_err(|error| Fault::Away(format!("Kubernetes: log of {}: {error}", source.pod)))
}

async fn take(
    log: impl AsyncBufRead,
    source: &Source,
    at: Position,
    until: Instant,
) -> io::Result<Copied> {
    let mut log = pin!(log);
    let path = source.folder.join(folder::log_name(source.rank));
    let mut file = plain::open_to_add(&path, b"")?;
    if file.metadata()?.len() != at.length {
        file.set_len(at.length)?;
    }
    let begun = at.length;
    let mut reader = Reader::new(at);
    let mut new = Vec::new();
    let mut outcome = Ok(Copied::All);
    loop {
        let bytes = match timeout_at(until, log.fill_buf()).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => {
                outcome = Err(error);
                break;
            }
            // What came is kept, so that the rest comes however slow it is.
            Err(_) if reader.at.length > begun => {
                outcome = Ok(Copied::Part);
                break;
            }
            Err(_) => {
                outcome = Err(io::Error::other("it does not come"));
                break;
            }
        };
        let length = bytes.len();
        let is_log = reader.feed(bytes, &mut new);
        let mut is_gone = false;
        if !is_log {
            // Words of the node's own: the log is being turned over, or is gone.
            let text = said(bytes);
            is_gone = source.ended && source.removed && text.starts_with(NO_CONTAINER);
            if !is_gone {
                outcome = Err(io::Error::other(text));
            }
        }
        if std::mem::take(&mut reader.gap) || is_gone {
            let text =
                b"\nfalaj: some output may be missing here: the node did not have its last lines any more\n";
            file.write_all(text)?;
            reader.at.length += text.len() as u64;
        }
        file.write_all(&new)?;
        new.clear();
        if length == 0 || !is_log {
            break;
        }
        log.as_mut().consume(length);
        if reader.at.length - begun >= MOST {
            outcome = Ok(Copied::Part);
            break;
        }
    }
    if reader.at.length > begun {
        bound(&file, source.keep);
    }
    reader.at.done = source.ended && matches!(outcome, Ok(Copied::All));
    if reader.at.length > begun || reader.at.done {
        plain::put(&note(&source.folder, source.rank), &reader.at)?;
    }
    outcome
}

/// The beginning of an answer, to be repeated.
fn said(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Says that nothing more comes.
fn give_up(source: &Source, fault: Fault) -> io::Result<Copied> {
    let mut at = Position::read(&source.folder, source.rank)?;
    if let Fault::Never(text) = fault {
        let text = format!("falaj: its output cannot be read: {text}\n");
        say(&source.folder, source.rank, &text)?;
        at = Position::read(&source.folder, source.rank)?;
    }
    at.done = true;
    plain::put(&note(&source.folder, source.rank), &at)?;
    Ok(Copied::All)
}

/// Adds words of our own to an output, and ends it.
pub(super) fn say(folder: &Path, rank: u32, text: &str) -> io::Result<()> {
    let mut at = Position::read(folder, rank)?;
    if at.done {
        return Ok(());
    }
    let path = folder.join(folder::log_name(rank));
    let mut file = plain::open_to_add(&path, b"")?;
    file.set_len(at.length)?;
    file.write_all(text.as_bytes())?;
    at.length += text.len() as u64;
    at.done = true;
    plain::put(&note(folder, rank), &at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(at: &Position, log: &str, piece: usize) -> (Position, String, bool) {
        let mut reader = Reader::new(at.clone());
        let mut new = Vec::new();
        let is_log = log.as_bytes().chunks(piece).all(|part| reader.feed(part, &mut new));
        let _ = is_log;
        (reader.at, String::from_utf8(new).unwrap(), reader.gap)
    }

    fn line(second: u32, nano: u32, text: &str) -> String {
        format!("2026-01-01T00:00:{second:02}.{nano:09}Z {text}")
    }

    #[test]
    fn whatever_is_cut_wherever_each_byte_comes_once() {
        let lines = [
            line(1, 1, "one\n"),
            line(1, 1, "two of that time\n"),
            line(1, 1, "\n"),
            line(3, 500, "out of order\n"),
            line(3, 400, "before it\n"),
            line(3, 400, "before it\n"),
            line(9, 0, "the last has no end"),
        ];
        let log = lines.concat();
        let whole =
            "one\ntwo of that time\n\nout of order\nbefore it\nbefore it\nthe last has no end";
        for cut in 0..=log.len() {
            for piece in [1, 7, 1000] {
                let (at, first, _) = read(&Position::default(), &log[..cut], piece);
                let (end, second, gap) = read(&at, &log, piece);
                assert_eq!(format!("{first}{second}"), whole, "cut at {cut}: {first}|{second}");
                assert!(!gap);
                assert_eq!(end.length, whole.len() as u64);
                // And nothing more.
                assert_eq!(read(&end, &log, piece).1, "");
            }
        }
    }

    #[test]
    fn a_part_that_is_gone_is_told() {
        let before = line(1, 0, "one\n");
        let (at, ..) = read(&Position::default(), &before, 100);
        let (_, new, gap) = read(&at, &line(30, 0, "much later\n"), 100);
        assert_eq!((new.as_str(), gap), ("much later\n", true));
        let log = [line(0, 0, "zero\n"), line(30, 0, "much later\n")].concat();
        let (_, new, gap) = read(&at, &log, 100);
        assert_eq!((new.as_str(), gap), ("much later\n", true));
    }

    fn source(folder: &Path, ended: bool) -> Source {
        let (pod, container) = ("pod".to_owned(), "rank-0".to_owned());
        let (folder, keep) = (folder.to_owned(), 1 << 20);
        Source { folder, rank: 0, pod, container, ended, removed: false, keep }
    }

    /// What a log is copied as, and whether it is then whole.
    fn taken(folder: &Path, log: impl AsyncBufRead) -> (io::Result<Copied>, String, bool) {
        taken_from(&source(folder, true), log)
    }

    fn taken_from(source: &Source, log: impl AsyncBufRead) -> (io::Result<Copied>, String, bool) {
        let folder = &source.folder;
        let at = Position::read(folder, 0).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let outcome = runtime.block_on(async {
            let until = Instant::now() + std::time::Duration::from_millis(200);
            take(log, source, at, until).await
        });
        let copy = std::fs::read_to_string(folder.join("rank-0.log")).unwrap();
        (outcome, copy, Position::read(folder, 0).unwrap().done)
    }

    #[test]
    fn words_of_a_node_are_no_end_of_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let node = "failed to try resolving symlinks in path \"/var/log/pods/x\"\n";
        let log = [line(1, 0, "one\n"), node.to_owned()].concat();
        let (outcome, copy, done) = taken(folder.path(), log.as_bytes());
        assert!(outcome.unwrap_err().to_string().contains("symlinks"));
        assert_eq!((copy.as_str(), done), ("one\n", false));
        // The rest comes when it can be had.
        let log = [line(1, 0, "one\n"), line(2, 0, "two\n")].concat();
        let (outcome, copy, done) = taken(folder.path(), log.as_bytes());
        assert_eq!((outcome.unwrap(), copy.as_str(), done), (Copied::All, "one\ntwo\n", true));
    }

    #[test]
    fn what_went_with_its_pod_is_not_waited_for() {
        let gone = format!("{NO_CONTAINER} for containerd://1234");
        let of = |ended, removed| {
            let folder = tempfile::tempdir().unwrap();
            let one = Source { removed, ..source(folder.path(), false) };
            taken_from(&one, line(1, 0, "one\n").as_bytes()).0.unwrap();
            taken_from(&Source { ended, ..one }, gone.as_bytes())
        };
        // Its node may be able to tell later.
        for (ended, removed) in [(false, false), (true, false), (false, true)] {
            let (outcome, copy, done) = of(ended, removed);
            assert!(outcome.unwrap_err().to_string().contains("1234"));
            assert_eq!((copy.as_str(), done), ("one\n", false));
        }
        let (outcome, copy, done) = of(true, true);
        assert_eq!((outcome.unwrap(), done), (Copied::All, true));
        assert!(copy.starts_with("one\n\nfalaj: some output may be missing here"), "{copy}");
    }

    #[test]
    fn what_came_of_a_slow_log_is_kept() {
        use futures::{AsyncReadExt, StreamExt, TryStreamExt, stream};
        let folder = tempfile::tempdir().unwrap();
        let slow = |text: String| {
            let never = stream::pending::<io::Result<Vec<u8>>>();
            let some = stream::iter([Ok(text.into_bytes())]).chain(never);
            futures::io::BufReader::new(some.into_async_read().take(u64::MAX))
        };
        let (outcome, copy, done) = taken(folder.path(), slow(line(1, 0, "one\n")));
        assert_eq!((outcome.unwrap(), copy.as_str(), done), (Copied::Part, "one\n", false));
        let (outcome, copy, done) = taken(folder.path(), slow(line(1, 0, "one\n")));
        assert!(outcome.is_err());
        assert_eq!((copy.as_str(), done), ("one\n", false));
    }

    #[test]
    fn what_is_no_log_is_not_copied() {
        let text = "unable to retrieve container logs for containerd://1234\n";
        assert_eq!(read(&Position::default(), text, 1000).1, "");
        assert_eq!(read(&Position::default(), "x".repeat(1000).as_str(), 10).1, "");
    }
}
