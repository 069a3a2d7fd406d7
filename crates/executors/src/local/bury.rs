//! Ending an attempt whose shim is gone: nothing of it may go on, and its end is written down.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::cgroup::Group;
use crate::shim::record::{EXIT, Exit, Kept, State};
use crate::{AttemptId, End, folder, process, shim};

/// How long what was left is waited for.
const CLEAR: Duration = Duration::from_secs(10);

/// Kills what an attempt has left and records it as lost. The caller holds its lock.
pub(super) fn lost(
    folder: &Path,
    attempt: &AttemptId,
    kept: Option<&Kept>,
    state: Option<&State>,
) -> io::Result<Exit> {
    let groups: Vec<Group> = kept.map_or(Vec::new(), |kept| {
        (0..kept.ranks.len()).filter_map(|rank| kept.plan.group(attempt, rank)).collect()
    });
    clear(attempt, &groups);
    groups.iter().for_each(Group::remove);
    let exit = Exit {
        end: End::Lost,
        ranks: Vec::new(),
        started: state.and_then(|state| state.started),
        ended: shim::now(),
        isolation: state.map_or_else(|| "none".to_owned(), |state| state.isolation.clone()),
        usage: None,
    };
    folder::put_durably(&folder.join(EXIT), &exit)?;
    Ok(exit)
}

/// By group, which nothing leaves, and by mark, which a process would have to remove itself.
fn clear(attempt: &AttemptId, groups: &[Group]) {
    let until = Instant::now() + CLEAR;
    loop {
        let inside = groups.iter().filter(|group| group.kill()).count();
        let marked = process::marked(attempt);
        for pid in &marked {
            let _ = kill_process(*pid, Signal::KILL);
        }
        if inside == 0 && marked.is_empty() {
            return;
        }
        if Instant::now() >= until {
            tracing::warn!(%attempt, "processes are left that cannot be killed");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
