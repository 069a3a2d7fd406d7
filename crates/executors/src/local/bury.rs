//! Ending an attempt whose shim is gone: nothing of it may go on, and then its end is written down.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cgroup::Group;
use crate::shim::record::{EXIT, Exit, Kept, State};
use crate::{AttemptId, End, plain, process, shim};

/// Kills what an attempt has left and records it as lost; `None` if some of it is still there after
/// `patience`, and then there is no end yet. The caller holds its lock.
pub(super) fn lost(
    folder: &Path,
    attempt: &AttemptId,
    kept: Option<&Kept>,
    state: Option<&State>,
    patience: Duration,
) -> io::Result<Option<Exit>> {
    let groups: Vec<Group> = kept.map_or(Vec::new(), |kept| {
        (0..kept.ranks.len()).filter_map(|rank| kept.plan.group(attempt, rank)).collect()
    });
    if !clear(attempt, &groups, patience) {
        return Ok(None);
    }
    groups.iter().for_each(Group::remove);
    let exit = Exit {
        end: End::Lost,
        ranks: Vec::new(),
        started: state.and_then(|state| state.started),
        ended: shim::now(),
        isolation: state.map_or_else(|| "none".to_owned(), |state| state.isolation.clone()),
        usage: None,
    };
    plain::put_durably(&folder.join(EXIT), &exit)?;
    Ok(Some(exit))
}

/// By group, which nothing leaves, and by mark, which a process would have to remove itself.
fn clear(attempt: &AttemptId, groups: &[Group], patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let inside = groups.iter().filter(|group| group.kill()).count();
        let marked = process::marked(attempt);
        for pid in &marked {
            process::kill(*pid, |pid| process::is_marked(pid, attempt));
        }
        if inside == 0 && marked.is_empty() {
            return true;
        }
        if Instant::now() >= until {
            tracing::warn!(%attempt, "processes are left that cannot be killed");
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
