//! What things of an attempt are called in the cluster.
//!
//! Must hold: an attempt has one name, always the same; those of different attempts differ, and where they
//! should not, the annotation tells whose it is.

use crate::AttemptId;

pub(super) const OWNER: &str = "falaj.dev/owner";
pub(super) const ATTEMPT: &str = "falaj.dev/attempt";
/// The shape and the limits of an attempt, for whoever finds it without a folder.
pub(super) const LAUNCH: &str = "falaj.dev/launch";
/// Why it is to end, written down before anything is done about it.
pub(super) const CAUSE: &str = "falaj.dev/cause";
/// When it was to be killed at once.
pub(super) const KILL: &str = "falaj.dev/kill";
/// That everything is there which its pods need.
pub(super) const WHOLE: &str = "falaj.dev/whole";
/// Keeps a pod until what became of it is written down: a pod that is removed would take that with it.
pub(super) const KEEPS: &str = "falaj.dev/end";
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(super) const JOB_NAME: &str = "batch.kubernetes.io/job-name";
pub(super) const KUEUE: &str = "kueue.x-k8s.io/queue-name";

/// The longest name of a job whose pods can be reached by theirs: those have a number after it, and
/// parts of host names have 63 letters at most.
const LONGEST: usize = 58;
/// `f-`, and `-` with 16 digits.
const AROUND: usize = 19;

/// The job of an attempt, its service and its secret.
pub(super) fn job(attempt: &AttemptId) -> String {
    let small = attempt.as_str().to_ascii_lowercase().replace('_', "-");
    let kept: String = small.chars().take(LONGEST - AROUND).collect();
    format!("f-{}-{:016x}", kept.trim_matches('-'), digest(attempt.as_str()))
}

/// FNV-1a: short, and the same in every version.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The longest part of a pool's name in a mark.
const LONGEST_POOL: usize = 40;

/// The mark of what belongs to a pool of an installation: another one with a pool of the same name has another.
#[must_use]
pub fn owner(installation: &str, pool: &str) -> String {
    let is_fine = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let kept: String = pool.chars().filter(is_fine).take(LONGEST_POOL).collect();
    let kept = kept.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let digest = digest(&format!("{installation}/{pool}"));
    if kept.is_empty() { format!("{digest:016x}") } else { format!("{kept}.{digest:016x}") }
}

/// Where a node of an attempt is reached by the others.
pub(super) fn host(attempt: &AttemptId, node: usize) -> String {
    let job = job(attempt);
    format!("{job}-{node}.{job}")
}

pub(super) fn container(number: usize) -> String {
    format!("rank-{number}")
}

/// Whether it can be the value of a label.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let outer = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|b| inner(*b))
        && outer(bytes.first())
        && outer(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> String {
        job(&AttemptId::new(text).unwrap())
    }

    #[test]
    fn names_are_short_enough_and_stay_what_they_are() {
        assert_eq!(named("Job_1-2"), "f-job-1-2-f2f31a384073aba7");
        let long = "x".repeat(80);
        for text in ["Job_1-2", "a", "_", &long] {
            let name = named(text);
            assert!(name.len() <= LONGEST, "{name}");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            );
        }
        assert_ne!(named("a_b"), named("a-b"));
        assert_ne!(named("A"), named("a"));
        let host = host(&AttemptId::new(long).unwrap(), 1023);
        assert!(host.split('.').all(|part| part.len() <= 63), "{host}");
    }

    #[test]
    fn an_installation_has_its_own_marks() {
        let long = "x".repeat(127);
        let all: Vec<String> =
            [("a", "gpus"), ("b", "gpus"), ("a", &long), ("a", &long[1..]), ("a", "-")]
                .iter()
                .map(|(installation, pool)| owner(installation, pool))
                .collect();
        assert!(all.iter().all(|one| is_label(one)), "{all:?}");
        assert!((1..all.len()).all(|at| !all[..at].contains(&all[at])), "{all:?}");
        // Kept on jobs: the same in every version.
        assert_eq!(all[0], "gpus.0809cffd7021a026");
        assert_eq!(all[4], "e620fc190469303c");
    }

    #[test]
    fn labels_are_what_the_cluster_takes() {
        for (text, fits) in
            [("falaj", true), ("a.b_c-1", true), ("", false), ("-a", false), ("a b", false)]
        {
            assert_eq!(is_label(text), fits, "{text}");
        }
        assert!(!is_label(&"x".repeat(64)));
    }
}
