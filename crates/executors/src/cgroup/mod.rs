//! Control groups: a rank's limits, what it used, and whether the kernel killed it for its memory.
//!
//! There are three ways, found once by [`Plan::find`]: version 2 where a part of the tree is ours,
//! version 1 (also beside a version 2 without controllers), and none. A plan is data: the shim of an
//! attempt acts by the plan it was started with, and a later server finds the groups by it.
//!
//! Not here: killing a tree in order; that is the shim's work, which is its reaper.

mod find;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::process::{self, field};
use crate::{AttemptId, Limits, Usage};

/// Where shims live in version 2, which allows no processes beside groups with limits.
const SHIMS: &str = "falaj-shims";
/// Microseconds in which a share of the CPU is counted.
const PERIOD: u64 = 100_000;
/// The kernel takes no smaller share of a period.
const SMALLEST_SHARE: u64 = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Plan {
    #[default]
    None,
    V1 {
        memory: PathBuf,
        cpu: Option<PathBuf>,
        accounting: Option<PathBuf>,
    },
    V2 {
        base: PathBuf,
    },
}

impl Plan {
    /// What this machine allows this process to do.
    pub(crate) fn find() -> Self {
        find::plan()
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::V1 { .. } => "cgroup-v1",
            Self::V2 { .. } => "cgroup-v2",
        }
    }

    /// The folders whose processes are in no rank's group, for the shim itself.
    fn outside(&self) -> Vec<PathBuf> {
        match self {
            Self::None => Vec::new(),
            Self::V1 { memory, cpu, accounting } => {
                let others = [cpu, accounting].into_iter().flatten();
                std::iter::once(memory).chain(others).cloned().collect()
            }
            Self::V2 { base } => vec![base.join(SHIMS)],
        }
    }

    /// Takes this process out of every rank's group.
    pub(crate) fn leave(&self) -> io::Result<()> {
        self.outside().iter().try_for_each(|folder| join(folder))
    }

    /// The group of a rank, whether it was made or not; `None` without control groups.
    pub(crate) fn group(&self, attempt: &AttemptId, rank: usize) -> Option<Group> {
        let name = format!("falaj-{attempt}.{rank}");
        match self {
            Self::None => None,
            Self::V1 { memory, cpu, accounting } => Some(Group::V1 {
                memory: memory.join(&name),
                cpu: cpu.as_ref().map(|base| base.join(&name)),
                accounting: accounting.as_ref().map(|base| base.join(&name)),
            }),
            Self::V2 { base } => Some(Group::V2(base.join(&name))),
        }
    }
}

/// Moves this process, which has one thread, into a group.
///
/// Version 1 lets a thread move alone, and the kernel then spares itself waiting for every CPU, which takes
/// ten milliseconds and more. Version 2 has only whole processes.
fn join(folder: &Path) -> io::Result<()> {
    let alone = folder.join("tasks");
    let file = if alone.exists() { alone } else { folder.join("cgroup.procs") };
    fs::write(file, "0")
}

/// The group of one rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Group {
    V1 { memory: PathBuf, cpu: Option<PathBuf>, accounting: Option<PathBuf> },
    V2(PathBuf),
}

impl Group {
    fn folders(&self) -> Vec<&Path> {
        match self {
            Self::V1 { memory, cpu, accounting } => {
                let mut folders = vec![memory.as_path()];
                folders.extend(cpu.as_deref());
                // Often one tree under two names.
                folders.extend(accounting.as_deref().filter(|path| Some(*path) != cpu.as_deref()));
                folders
            }
            Self::V2(folder) => vec![folder],
        }
    }

    /// Makes the group with its limits, empty.
    pub(crate) fn make(&self, limits: &Limits) -> io::Result<()> {
        for folder in self.folders() {
            match fs::create_dir(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let bytes = u64::from(limits.memory_mib) << 20;
        let share = (u64::from(limits.cpu_millis) * PERIOD / 1000).max(SMALLEST_SHARE);
        match self {
            Self::V1 { memory, cpu, .. } => {
                if bytes > 0 {
                    fs::write(memory.join("memory.limit_in_bytes"), bytes.to_string())?;
                    // Absent where swap is not counted.
                    let _ =
                        fs::write(memory.join("memory.memsw.limit_in_bytes"), bytes.to_string());
                }
                if let Some(cpu) = cpu
                    && limits.cpu_millis > 0
                {
                    fs::write(cpu.join("cpu.cfs_period_us"), PERIOD.to_string())?;
                    fs::write(cpu.join("cpu.cfs_quota_us"), share.to_string())?;
                }
            }
            Self::V2(folder) => {
                if bytes > 0 {
                    fs::write(folder.join("memory.max"), bytes.to_string())?;
                    let _ = fs::write(folder.join("memory.swap.max"), "0");
                }
                if limits.cpu_millis > 0 {
                    fs::write(folder.join("cpu.max"), format!("{share} {PERIOD}"))?;
                }
            }
        }
        Ok(())
    }

    /// Brings this process in, and with it what it starts from now on.
    pub(crate) fn join(&self) -> io::Result<()> {
        self.folders().into_iter().try_for_each(join)
    }

    fn processes(&self) -> Vec<Pid> {
        let mut found = Vec::new();
        for folder in self.folders() {
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            found.extend(text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)));
        }
        found.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        found.dedup();
        found
    }

