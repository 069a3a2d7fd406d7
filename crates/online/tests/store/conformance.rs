//! What holds for every store.

use std::cell::Cell;
use std::collections::HashMap;

use falaj_online::{About, Home, Key, Online, Pattern, Position, Stamp, Value};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::harness::{batch, key, numbers, packed, stamp, stores};

#[tokio::test]
async fn rows_are_found_by_key_in_the_order_asked() {
    for (store, _folder) in stores() {
        let rows = (0..1200).map(|entity| (key(1, entity), stamp(5, 5), entity * 10));
        assert_eq!(store.apply(batch(rows)).await.unwrap(), 1200);
        let keys: Vec<_> = (0..1300).rev().map(|entity| key(1, entity)).collect();
        let expected: Vec<_> =
            (0..1300).rev().map(|entity| (entity < 1200).then_some(entity * 10)).collect();
        assert_eq!(numbers(&store, &keys).await, expected);
        assert_eq!(numbers(&store, &keys).await, expected, "again, from memory");
        assert_eq!(numbers(&store, &[key(2, 3)]).await, [None], "of another view");
        assert_eq!(numbers(&store, &[]).await, []);
    }
}

#[tokio::test]
async fn the_newer_event_stays_and_of_equal_ones_the_one_known_later() {
    for (store, _folder) in stores() {
        let key = key(7, 1);
        let log = |log, row| Stamp { event: 20, known: 9, log, row };
        let steps = [
            (stamp(10, 1), 1, 1),
            (stamp(9, 100), 2, 1), // Pushed later, and older: it does not overwrite.
            (stamp(10, 2), 3, 3),  // A correction.
            (stamp(10, 1), 1, 3),  // The same again.
            (stamp(-5, 999), 4, 3), // Before 1970, which is before.
            (stamp(20, -3), 5, 5),
            (log(3, 0), 6, 6),
            (log(2, 9), 7, 6), // Earlier in the log.
            (log(3, 1), 8, 8), // A later row of the same batch.
        ];
        for (stamp, number, expected) in steps {
            store.apply(batch([(key.clone(), stamp, number)])).await.unwrap();
            assert_eq!(
                numbers(&store, std::slice::from_ref(&key)).await,
                [Some(expected)],
                "{number}"
            );
        }
    }
}

