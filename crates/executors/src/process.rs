//! What `/proc` tells of processes: who they are, who is below whom, what they use.
//!
//! Everything here is a look at something that moves: a process may be gone the next moment.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::{AttemptId, Usage};

/// The variable by which a process is known to belong to an attempt.
pub(crate) const MARK: &str = "FALAJ_ATTEMPT";

/// The most processes that are looked at for one attempt.
const MOST: usize = 65_536;

fn of(pid: Pid, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// Which start of the machine this is.
pub(crate) fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        text.trim().to_owned()
    })
}

/// The words of `/proc/PID/stat` after the program's name, which may itself hold anything.
fn stat(pid: Pid) -> Option<Vec<String>> {
    let text = fs::read_to_string(of(pid, "stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_ascii_whitespace().map(str::to_owned).collect())
}

/// When a process started, in ticks since the machine did; with its id it names it for good.
pub(crate) fn start_time(pid: Pid) -> Option<u64> {
    stat(pid)?.get(19)?.parse().ok()
}

/// The children of a process, over all its threads.
fn children(pid: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(of(pid, "task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found
            .extend(text.split_ascii_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)));
    }
    found
}

/// All processes below one.
pub(crate) fn below(pid: Pid) -> Vec<Pid> {
    if !of(pid, &format!("task/{pid}/children")).exists() {
        return below_by_parents(pid);
    }
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() && found.len() < MOST {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}

/// Whether a process is below another one.
pub(crate) fn is_below(pid: Pid, above: Pid) -> bool {
    let mut at = pid;
    for _ in 0..MOST {
        match parent(at) {
            Some(parent) if parent == above => return true,
            Some(parent) => at = parent,
            None => return false,
        }
    }
    false
}

fn parent(pid: Pid) -> Option<Pid> {
    Pid::from_raw(stat(pid)?.get(1)?.parse().ok()?)
}

/// Kills a process if it is still the one that was meant: `is_meant` is asked while its id cannot become
/// another's.
pub(crate) fn kill(pid: Pid, is_meant: impl Fn(Pid) -> bool) {
    let held = pidfd_open(pid, PidfdFlags::empty());
    if !is_meant(pid) {
        return;
    }
    let _ = match held {
        Ok(held) => pidfd_send_signal(held, Signal::KILL),
        // No descriptor is to be had: what is left running would be worse than the moment in between.
        Err(_) => kill_process(pid, Signal::KILL),
    };
}

/// The same on kernels that do not list children.
fn below_by_parents(pid: Pid) -> Vec<Pid> {
    let pairs: Vec<(Pid, Pid)> = all().filter_map(|one| Some((one, parent(one)?))).collect();
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() && found.len() < MOST {
        let above = found[next];
        found.extend(pairs.iter().filter(|(_, parent)| *parent == above).map(|(one, _)| *one));
        next += 1;
    }
    found.remove(0);
    found
}

fn all() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// The processes that carry an attempt's mark. Those of other users cannot be seen, and are not ours.
pub(crate) fn marked(attempt: &AttemptId) -> Vec<Pid> {
    all().filter(|pid| is_marked(*pid, attempt)).collect()
}

pub(crate) fn is_marked(pid: Pid, attempt: &AttemptId) -> bool {
    let wanted = format!("{MARK}={attempt}");
    let environment = fs::read(of(pid, "environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
}

/// Whether a process is in a control group, by the last part of the group's name.
pub(crate) fn is_in_group(pid: Pid, name: &str) -> bool {
    let groups = fs::read_to_string(of(pid, "cgroup")).unwrap_or_default();
    groups.lines().any(|line| line.rsplit('/').next() == Some(name))
}

/// What processes use now and have used, their ended children included.
pub(crate) fn usage(pids: &[Pid]) -> Usage {
    let mut sum = Usage::default();
    for pid in pids {
        let Some(stat) = stat(*pid) else { continue };
        let ticks: u64 = (11..=14).filter_map(|at| stat.get(at)?.parse::<u64>().ok()).sum();
        sum.cpu_seconds += ticks_to_seconds(ticks);
        let status = fs::read_to_string(of(*pid, "status")).unwrap_or_default();
        sum.memory_bytes += field(&status, "VmRSS:") * 1024;
        sum.peak_memory_bytes += field(&status, "VmHWM:") * 1024;
        let io = fs::read_to_string(of(*pid, "io")).unwrap_or_default();
        sum.read_bytes += field(&io, "read_bytes:");
        sum.written_bytes += field(&io, "write_bytes:");
    }
    sum
}

#[allow(clippy::cast_precision_loss, reason = "seconds are shown, not counted with")]
fn ticks_to_seconds(ticks: u64) -> f64 {
    // A hundred of them are a second for every program, whatever the kernel itself counts in.
    ticks as f64 / 100.0
}

/// The number behind a name, in a file of lines that begin with names.
pub(crate) fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Where each thread of a process stands, as the kernel tells it.
pub(crate) fn stacks(pid: Pid, most_threads: usize) -> String {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let command = fs::read(of(pid, "cmdline")).unwrap_or_default();
    let command: String =
        String::from_utf8_lossy(&command).replace('\0', " ").chars().take(200).collect();
    let mut text = format!("process {pid}: {}\n", command.trim_end());
    let threads = fs::read_dir(of(pid, "task")).into_iter().flatten().flatten();
    for thread in threads.take(most_threads) {
        let path = thread.path();
        let status = read(&path.join("status"));
        let line = |name: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(name));
            found.unwrap_or("?").trim().to_owned()
        };
        let waits = read(&path.join("wchan"));
        let waits = if waits.is_empty() || waits == "0" { "-" } else { waits.as_str() };
        let _ = writeln!(
            text,
            "  thread {} {}: {}, in {waits}",
            thread.file_name().to_string_lossy(),
            line("Name:"),
            line("State:"),
        );
        for frame in read(&path.join("stack")).lines() {
            let _ = writeln!(text, "    {frame}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;
    use std::process::Command;

    #[test]
    fn a_process_is_found_below_its_parent_and_by_its_mark() {
        let attempt = AttemptId::new(format!("here-{}", getpid())).unwrap();
        let mut child =
            Command::new("sleep").arg("30").env(MARK, attempt.as_str()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(below(getpid()).contains(&pid));
        assert!(below_by_parents(getpid()).contains(&pid));
        assert!(is_below(pid, getpid()) && !is_below(getpid(), pid));
        assert_eq!(marked(&attempt), [pid]);
        assert!(start_time(pid).unwrap() >= start_time(getpid()).unwrap());
        assert!(usage(&[pid]).memory_bytes > 0);
        assert!(stacks(pid, 4).contains("sleep 30"));
        // One that is not meant any more, although it has the id, is left alone.
        kill(pid, |_| false);
        assert!(child.try_wait().unwrap().is_none());
        kill(pid, |pid| is_marked(pid, &attempt));
        assert!(!child.wait().unwrap().success());
        assert!(start_time(pid).is_none());
    }

    #[test]
    fn fields_are_found_by_name() {
        assert_eq!(field("a: 1\noom_kill 3\n", "oom_kill "), 3);
        assert_eq!(field("", "x"), 0);
    }
}
