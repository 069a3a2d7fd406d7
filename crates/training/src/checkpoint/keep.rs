//! Which checkpoints go, and which of their paths may be removed. Pure.
//!
//! Must hold: nothing is removed that is, holds or lies in what stays. A job may save into one folder
//! again and again, or one checkpoint beside another.

use std::path::Path;

use super::store::Checkpoint;

/// What is to be forgotten and what is to be removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Leaving {
    pub(super) steps: Vec<i64>,
    pub(super) paths: Vec<String>,
}

/// Of all checkpoints of a task, the newest first, those beyond the newest `keep` that are good. Broken
/// ones do not count, and go with those that are older than the oldest that stays.
pub(super) fn leaving(all: &[Checkpoint], keep: usize) -> Leaving {
    let mut good = 0;
    let mut stays = Vec::new();
    let mut goes = Vec::new();
    for checkpoint in all {
        if good >= keep {
            goes.push(checkpoint);
            continue;
        }
        good += usize::from(checkpoint.broken.is_none());
        stays.push(checkpoint);
    }
    if good < keep {
        return Leaving::default();
    }
    let stays: Vec<&str> = stays.iter().flat_map(|it| paths(it)).collect();
    let mut leaving = Leaving::default();
    for checkpoint in goes {
        leaving.steps.push(checkpoint.step);
        let free = paths(checkpoint).filter(|path| !touches(path, &stays));
        leaving.paths.extend(free.map(str::to_owned));
    }
    leaving.paths.sort_unstable();
    leaving.paths.dedup();
    leaving
}

pub(super) fn paths(checkpoint: &Checkpoint) -> impl Iterator<Item = &str> {
    checkpoint.manifest.values().map(|part| part.path.as_str())
}

/// Whether a path is one of those, holds one or lies in one.
pub(super) fn touches(path: &str, others: &[&str]) -> bool {
    let path = Path::new(path);
    let mut others = others.iter().map(Path::new);
    others.any(|other| other.starts_with(path) || path.starts_with(other))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use falaj_base::Timestamp;

    use super::super::store::Part;
    use super::*;

    fn saved(step: i64, path: &str, broken: bool) -> Checkpoint {
        let part = Part { path: path.to_owned(), files: BTreeMap::new() };
        Checkpoint {
            step,
            attempt: 1,
            path: path.to_owned(),
            manifest: BTreeMap::from([(0, part)]),
            whole_at: Timestamp::from_micros(0),
            broken: broken.then(|| "changed".to_owned()),
        }
    }

    fn left(all: &[Checkpoint], keep: usize) -> (Vec<i64>, Vec<String>) {
        let leaving = leaving(all, keep);
        (leaving.steps, leaving.paths)
    }

    #[test]
    fn what_is_saved_into_one_folder_again_and_again_stays() {
        let all = [saved(20, "/c/last", false), saved(10, "/c/last", false)];
        assert_eq!(left(&all, 1), (vec![10], vec![]));
        let all = [saved(20, "/c/a/new", false), saved(10, "/c/a", false)];
        assert_eq!(left(&all, 1), (vec![10], vec![]), "it holds one that stays");
        let all = [saved(20, "/c/a", false), saved(10, "/c/a/old", false)];
        assert_eq!(left(&all, 1), (vec![10], vec![]), "it lies in one that stays");
        let all = [saved(20, "/c/a", false), saved(10, "/c/ab", false)];
        assert_eq!(left(&all, 1), (vec![10], vec!["/c/ab".to_owned()]));
    }

    #[test]
    fn broken_ones_are_not_among_those_that_are_kept() {
        let all = [saved(30, "/c/30", true), saved(25, "/c/25", false), saved(20, "/c/20", false)];
        assert_eq!(left(&all, 1), (vec![20], vec!["/c/20".to_owned()]));
        assert_eq!(left(&all, 2), (vec![], vec![]));
        let all = [saved(30, "/c/30", false), saved(25, "/c/25", true), saved(20, "/c/20", false)];
        assert_eq!(left(&all, 2), (vec![], vec![]));
        assert_eq!(left(&all, 3), (vec![], vec![]), "there are fewer than it wants");
        assert_eq!(left(&all, 1).0, [25, 20]);
    }
}
