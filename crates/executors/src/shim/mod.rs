//! The shim: one small process for each attempt, which stands between its ranks and everything else.
//!
//! The [nursery](crate::nursery) of a server forks it, and both may die at any moment after that. The shim
//! starts the ranks, watches them, keeps their limits and writes down how they ended.
//!
//! Must hold:
//! - It holds the attempt's lock (its standard output *is* the locked file, since before it was started) as
//!   long as it lives. Whoever can take the lock knows that there is no shim.
//! - `state.json` is there before the first rank is: an attempt that has one is never started again.
//! - When it writes `exit.json`, no process below it is left. As long as one is, there is no end: what has
//!   ended may be started again, beside whatever is left.
//! - It starts fast: no runtime, no configuration, nothing of the rest of the program.

mod gang;
pub(crate) mod logs;
mod rank;
pub(crate) mod record;
mod tree;
mod watch;

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use falaj_base::Secret;
use rustix::process::{
    Pid, Resource, Rlimit, getpid, getrlimit, prlimit, set_child_subreaper, setrlimit, setsid,
};
use zeroize::Zeroizing;

use crate::cgroup::{Group, Plan};
use crate::{AttemptId, End, RankEnd, Usage, plain, process};
use gang::{Gang, Rules};
use record::{CONTROL, EXIT, Exit, KILL, Kept, LAUNCH, STATE, STOP, State, WORK};
use watch::Watch;

/// How long killed processes are waited for until it is said that some are left.
const CLEAR: Duration = Duration::from_secs(30);

/// Runs an attempt from its beginning to its end.
#[must_use]
pub fn main(folder: &Path) -> ExitCode {
    match run(folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("shim of {}: {error}", folder.display()));
            give_up(folder, tree::clear(CLEAR));
            ExitCode::FAILURE
        }
    }
}

/// Says something in the file beside the record, which is the standard error.
fn say(text: &str) {
    let _ = io::Write::write_all(&mut io::stderr(), format!("{text}\n").as_bytes());
}

/// Writes down an end of which nothing more is known. Not while processes are left: without an end it is
/// the server's to bury.
fn give_up(folder: &Path, cleared: bool) {
    if !cleared || plain::is_there(&folder.join(EXIT)) {
        return;
    }
    let state: Option<State> = plain::get(&folder.join(STATE), plain::RECORD).unwrap_or_default();
    // Once there is a state ranks may have run, and whatever broke then was not theirs.
    let end = if plain::is_there(&folder.join(STATE)) {
        End::Lost
    } else {
        End::Failed { rank: 0, how: RankEnd::NotStarted }
    };
    let exit = Exit {
        end,
        ranks: Vec::new(),
        started: state.as_ref().and_then(|state| state.started),
        ended: now(),
        isolation: state.map_or_else(|| Plan::None.name().to_owned(), |state| state.isolation),
        usage: None,
    };
    let _ = plain::put_durably(&folder.join(EXIT), &exit);
}

/// Lets this process have as many files open as it may: two for each rank. Returns the limit it had, which
/// is the one for ranks.
fn raise_files() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before });
    before
}

fn run(folder: &Path) -> io::Result<()> {
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    // Both ways, so that it never sees an end; before anything else, so that nothing said is missed.
    let control = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nonblocking())
        .open(folder.join(CONTROL))?;
    let secrets = secrets()?;
    if folder.join(EXIT).exists() || folder.join(STATE).exists() {
        return Ok(());
    }
    let kept: Kept = plain::get(&folder.join(LAUNCH), plain::LAUNCH)?
        .ok_or_else(|| io::Error::other(format!("{LAUNCH} is missing or unreadable")))?;
    let files = raise_files();
    Attempt::new(folder, kept, files)?.run(secrets, control)
}

fn nonblocking() -> i32 {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    i32::try_from(flags).unwrap_or_default()
}