#[tokio::test]
async fn what_was_placed_is_counted() {
    for (store, _folder) in stores() {
        let rows =
            |from: i64, event| (from..from + 10).map(move |id| (key(1, id), stamp(event, 0), id));
        assert_eq!(store.apply(batch(rows(0, 5))).await.unwrap(), 10);
        assert_eq!(store.apply(batch(rows(5, 4))).await.unwrap(), 5, "five are older");
        assert_eq!(store.apply(batch(rows(0, 5))).await.unwrap(), 10, "the same again");
        assert_eq!(store.apply(batch([])).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn the_position_is_remembered() {
    for (store, _folder) in stores() {
        assert_eq!(store.reached().await.unwrap(), Position::default());
        let position = Position { tx: 7, seq: -12 };
        assert!(store.settle(Position::default(), position).await.unwrap());
        assert_eq!(store.reached().await.unwrap(), position);
    }
}

/// Another server has gone on meanwhile, or rows were lost: what is remembered there stays.
#[tokio::test]
async fn redis_remembers_another_position_only_from_the_one_expected() {
    for (store, _folder) in stores() {
        let at = |seq| Position { tx: 7, seq };
        assert!(store.settle(Position::default(), at(2)).await.unwrap());
        if matches!(store, Online::Embedded(_)) {
            continue;
        }
        assert!(!store.settle(at(1), at(9)).await.unwrap());
        assert_eq!(store.reached().await.unwrap(), at(2));
        assert!(store.settle(at(2), at(3)).await.unwrap());
        assert_eq!(store.reached().await.unwrap(), at(3));
    }
}

#[tokio::test]
async fn no_more_is_read_than_may_be() {
    for (store, _folder) in stores() {
        let keys: Vec<_> = (0..1200).map(|id| key(1, id)).collect();
        let rows = keys.iter().map(|key| (key.clone(), stamp(1, 1), 1));
        store.apply(batch(rows)).await.unwrap();
        let each = packed(stamp(1, 1), 1).len();
        // Twice: from the file, and from memory.
        for _ in 0..2 {
            for some in [&keys[..3], &keys[..]] {
                let whole = each * some.len();
                assert_eq!(store.read(some, whole).await.unwrap().len(), some.len());
                let error = store.read(some, whole - 1).await.unwrap_err();
                assert_eq!(error.code().id, "too-large");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_side_by_side_leave_the_greatest_and_readers_see_no_step_back() {
    for (store, _folder) in stores() {
        let key = key(1, 1);
        let write = |part: i64| {
            let (store, key) = (store.clone(), key.clone());
            async move {
                for step in 0..100 {
                    let event = (step * 37 % 100) * 4 + part;
                    store.apply(batch([(key.clone(), stamp(event, 0), event)])).await.unwrap();
                    let seen = numbers(&store, std::slice::from_ref(&key)).await[0].unwrap();
                    assert!(seen >= event, "{seen} was read after {event} was applied");
                }
            }
        };
        let read = async {
            let mut last = -1;
            for _ in 0..2000 {
                let seen = numbers(&store, std::slice::from_ref(&key)).await[0].unwrap_or(-1);
                assert!(seen >= last, "{seen} after {last}");
                last = seen;
                tokio::task::yield_now().await;
            }
        };
        let writers: Vec<_> = (0..4).map(|part| tokio::spawn(write(part))).collect();
        read.await;
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(numbers(&store, std::slice::from_ref(&key)).await, [Some(399)]);
    }
}

/// Entity, event, known and place in the log.
type Event = (i64, i64, i64, u64);

fn stamp_of(&(_, event, known, log): &Event) -> Stamp {
    Stamp { event, known, log, row: 0 }
}

fn number_of(&(entity, event, known, log): &Event) -> i64 {
    entity * 1000 + event * 100 + known * 10 + i64::try_from(log).unwrap()
}

/// What each entity should have.
fn expected(events: &[Event]) -> Vec<Option<i64>> {
    let mut rows: HashMap<i64, (Stamp, i64)> = HashMap::new();
    for event in events {
        let new = (stamp_of(event), number_of(event));
        let there = rows.entry(event.0).or_insert(new);
        *there = if new.0 > there.0 { new } else { *there };
    }
    (0..6).map(|entity| rows.get(&entity).map(|row| row.1)).collect()
}

async fn found(store: &Online, view: u32, events: &[Event], size: usize) -> Vec<Option<i64>> {
    for some in events.chunks(size) {
        let rows = some.iter().map(|event| (key(view, event.0), stamp_of(event), number_of(event)));
        store.apply(batch(rows)).await.unwrap();
    }
    let keys: Vec<_> = (0..6).map(|entity| key(view, entity)).collect();
    numbers(store, &keys).await
}

/// Any order of the same events, in any batches, some of them twice, gives the same rows.
#[test]
fn the_order_of_events_does_not_matter() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let event = (0_i64..6, -3_i64..3, 0_i64..3, 0_u64..3);
    let events = proptest::collection::vec(event, 1..40).prop_flat_map(|events| {
        let twice: Vec<Event> = events.iter().chain(events.iter().take(5)).copied().collect();
        (Just(events), Just(twice).prop_shuffle(), 1_usize..10)
    });
    for (store, _folder) in stores() {
        let view = Cell::new(0);
        let mut runner = TestRunner::new(Config { cases: 60, ..Config::default() });
        let result = runner.run(&events, |(events, shuffled, size)| {
            view.set(view.get() + 1);
            let found = runtime.block_on(found(&store, view.get(), &shuffled, size));
            prop_assert_eq!(found, expected(&events));
            Ok(())
        });
        result.unwrap();
    }
}

#[tokio::test]
async fn a_store_is_whose_it_is_until_it_is_cleared() {
    let home = |installation: &str| Home {
        installation: installation.to_owned(),
        generation: "1".to_owned(),
    };
    for (store, _folder) in stores() {
        assert_eq!(store.about().await.unwrap(), About::default());
        let ours = store.settle_in(&home("a"), "one").await.unwrap();
        assert_eq!((ours.home, ours.id.as_deref()), (Some(home("a")), Some("one")));
        let theirs = store.settle_in(&home("b"), "two").await.unwrap();
        assert_eq!((theirs.home, theirs.id.as_deref()), (Some(home("a")), Some("one")));
        store.apply(batch((0..700).map(|id| (key(1, id), stamp(1, 1), id)))).await.unwrap();
        store.settle(Position::default(), Position { tx: 1, seq: 2 }).await.unwrap();
        assert_eq!(numbers(&store, &[key(1, 3)]).await, [Some(3)]);
        store.clear().await.unwrap();
        assert_eq!(store.about().await.unwrap(), About::default());
        assert_eq!(numbers(&store, &[key(1, 3), key(1, 699)]).await, [None, None]);
        store.settle_in(&home("b"), "two").await.unwrap();
        store.apply(batch([(key(1, 3), stamp(0, 0), 9)])).await.unwrap();
        assert_eq!(numbers(&store, &[key(1, 3)]).await, [Some(9)]);
    }
}

#[tokio::test]
async fn what_is_erased_is_found_no_more_and_later_rows_stay() {
    let pair = |view: u32, one: i64, other: &str| {
        let parts = [Value::Int64(one), Value::String(other.to_owned())];
        Key::new(view, parts.iter().map(|part| ("k", part))).unwrap()
    };
    for (store, _folder) in stores() {
        let rows = (0..600).map(|id| (key(1, id), stamp(5, id), id));
        store.apply(batch(rows)).await.unwrap();
        let days = ["mon", "t*e", "[a-z]", "\0"];
        let pairs = (0..3).flat_map(|id| days.map(|day| (pair(2, id, day), stamp(5, 5), id)));
        store.apply(batch(pairs)).await.unwrap();
        assert_eq!(numbers(&store, &[key(1, 7), key(1, 8)]).await, [Some(7), Some(8)]);
        let one = |id: i64| Pattern::new(1, [("k", Some(&Value::Int64(id)))]).unwrap();
        assert_eq!(store.erase(&one(7), 7).await.unwrap(), 1);
        assert_eq!(store.erase(&one(8), 7).await.unwrap(), 0, "it became known later");
        assert_eq!(store.erase(&one(7), 7).await.unwrap(), 0, "it is gone");
        assert_eq!(numbers(&store, &[key(1, 7), key(1, 8)]).await, [None, Some(8)]);
        // By one part of two: the first, then the other.
        let (id, day) = (Value::Int64(1), Value::String("t*e".to_owned()));
        let first = Pattern::new(2, [("k", Some(&id)), ("l", None)]).unwrap();
        assert_eq!(store.erase(&first, 5).await.unwrap(), 4);
        let second = Pattern::new(2, [("k", None), ("l", Some(&day))]).unwrap();
        assert_eq!(store.erase(&second, 5).await.unwrap(), 2);
        let left = [pair(2, 0, "mon"), pair(2, 0, "t*e"), pair(2, 1, "mon"), pair(2, 2, "\0")];
        assert_eq!(numbers(&store, &left).await, [Some(0), None, None, Some(2)]);
        let all = Pattern::new(1, [("k", None)]).unwrap();
        assert_eq!(store.erase(&all, i64::MAX).await.unwrap(), 599);
        assert_eq!(numbers(&store, &[key(1, 8), key(1, 599)]).await, [None, None]);
    }
}
