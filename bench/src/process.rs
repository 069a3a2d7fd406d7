//! What a server costs, read from `/proc`: all its processes, because some servers have many.

use std::fs::{read_dir, read_to_string};

use anyhow::{Context, Result};

/// The kernel counts in hundredths of a second for every user program.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process and all that descend from it.
pub(crate) fn tree(root: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // A process may end between being listed and being read.
        if let Ok(fields) = stat(pid) {
            parents.push((pid, fields.get(1).context("a short stat")?.parse::<u32>()?));
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    Ok(found)
}

pub(crate) fn cpu_seconds(pids: &[u32]) -> Result<f64> {
    let mut ticks = 0.0;
    for pid in pids {
        let fields = stat(*pid)?;
        for index in [11, 12] {
            ticks += fields.get(index).context("a short stat")?.parse::<f64>()?;
        }
    }
    Ok(ticks / TICKS_PER_SECOND)
}

pub(crate) fn resident(pids: &[u32]) -> Result<f64> {
    pids.iter().map(|pid| megabytes(*pid, "smaps_rollup", "Pss:")).sum()
}

pub(crate) fn peak_resident(pid: u32) -> Result<f64> {
    megabytes(pid, "status", "VmHWM:")
}

/// A figure that the kernel gives in kilobytes.
fn megabytes(pid: u32, file: &str, field: &str) -> Result<f64> {
    let text = read_to_string(format!("/proc/{pid}/{file}"))?;
    let line = text.lines().find(|line| line.starts_with(field));
    let line = line.with_context(|| format!("no {field} in {file}"))?;
    let kilobytes = line.split_whitespace().nth(1).context("no number")?.parse::<f64>()?;
    Ok(kilobytes * 1024.0 / 1e6)
}

/// The fields of `/proc/PID/stat` after the name in parentheses, which may hold spaces.
fn stat(pid: u32) -> Result<Vec<String>> {
    let text = read_to_string(format!("/proc/{pid}/stat"))?;
    let numbers = text.rsplit_once(')').context("unexpected /proc/PID/stat")?.1;
    Ok(numbers.split_whitespace().map(str::to_owned).collect())
}
