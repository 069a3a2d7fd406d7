//! The event log: nothing skipped, nothing lost, each consumer at its own place.

use std::sync::mpsc;
use std::time::Duration;

use falaj_base::{Clock, Timestamp, code};
use falaj_store::db::{DatabaseConfig, Db, Tx, params};
use falaj_store::events::{Cursor, EventLog, Filter, Subscriptions};
use falaj_store::record::Change;
use falaj_testkit::database::{Database, each, each_place};

use crate::{MAKE, allowed, make, prepare, settle, thing};

async fn all(db: &Db) -> Vec<i64> {
    let events = EventLog::new(db.clone()).read(Cursor::START, Filter::default(), 1000).await;
    events.unwrap().iter().map(|event| event.data.as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_reads_on_without_gap_or_repeat() {
    each(|db| async move {
        prepare(&db).await;
        for id in 0..25 {
            make(&db, id).await;
        }
        settle(&db).await;
        let log = EventLog::new(db.clone());
        let (mut cursor, mut seen) = (Cursor::START, Vec::new());
        loop {
            let batch = log.read(cursor, Filter::default(), 7).await.unwrap();
            let Some(last) = batch.last() else { break };
            cursor = last.cursor;
            seen.extend(batch.iter().map(|event| event.data.as_i64().unwrap()));
        }
        assert_eq!(seen, (0..25).collect::<Vec<_>>());
        assert_eq!(log.end().await.unwrap(), cursor);
        let last = log.read_back(cursor, Filter::default(), 3).await.unwrap();
        let last: Vec<i64> = last.iter().map(|event| event.data.as_i64().unwrap()).collect();
        assert_eq!(last, [24, 23, 22]);
        assert!(log.read_back(Cursor::START, Filter::default(), 3).await.unwrap().is_empty());
        let none = Filter { kind: "falaj.other".to_owned(), ..Filter::default() };
        assert!(log.read(Cursor::START, none, 10).await.unwrap().is_empty());
    })
    .await;
}

/// A write that comes after another knows it to be final, however busy other databases of the server
/// are.
#[tokio::test(flavor = "multi_thread")]
async fn other_databases_hold_no_write_back() {
    let (Some(place), Some(busy)) =
        (Database::postgres().await.unwrap(), Database::postgres().await.unwrap())
    else {
        return;
    };
    let (db, busy) = (place.open().await.unwrap(), busy.open().await.unwrap());
    prepare(&busy).await;
    let others: Vec<_> = (0..6)
        .map(|_| {
            let busy = busy.clone();
            tokio::spawn(async move {
                loop {
                    make(&busy, 1).await;
                }
            })
        })
        .collect();
    for _ in 0..200 {
        let written = db.write(|tx: &mut Tx<'_>| tx.version()).await.unwrap();
        let horizon = db.write(|tx: &mut Tx<'_>| tx.horizon()).await.unwrap();
        assert!(written < horizon, "{written} is not below {horizon}");
    }
    for other in others {
        other.abort();
        assert!(other.await.unwrap_err().is_cancelled());
    }
}

/// A transaction that began first and commits last must not be jumped over by a reader in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_commit_is_not_skipped() {
    each(|db| async move {
        prepare(&db).await;
        let (say_begun, begun) = mpsc::channel();
        let (go_on, told_to) = mpsc::channel::<()>();
        let slow = tokio::spawn({
            let (db, ctx) = (db.clone(), allowed([1]).await);
            async move {
                db.write(move |tx| {
                    tx.record(&ctx, Change::new(&MAKE, &thing(1)).event("thing.made", &1))?;
                    say_begun.send(()).unwrap();
                    told_to.recv().unwrap();
                    Ok(())
                })
                .await
            }
        });
        tokio::task::spawn_blocking(move || begun.recv().unwrap()).await.unwrap();
        let fast = tokio::spawn({
            let db = db.clone();
            async move { make(&db, 2).await }
        });
        if db.engine_name() == "postgresql" {
            fast.await.unwrap();
            assert!(all(&db).await.is_empty(), "a younger event waits for the older transaction");
            go_on.send(()).unwrap();
            slow.await.unwrap().unwrap();
        } else {
            // One writer: the second waits for the first by construction.
            go_on.send(()).unwrap();
            slow.await.unwrap().unwrap();
            fast.await.unwrap();
        }
        settle(&db).await;
        assert_eq!(all(&db).await, [1, 2]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_repeats_until_acknowledged() {
    each(|db| async move {
        prepare(&db).await;
        let name = "billing";
        db.write(move |tx| {
            Subscriptions::ensure(tx, name, &Filter::default(), Cursor::START).map(drop)
        })
        .await
        .unwrap();
        for id in 0..3 {
            make(&db, id).await;
        }
        settle(&db).await;
        let subscriptions = Subscriptions::new(db.clone());
        let first = subscriptions.pending(name, 2).await.unwrap();
        let again = subscriptions.pending(name, 2).await.unwrap();
        assert_eq!(first.len(), 2);
        assert_eq!(first[0].id, again[0].id, "at least once: it comes again");

        let move_to =
            async |cursor| db.write(move |tx| Subscriptions::acknowledge(tx, name, cursor)).await;
        move_to(first[1].cursor).await.unwrap();
        assert_eq!(move_to(first[0].cursor).await.unwrap_err().code(), &code::INVALID_INPUT);
        let rest = subscriptions.pending(name, 10).await.unwrap();
        assert_eq!(rest.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_in_the_database_happens_exactly_once() {
    each(|db| async move {
        prepare(&db).await;
        let name = "counter";
        db.write(move |tx| {
            Subscriptions::ensure(tx, name, &Filter::default(), Cursor::START).map(drop)
        })
        .await
        .unwrap();
        for id in 0..40 {
            make(&db, id).await;
        }
        settle(&db).await;
        // Eight consumers race for the same subscription; each event may insert its row once.
        let consumers = (0..8).map(|_| {
            let subscriptions = Subscriptions::new(db.clone());
            tokio::spawn(async move {
                let effect = |tx: &mut Tx<'_>, event: &falaj_store::events::Event| {
                    let id = event.data.as_i64().unwrap_or(-1);
                    let sql = "INSERT INTO thing (id, name) VALUES ($1, $2)";
                    tx.execute(sql, &params![id, format!("thing {id}")]).map(drop)
                };
                while subscriptions.consume(name, 3, effect).await.unwrap() > 0 {}
            })
        });
        for consumer in consumers {
            consumer.await.unwrap();
        }
        let made: i64 = db
            .read(|tx| tx.query_one("SELECT COUNT(*) AS n FROM thing", &[])?.get("n"))
            .await
            .unwrap();
        assert_eq!(made, 40);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trimming_spares_what_a_subscription_still_needs() {
    each_place(async |place| {
        let clock = Clock::manual(Timestamp::from_micros(1_000_000_000_000));
        let db = place.open_with(&DatabaseConfig::default(), clock.clone()).await.unwrap();
        prepare(&db).await;
        for id in 0..4 {
            make(&db, id).await;
        }
        settle(&db).await;
        let log = EventLog::new(db.clone());
        let events = log.read(Cursor::START, Filter::default(), 10).await.unwrap();
        let passed = events[1].cursor;
        let name = "slow";
        db.write(move |tx| Subscriptions::ensure(tx, name, &Filter::default(), passed).map(drop))
            .await
            .unwrap();
        clock.advance(Duration::from_hours(48));
        log.trimmer(Duration::from_hours(24)).run().await.unwrap();
        assert_eq!(all(&db).await, [2, 3]);

        // With nobody left to read, all go but the last, after which numbering continues.
        db.write(|tx| Subscriptions::delete(tx, "slow")).await.unwrap();
        log.trimmer(Duration::from_hours(24)).run().await.unwrap();
        let end = log.end().await.unwrap();
        assert_eq!(all(&db).await, [3]);
        make(&db, 4).await;
        settle(&db).await;
        let news = log.read(end, Filter::default(), 10).await.unwrap();
        assert_eq!(news.len(), 1, "a cursor from before the trimming still sees what follows");
    })
    .await;
}
