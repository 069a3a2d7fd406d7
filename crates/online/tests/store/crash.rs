//! The embedded store after its process has died.
//!
//! A copy of the folder, made while it is open, is what a kill leaves: what the process had not yet
//! handed over is not in it.

use std::collections::HashMap;
use std::path::Path;

use falaj_online::store::{Embedded, EmbeddedConfig};
use falaj_online::{Online, Pattern, Position, Stamp, Value};
use proptest::prelude::*;

use crate::harness::{batch, key, numbers, small, tiny};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Rows of these many entities, from this one on.
    Push {
        from: i64,
        count: i64,
        event: i64,
    },
    Settle,
    Flush,
    /// The row of an entity, whenever it became known.
    Erase(i64),
    /// Opens the store again.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (0_i64..50, 1_i64..20, 0_i64..5).prop_map(|(from, count, event)| Step::Push {
        from,
        count,
        event,
    });
    let step = prop_oneof![
        6 => push,
        2 => Just(Step::Settle),
        1 => Just(Step::Flush),
        1 => (0_i64..50).prop_map(Step::Erase),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Rows of an entry of the log: its place in it is its position.
fn rows(seq: usize, step: Step) -> impl Iterator<Item = (i64, Stamp, i64)> {
    let (from, count, event) = match step {
        Step::Push { from, count, event } => (from, count, event),
        _ => (0, 0, 0),
    };
    let stamp = Stamp { event, known: 0, log: seq as u64, row: 0 };
    (from..from + count).map(move |id| (id, stamp, id * 1000 + i64::try_from(seq).unwrap()))
}

fn push(store: &Embedded, seq: usize, step: Step) {
    let rows = rows(seq, step).map(|(id, stamp, number)| (key(1, id), stamp, number));
    store.apply(batch(rows)).unwrap();
}

fn open(path: &Path, config: &EmbeddedConfig) -> Embedded {
    Embedded::open(path, config).unwrap()
}

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        // What is being merged comes and goes by itself.
        drop(std::fs::copy(entry.path(), to.join(entry.file_name())));
    }
}

fn all(store: Embedded) -> Vec<Option<i64>> {
    let keys: Vec<_> = (0..80).map(|entity| key(1, entity)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(numbers(&Online::Embedded(store), &keys))
}

type Rows = HashMap<i64, (Stamp, i64)>;

/// Takes a step as it should be taken.
fn expect(rows_by_id: &mut Rows, seq: usize, step: Step) {
    if let Step::Erase(id) = step {
        rows_by_id.remove(&id);
    }
    for (id, stamp, number) in rows(seq, step) {
        let there = rows_by_id.entry(id).or_insert((stamp, number));
        *there = if stamp > there.0 { (stamp, number) } else { *there };
    }
}

fn told(rows: &Rows) -> Vec<Option<i64>> {
    (0..80).map(|id| rows.get(&id).map(|row| row.1)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// What was settled is there, what was erased is not, and the log from there on restores the rest.
    #[test]
    fn the_log_from_the_position_reached_restores_everything(steps in steps(), less: bool) {
        let config = if less { tiny() } else { small() };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("online");
        let mut store = Some(open(&path, &config));
        let (mut settled, mut now) = (0, Rows::new());
        for (seq, step) in steps.iter().enumerate() {
            let ours = store.as_ref().unwrap();
            match *step {
                Step::Push { .. } => push(ours, seq, *step),
                Step::Settle => {
                    settled = seq;
                    ours.settle(Position { tx: 0, seq: i64::try_from(seq).unwrap() }).unwrap();
                }
                Step::Flush => ours.flush().unwrap(),
                Step::Erase(id) => {
                    let of = Pattern::new(1, [("id", Some(&Value::Int64(id)))]).unwrap();
                    let gone = ours.erase(&of, 0).unwrap();
                    prop_assert_eq!(gone, u64::from(now.contains_key(&id)));
                }
                Step::Restart => {
                    drop(store.take());
                    let again = open(&path, &config);
                    prop_assert_eq!(again.reached().seq, i64::try_from(settled).unwrap());
                    // As whoever reads the log does; erasures are done again as well.
                    for (seq, step) in steps[..seq].iter().enumerate().skip(settled) {
                        push(&again, seq, *step);
                        if let Step::Erase(id) = *step {
                            let of = Pattern::new(1, [("id", Some(&Value::Int64(id)))]).unwrap();
                            again.erase(&of, 0).unwrap();
                        }
                    }
                    store = Some(again);
                }
            }
            expect(&mut now, seq, *step);
        }
        let left = folder.path().join("left");
        copied(&path, &left);
        prop_assert_eq!(all(store.unwrap()), told(&now));
        let restarted = open(&left, &config);
        prop_assert_eq!(restarted.reached().seq, i64::try_from(settled).unwrap());
        for (seq, step) in steps.iter().enumerate().skip(settled) {
            push(&restarted, seq, *step);
            if let Step::Erase(id) = *step {
                let of = Pattern::new(1, [("id", Some(&Value::Int64(id)))]).unwrap();
                restarted.erase(&of, 0).unwrap();
            }
        }
        prop_assert_eq!(all(restarted), told(&now));
    }
}

/// Whatever of what was written last is missing, the store opens as it was settled at some time.
#[test]
fn a_tail_that_was_not_written_whole_is_as_it_was_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("online");
    let store = open(&path, &small());
    for seq in 0..6 {
        push(&store, seq, Step::Push { from: 0, count: 20, event: i64::try_from(seq).unwrap() });
        store.settle(Position { tx: 1, seq: i64::try_from(seq).unwrap() }).unwrap();
    }
    drop(store);
    let tail = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let tail = tail.filter(|path| path.extension().is_some_and(|it| it == "tail"));
    let tail = tail.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let whole = std::fs::read(&tail).unwrap();
    // What follows the length and the sum of the first frame.
    let first = 16 + usize::try_from(u64::from_le_bytes(*whole.first_chunk().unwrap())).unwrap();
    let mut last = 5;
    for length in (0..whole.len()).rev().step_by(97) {
        std::fs::write(&tail, &whole[..length]).unwrap();
        if length < first {
            // That one was there before the manifest was.
            let error = Embedded::open(&path, &small()).unwrap_err();
            assert!(error.message().contains("damaged"), "{error:?}");
            continue;
        }
        let store = open(&path, &small());
        let reached = store.reached().seq;
        assert!(reached <= last, "{reached} after {last}");
        last = reached;
        if reached > 0 {
            let numbers = all(store);
            let expected: Vec<_> = (0..20).map(|id| Some(id * 1000 + reached)).collect();
            assert_eq!(numbers[..20], expected);
        }
    }
    assert!(last <= 0, "{last}");
}

#[test]
fn a_folder_in_use_and_a_damaged_one_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("online");
    let store = open(&path, &small());
    let error = Embedded::open(&path, &small()).unwrap_err();
    assert!(error.message().contains("in use"), "{error:?}");
    push(&store, 1, Step::Push { from: 0, count: 20, event: 1 });
    drop(store);
    std::fs::write(path.join("manifest"), b"not a manifest of any kind").unwrap();
    let error = Embedded::open(&path, &small()).unwrap_err();
    assert!(error.message().contains("damaged"), "{error:?}");
    std::fs::remove_file(path.join("manifest")).unwrap();
    let error = Embedded::open(&path, &small()).unwrap_err();
    assert!(error.message().contains("damaged"), "files and no manifest: {error:?}");
    std::fs::write(folder.path().join("file"), b"no folder").unwrap();
    let error = Embedded::open(&folder.path().join("file"), &small()).unwrap_err();
    assert!(error.message().contains("damaged"), "{error:?}");
}