/// The secrets, from a piece of memory without a name that the server made for this process.
fn secrets() -> io::Result<BTreeMap<String, Secret>> {
    let mut text = Zeroizing::new(String::new());
    io::stdin().lock().read_to_string(&mut text)?;
    if text.is_empty() {
        return Ok(BTreeMap::new());
    }
    serde_json::from_str(&text).map_err(io::Error::from)
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    millis(since)
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

struct Attempt<'a> {
    folder: &'a Path,
    kept: Kept,
    groups: Vec<Group>,
    state: State,
    /// How many files a rank may have open.
    files: Rlimit,
}

/// What became of starting the ranks: a process, or the reason why there is none.
type Started = Vec<Result<Pid, String>>;

impl<'a> Attempt<'a> {
    fn new(folder: &'a Path, kept: Kept, files: Rlimit) -> io::Result<Self> {
        let attempt = kept.attempt().ok_or_else(|| io::Error::other("no name of an attempt"))?;
        let groups = groups(&kept, &attempt);
        let own = getpid();
        let state = State {
            shim: own.as_raw_nonzero().get(),
            shim_start: process::start_time(own).unwrap_or_default(),
            boot: process::boot().to_owned(),
            started: None,
            ranks: Vec::new(),
            isolation: if groups.is_empty() { Plan::None.name() } else { kept.plan.name() }
                .to_owned(),
        };
        Ok(Self { folder, kept, groups, state, files })
    }

    fn run(mut self, secrets: BTreeMap<String, Secret>, control: File) -> io::Result<()> {
        // If there are not enough files for all, nothing has been started yet.
        let logs = (0..self.kept.ranks.len())
            .map(|rank| rank::log(self.folder, rank))
            .collect::<io::Result<Vec<_>>>()?;
        // Its being there says that nothing may be started again; what it says is not needed yet. Should
        // there ever be two shims, one of them makes it, and the other one goes.
        let kept = match plain::put_new(&self.folder.join(STATE), &self.state) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            other => other?,
        };
        let begun = Instant::now();
        let started = self.start(&secrets, &logs);
        drop(secrets);
        self.state.started = Some(now());
        let id = |rank: &Result<Pid, String>| {
            rank.as_ref().map_or(0, |pid: &Pid| pid.as_raw_nonzero().get())
        };
        self.state.ranks = started.iter().map(id).collect();
        plain::put_over(&kept, &self.state)?;
        drop(kept);

