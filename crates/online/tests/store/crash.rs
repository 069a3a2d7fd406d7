//! The embedded store after its process has died.
//!
//! A copy of the file, made while it is open, is what a kill leaves: what the process had not yet
//! handed over is not in it.

use std::path::Path;

use falaj_online::store::Embedded;
use falaj_online::{Online, Position, Stamp};
use proptest::prelude::*;

use crate::harness::{batch, key, numbers, small};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Rows of these many entities, from this one on.
    Push {
        from: i64,
        count: i64,
        event: i64,
    },
    Settle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (0_i64..50, 1_i64..20, 0_i64..5).prop_map(|(from, count, event)| Step::Push {
        from,
        count,
        event,
    });
    proptest::collection::vec(prop_oneof![3 => push, 1 => Just(Step::Settle)], 1..25)
}

/// Applies an entry of the log: its place in it is its position.
fn push(store: &Embedded, seq: usize, step: Step) {
    let Step::Push { from, count, event } = step else { return };
    let log = seq as u64;
    let row = |id| {
        let stamp = Stamp { event, known: 0, log, row: 0 };
        (key(1, id), stamp, id * 1000 + i64::try_from(log).unwrap())
    };
    store.apply(batch((from..from + count).map(row))).unwrap();
}

fn open(path: &Path) -> Embedded {
    Embedded::open(path, &small()).unwrap()
}

fn all(store: Embedded) -> Vec<Option<i64>> {
    let keys: Vec<_> = (0..80).map(|entity| key(1, entity)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(numbers(&Online::Embedded(store), &keys))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_log_from_the_position_reached_restores_everything(steps in steps(), cut in 0_usize..25) {
        let folder = tempfile::tempdir().unwrap();
        let (path, left) = (folder.path().join("online.redb"), folder.path().join("left.redb"));
        let store = open(&path);
        let mut settled = Position::default();
        let cut = cut.min(steps.len());
        for (seq, step) in steps[..cut].iter().enumerate() {
            push(&store, seq, *step);
            if let Step::Settle = step {
                settled = Position { tx: 0, seq: i64::try_from(seq).unwrap() };
                store.settle(settled).unwrap();
            }
        }
        std::fs::copy(&path, &left).unwrap();
        let restarted = open(&left);
        prop_assert_eq!(restarted.reached(), settled);
        // Everything from there on once more, some of which the file may have kept.
        let from = usize::try_from(settled.seq).unwrap();
        for (seq, step) in steps.iter().enumerate().skip(from) {
            push(&restarted, seq, *step);
        }
        for (seq, step) in steps.iter().enumerate().skip(cut) {
            push(&store, seq, *step);
        }
        prop_assert_eq!(all(restarted), all(store));
    }
}

#[test]
fn a_file_in_use_and_a_damaged_one_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("online.redb");
    let store = open(&path);
    let error = Embedded::open(&path, &small()).unwrap_err();
    assert!(error.message().contains("in use"), "{error:?}");
    drop(store);
    std::fs::write(&path, b"not a database of any kind, and long enough to be one").unwrap();
    let error = Embedded::open(&path, &small()).unwrap_err();
    assert!(error.message().contains("damaged"), "{error:?}");
}

#[test]
fn what_was_settled_is_there_after_an_orderly_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("online.redb");
    let store = open(&path);
    push(&store, 3, Step::Push { from: 0, count: 20, event: 1 });
    store.settle(Position { tx: 1, seq: 3 }).unwrap();
    let before = all(store);
    let store = open(&path);
    assert_eq!(store.reached(), Position { tx: 1, seq: 3 });
    assert_eq!(all(store), before);
}