/// A process that is killed while it makes a store leaves files that no manifest names yet.
#[test]
fn one_that_was_never_finished_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("online");
    drop(open(&path, &small()));
    let tail = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let tail = tail.filter(|path| path.extension().is_some_and(|it| it == "tail")).max().unwrap();
    let bare = std::fs::read(&tail).unwrap();
    for left in [&[][..], &bare[..7], &bare] {
        std::fs::remove_file(path.join("manifest")).unwrap();
        std::fs::write(path.join("1.tail"), b"").unwrap();
        std::fs::write(path.join("2.tail"), left).unwrap();
        std::fs::write(path.join("manifest.new"), b"{").unwrap();
        let store = open(&path, &small());
        push(&store, 1, Step::Push { from: 0, count: 20, event: 1 });
        assert_eq!(all(store)[19], Some(19_001));
        // Without rows again, for the next.
        open(&path, &small()).clear().unwrap();
    }
}

#[test]
fn what_was_settled_is_there_after_an_orderly_end() {
    let folder = tempfile::tempdir().unwrap();
    for config in [small(), tiny()] {
        let path = folder.path().join(format!("online-{}", config.rows));
        let store = open(&path, &config);
        push(&store, 3, Step::Push { from: 0, count: 20, event: 1 });
        store.settle(Position { tx: 1, seq: 3 }).unwrap();
        let before = all(store);
        let store = open(&path, &config);
        assert_eq!(store.reached(), Position { tx: 1, seq: 3 });
        assert_eq!(all(store), before);
    }
}

/// Rows that are written over and over do not make the folder grow without end, and files that nothing
/// names are removed.
#[test]
fn what_is_replaced_takes_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("online");
    let store = open(&path, &tiny());
    for seq in 0..600 {
        let event = i64::try_from(seq).unwrap();
        push(&store, seq, Step::Push { from: event % 7, count: 3, event });
        store.settle(Position { tx: 1, seq: event }).unwrap();
    }
    let before = all(store);
    std::fs::write(path.join("999999.run"), b"left by a process that died").unwrap();
    let store = open(&path, &tiny());
    store.flush().unwrap();
    let files: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap()).collect();
    let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(files.len() < 30 && bytes < 64 << 10, "{} files of {bytes} bytes", files.len());
    assert_eq!(all(store), before);
}