        let rules = Rules {
            grace: self.kept.grace_ms,
            gang_grace: self.kept.gang_grace_ms,
            limit: self.kept.limits.time.map(millis),
        };
        let gang = Gang::new(started.len(), rules);
        let asked = |name: &str| self.folder.join(name).exists();
        let mut watch = Watch::new(gang, control, logs, self.kept.log_limit, begun);
        watch.begin(&started, asked(STOP), asked(KILL));
        let gang = watch.until_over(|rank| self.out_of_memory(rank));
        self.finish(gang)
    }

    fn start(&self, secrets: &BTreeMap<String, Secret>, logs: &[File]) -> Started {
        let mut started = Vec::new();
        let place = match self.place() {
            Ok(place) => place,
            Err(why) => {
                for log in logs {
                    rank::explain(log, &why);
                }
                return logs.iter().map(|_| Err(why.clone())).collect();
            }
        };
        for (rank, log) in logs.iter().enumerate() {
            if started.iter().any(Result::is_err) {
                started.push(Err("another rank could not be started".to_owned()));
                continue;
            }
            let joined = self.groups.get(rank).map_or(Ok(()), Group::join);
            let result = joined
                .and_then(|()| rank::start(&self.kept, secrets, rank, log, &place))
                .map_err(|error| format!("cannot start `{}`: {error}", self.kept.command[0]));
            match &result {
                Ok(pid) => self.bound(*pid),
                Err(why) => rank::explain(log, why),
            }
            started.push(result);
        }
        if !self.groups.is_empty() {
            // If it cannot, it stays in the last rank's group, and counts there.
            let _ = self.kept.plan.leave();
        }
        started
    }

    /// Bounds the files of a rank as they were, and the memory of one that has no group.
    ///
    /// Not memory as it is used but as it is asked for: the best there is without groups. On the rank and not
    /// on the shim, whose allocator asks for more than a small rank may have.
    fn bound(&self, rank: Pid) {
        let _ = prlimit(Some(rank), Resource::Nofile, self.files);
        if self.groups.is_empty() && self.kept.limits.memory_mib > 0 {
            let most = Some(u64::from(self.kept.limits.memory_mib) << 20);
            let limit = Rlimit { current: most, maximum: most };
            let _ = prlimit(Some(rank), Resource::Data, limit);
        }
    }

    /// The folder in which ranks start.
    fn place(&self) -> Result<PathBuf, String> {
        if let Some(folder) = &self.kept.folder {
            let there = folder.is_dir();
            return there.then(|| folder.clone()).ok_or_else(|| {
                format!("folder: `{}` is not there, or is no folder", folder.display())
            });
        }
        let work = self.folder.join(WORK);
        match DirBuilder::new().mode(0o700).create(&work) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(format!("cannot make {}: {error}", work.display()))
            }
            _ => Ok(work),
        }
    }

    fn out_of_memory(&self, rank: usize) -> bool {
        self.groups.get(rank).is_some_and(|group| group.out_of_memory() > 0)
    }

    fn finish(self, gang: Gang) -> io::Result<()> {
        while !tree::clear(CLEAR) {
            say("processes are left that cannot be killed; there is no end until they are gone");
        }
        let usage = (!self.groups.is_empty()).then(|| total(&self.groups));
        self.groups.iter().for_each(Group::remove);
        let (end, ranks) = gang.end();
        let exit = Exit {
            end,
            ranks,
            started: self.state.started,
            ended: now(),
            isolation: self.state.isolation,
            usage,
        };
        plain::put_durably(&self.folder.join(EXIT), &exit)
    }
}

/// Makes the groups of all ranks; none if there is nothing to limit, or one cannot be made.
fn groups(kept: &Kept, attempt: &AttemptId) -> Vec<Group> {
    if kept.limits.cpu_millis == 0 && kept.limits.memory_mib == 0 {
        return Vec::new();
    }
    let groups: Vec<Group> =
        (0..kept.ranks.len()).filter_map(|rank| kept.plan.group(attempt, rank)).collect();
    let made = groups.iter().try_for_each(|group| group.make(&kept.limits));
    if let Err(error) = made {
        say(&format!("no control groups, so limits are not kept: {error}"));
        groups.iter().for_each(Group::remove);
        return Vec::new();
    }
    groups
}

/// What all ranks have used.
pub(crate) fn total(groups: &[Group]) -> Usage {
    groups.iter().map(Group::usage).fold(Usage::default(), |sum, one| Usage {
        cpu_seconds: sum.cpu_seconds + one.cpu_seconds,
        memory_bytes: sum.memory_bytes + one.memory_bytes,
        peak_memory_bytes: sum.peak_memory_bytes + one.peak_memory_bytes,
        read_bytes: sum.read_bytes + one.read_bytes,
        written_bytes: sum.written_bytes + one.written_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(folder: &Path) -> Option<End> {
        plain::get::<Exit>(&folder.join(EXIT), plain::RECORD).unwrap().map(|exit| exit.end)
    }

    #[test]
    fn there_is_no_end_while_processes_are_left() {
        let folder = tempfile::tempdir().unwrap();
        give_up(folder.path(), false);
        assert_eq!(end(folder.path()), None);
        give_up(folder.path(), true);
        let not_started = End::Failed { rank: 0, how: RankEnd::NotStarted };
        assert_eq!(end(folder.path()), Some(not_started));
    }

    #[test]
    fn what_breaks_once_ranks_may_run_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(STATE), "").unwrap();
        give_up(folder.path(), true);
        assert_eq!(end(folder.path()), Some(End::Lost));
        // What was written down before stays.
        std::fs::remove_file(folder.path().join(STATE)).unwrap();
        give_up(folder.path(), true);
        assert_eq!(end(folder.path()), Some(End::Lost));
    }
}