    /// Kills whatever is inside; whether anything was.
    pub(crate) fn kill(&self) -> bool {
        if let Self::V2(folder) = self {
            // One step, which no fork can outrun. Older kernels lack it.
            let _ = fs::write(folder.join("cgroup.kill"), "1");
        }
        let inside = self.processes();
        let folders = self.folders();
        let name = folders.first().and_then(|folder| folder.file_name()?.to_str());
        for pid in &inside {
            process::kill(*pid, |pid| name.is_some_and(|name| process::is_in_group(pid, name)));
        }
        !inside.is_empty()
    }

    /// How many processes the kernel has killed in it for its memory.
    pub(crate) fn out_of_memory(&self) -> u64 {
        let file = match self {
            Self::V1 { memory, .. } => memory.join("memory.oom_control"),
            Self::V2(folder) => folder.join("memory.events"),
        };
        field(&fs::read_to_string(file).unwrap_or_default(), "oom_kill ")
    }

    /// What it uses and has used. Version 1 does not tell what was read and written.
    pub(crate) fn usage(&self) -> Usage {
        let text = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let number = |path: PathBuf| text(path).trim().parse::<u64>().unwrap_or(0);
        match self {
            Self::V1 { memory, accounting, .. } => Usage {
                cpu_seconds: accounting
                    .as_ref()
                    .map_or(0.0, |folder| seconds(number(folder.join("cpuacct.usage")) / 1000)),
                // Files that were read and are not needed now are the kernel's to drop.
                memory_bytes: number(memory.join("memory.usage_in_bytes")).saturating_sub(field(
                    &text(memory.join("memory.stat")),
                    "total_inactive_file ",
                )),
                peak_memory_bytes: number(memory.join("memory.max_usage_in_bytes")),
                ..Usage::default()
            },
            Self::V2(folder) => {
                let io = text(folder.join("io.stat"));
                let sum = |name: &str| {
                    let words = io.split_ascii_whitespace();
                    words.filter_map(|word| word.strip_prefix(name)?.parse::<u64>().ok()).sum()
                };
                Usage {
                    cpu_seconds: seconds(field(&text(folder.join("cpu.stat")), "usage_usec ")),
                    memory_bytes: number(folder.join("memory.current"))
                        .saturating_sub(field(&text(folder.join("memory.stat")), "inactive_file ")),
                    peak_memory_bytes: number(folder.join("memory.peak")),
                    read_bytes: sum("rbytes="),
                    written_bytes: sum("wbytes="),
                }
            }
        }
    }

    /// Removes the group; it must be empty.
    pub(crate) fn remove(&self) {
        for folder in self.folders() {
            let _ = fs::remove_dir(folder);
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "seconds are shown, not counted with")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt() -> AttemptId {
        AttemptId::new("job-1").unwrap()
    }

    /// The files of version 2, on a plain folder: this shows what is written and read, and where.
    #[test]
    fn the_files_of_version_2() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan::V2 { base: folder.path().to_owned() };
        let group = plan.group(&attempt(), 3).unwrap();
        group.make(&Limits { cpu_millis: 1500, memory_mib: 64, time: None }).unwrap();
        let inside = folder.path().join("falaj-job-1.3");
        let read = |name: &str| fs::read_to_string(inside.join(name)).unwrap();
        assert_eq!(read("memory.max"), "67108864");
        assert_eq!(read("cpu.max"), "150000 100000");
        fs::write(inside.join("memory.events"), "low 0\noom 2\noom_kill 1\n").unwrap();
        assert_eq!(group.out_of_memory(), 1);
        fs::write(inside.join("memory.current"), "9000\n").unwrap();
        fs::write(inside.join("memory.stat"), "anon 1\ninactive_file 1000\n").unwrap();
        fs::write(inside.join("memory.peak"), "10000\n").unwrap();
        fs::write(inside.join("cpu.stat"), "usage_usec 2500000\n").unwrap();
        let io = "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2\n";
        fs::write(inside.join("io.stat"), io).unwrap();
        let wanted = Usage {
            cpu_seconds: 2.5,
            memory_bytes: 8000,
            peak_memory_bytes: 10_000,
            read_bytes: 11,
            written_bytes: 22,
        };
        assert_eq!(group.usage(), wanted);
    }

    #[test]
    fn the_files_of_version_1() {
        let folder = tempfile::tempdir().unwrap();
        let base = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let plan = Plan::V1 {
            memory: base("memory"),
            cpu: Some(base("cpu")),
            accounting: Some(base("cpuacct")),
        };
        let group = plan.group(&attempt(), 0).unwrap();
        group.make(&Limits { cpu_millis: 1, memory_mib: 1, time: None }).unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
        assert_eq!(read("memory/falaj-job-1.0/memory.limit_in_bytes"), "1048576");
        // Less than the kernel takes becomes the least it takes.
        assert_eq!(read("cpu/falaj-job-1.0/cpu.cfs_quota_us"), "1000");
        assert_eq!(group.folders().len(), 3);
    }
}
