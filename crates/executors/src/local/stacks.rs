//! Where the processes of an attempt stand: by the kernel, and by `py-spy` where it is installed.

use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::process;
use crate::shim::record::State;

const MOST_PROCESSES: usize = 32;
const MOST_THREADS: usize = 32;
const MOST_PYTHONS: usize = 8;
const LONGEST_DUMP: Duration = Duration::from_secs(5);
const LARGEST_DUMP: u64 = 256 << 10;

/// All processes of an attempt that live.
pub(super) fn processes(state: &State) -> Vec<Pid> {
    Pid::from_raw(state.shim).map_or(Vec::new(), process::below)
}

pub(super) fn text(state: &State) -> String {
    let processes = processes(state);
    let mut text = String::new();
    for pid in processes.iter().take(MOST_PROCESSES) {
        if let Some(rank) = state.ranks.iter().position(|id| *id == pid.as_raw_nonzero().get()) {
            let _ = writeln!(text, "rank {rank}");
        }
        text.push_str(&process::stacks(*pid, MOST_THREADS));
    }
    if let Some(spy) = program("py-spy") {
        let is_python = |pid: &&Pid| {
            let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
        };
        for pid in processes.iter().filter(is_python).take(MOST_PYTHONS) {
            text.push_str(&dump(&spy, *pid));
        }
    }
    text
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The Python frames of a process; a program that hangs as well is given up.
fn dump(spy: &PathBuf, pid: Pid) -> String {
    let started = Command::new(spy)
        .args(["dump", "--nonblocking", "--pid", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = started else { return String::new() };
    let reader = child.stdout.take().map(|pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.take(LARGEST_DUMP).read_to_end(&mut bytes);
            bytes
        })
    });
    let until = Instant::now() + LONGEST_DUMP;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
