//! Transactions: what `write` and `read` promise.

use falaj_base::{Clock, Error, Timestamp, code};
use falaj_store::db::{DatabaseConfig, Db, Held, Migration, Value, params};
use falaj_testkit::database::{Database, each, each_place};
use futures::future::join_all;

use crate::{THINGS, prepare};

async fn insert(db: &Db, id: i64, name: String) -> falaj_base::Result<u64> {
    db.write(move |tx| {
        tx.execute("INSERT INTO thing (id, name) VALUES ($1, $2)", &params![id, name])
    })
    .await
}

async fn count(db: &Db) -> i64 {
    let rows = |tx: &mut falaj_store::db::Tx<'_>| {
        tx.query_one("SELECT COUNT(*) AS n FROM thing", &[])?.get("n")
    };
    db.read(rows).await.expect("counting")
}

#[tokio::test(flavor = "multi_thread")]
async fn values_come_back_as_they_went_in() {
    each(|db| async move {
        prepare(&db).await;
        let body: Vec<u8> = (0..=255).collect();
        let sent = body.clone();
        db.write(move |tx| {
            let sql = "INSERT INTO thing (id, name, body) VALUES ($1, $2, $3)";
            tx.execute(sql, &params![i64::MIN, "é '; DROP TABLE thing; --", sent])?;
            // Out of order and twice: placeholders are bound by number, not by appearance.
            tx.execute(
                sql.replace("$1, $2, $3", "$2, $1, $3").as_str(),
                &[Value::Text("second".to_owned()), Value::Int(i64::MAX), Value::Null],
            )
        })
        .await
        .unwrap();
        let rows = db.read(|tx| tx.query("SELECT * FROM thing ORDER BY id", &[])).await.unwrap();
        assert_eq!(rows[0].get::<i64>("id").unwrap(), i64::MIN);
        assert_eq!(rows[0].get::<String>("name").unwrap(), "é '; DROP TABLE thing; --");
        assert_eq!(rows[0].get::<Vec<u8>>("body").unwrap(), body);
        assert_eq!(rows[1].get::<Option<Vec<u8>>>("body").unwrap(), None);
        assert!(rows[1].get::<String>("id").is_err(), "a wrong type is an error");
        assert!(rows[1].get::<i64>("nothing").is_err(), "a wrong name is an error");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_statement_takes_many_rows_or_none() {
    each(|db| async move {
        prepare(&db).await;
        // More than are under way at once, and with the placeholders out of order.
        let sql = "INSERT INTO thing (name, id) VALUES ($2, $1)";
        let row = |id: i64| params![id, format!("thing {id}")];
        let changed = db.write(move |tx| tx.execute_many(sql, (0..1000).map(row))).await.unwrap();
        assert_eq!((changed, count(&db).await), (1000, 1000));
        let nothing = db.write(move |tx| tx.execute_many(sql, (0..0).map(row))).await.unwrap();
        assert_eq!(nothing, 0);

        let taken = db.write(move |tx| tx.execute_many(sql, (2000..2100).chain(7..300).map(row)));
        assert_eq!(taken.await.unwrap_err().code(), &code::ALREADY_EXISTS);
        let short = db.write(move |tx| tx.execute_many(sql, [params![3000]].iter()));
        assert!(short.await.is_err(), "a row with a value too few");
        assert_eq!(count(&db).await, 1000);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_leaves_nothing_and_harms_nobody() {
    each(|db| async move {
        prepare(&db).await;
        insert(&db, 1, "taken".to_owned()).await.unwrap();
        // Every second one breaks the unique name, halfway through its transaction.
        let writes = (2..130).map(|id| {
            let db = db.clone();
            async move {
                let result = db
                    .write(move |tx| {
                        let sql = "INSERT INTO thing (id, name) VALUES ($1, $2)";
                        tx.execute(sql, &params![id, format!("thing {id}")])?;
                        if id % 2 == 1 {
                            tx.execute(sql, &params![id + 1000, "taken"])?;
                        }
                        Ok(id)
                    })
                    .await;
                (id, result)
            }
        });
        for (id, result) in join_all(writes).await {
            match result {
                Ok(own) => assert!(id % 2 == 0 && own == id, "{id} got {own}"),
                Err(error) => {
                    assert!(id % 2 == 1, "{id}: {error:?}");
                    assert_eq!(error.code(), &code::ALREADY_EXISTS);
                }
            }
        }
        assert_eq!(count(&db).await, 1 + 64);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_its_own_writers_problem() {
    each(|db| async move {
        prepare(&db).await;
        let doomed = db.write(|tx| -> falaj_base::Result<()> {
            tx.execute("INSERT INTO thing (id, name) VALUES (1, 'half')", &[])?;
            panic!("on purpose");
        });
        assert_eq!(doomed.await.unwrap_err().code(), &code::INTERNAL);
        insert(&db, 2, "whole".to_owned()).await.unwrap();
        assert_eq!(count(&db).await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_follows_a_failed_statement() {
    each(|db| async move {
        prepare(&db).await;
        insert(&db, 1, "taken".to_owned()).await.unwrap();
        let swallowed = db.write(|tx| {
            let _ = tx.execute("INSERT INTO thing (id, name) VALUES (2, 'taken')", &[]);
            tx.execute("INSERT INTO thing (id, name) VALUES (3, 'free')", &[])
        });
        assert_eq!(swallowed.await.unwrap_err().code(), &code::INTERNAL);
        let silent = db.write(|tx| {
            tx.execute("INSERT INTO thing (id, name) VALUES (4, 'fine')", &[])?;
            let _ = tx.execute("INSERT INTO thing (id, name) VALUES (5, 'taken')", &[]);
            Ok(())
        });
        assert_eq!(silent.await.unwrap_err().code(), &code::INTERNAL);
        assert_eq!(count(&db).await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_acknowledged_writes_and_one_snapshot() {
    each(|db| async move {
        prepare(&db).await;
        for id in 0..50 {
            insert(&db, id, format!("thing {id}")).await.unwrap();
            assert_eq!(count(&db).await, id + 1, "an acknowledged write is visible at once");
        }
        // A reader that pauses while others write still sees the world it began with.
        let (begun, wait) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let (say_begun, when_begun) = begun;
        let (go_on, told_to) = wait;
        let reader = tokio::spawn({
            let db = db.clone();
            async move {
                db.read(move |tx| {
                    let sql = "SELECT COUNT(*) AS n FROM thing";
                    let before: i64 = tx.query_one(sql, &[])?.get("n")?;
                    say_begun.send(()).unwrap();
                    told_to.recv().unwrap();
                    Ok((before, tx.query_one(sql, &[])?.get::<i64>("n")?))
                })
                .await
            }
        });
        tokio::task::spawn_blocking(move || when_begun.recv().unwrap()).await.unwrap();
        insert(&db, 99, "during".to_owned()).await.expect("a reader does not block a writer");
        go_on.send(()).unwrap();
        assert_eq!(reader.await.unwrap().unwrap(), (50, 50));
        assert_eq!(count(&db).await, 51);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_cannot_write() {
    each(|db| async move {
        prepare(&db).await;
        let _ = db.read(|tx| tx.execute("INSERT INTO thing (id, name) VALUES (1, 'x')", &[])).await;
        assert_eq!(count(&db).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reference_keeps_what_it_points_to() {
    each(|db| async move {
        prepare(&db).await;
        insert(&db, 1, "whole".to_owned()).await.unwrap();
        db.write(|tx| tx.execute("INSERT INTO part (id, thing) VALUES (1, 1)", &[])).await.unwrap();
        let deleted = db.write(|tx| tx.execute("DELETE FROM thing WHERE id = 1", &[])).await;
        assert_eq!(deleted.unwrap_err().code(), &code::IN_USE);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_run_once_forward_and_never_backward() {
    static EDITED: &[Migration] = &[Migration {
        version: 1,
        name: "things",
        sql: "CREATE TABLE thing (id INTEGER PRIMARY KEY);",
    }];
    static TWO: &[Migration] = &[
        THINGS_1,
        Migration { version: 2, name: "more", sql: "ALTER TABLE thing ADD COLUMN n INTEGER;" },
    ];
    const THINGS_1: Migration =
        Migration { version: 1, name: "things", sql: "CREATE TABLE thing (id INTEGER);" };
    each_place(async |place| {
        let open = async || place.open().await.expect("opening");
        let db = open().await;
        db.migrate(&[("a", &TWO[..1])]).await.unwrap();
        db.migrate(&[("a", TWO), ("b", &[])]).await.unwrap();
        db.migrate(&[("a", TWO)]).await.expect("a second run finds nothing to do");
        for older in [("a", &TWO[..1]), ("another", THINGS)] {
            let refused = db.migrate(&[older]).await.unwrap_err();
            assert_eq!(refused.code(), &code::NEWER_SCHEMA, "{older:?}");
        }
        let edited = db.migrate(&[("a", EDITED)]).await;
        assert!(edited.is_err(), "an edited migration is refused");
        let broken: &[Migration] =
            &[Migration { version: 3, name: "broken", sql: "CREATE TABLE t (id INTEGER); oops;" }];
        let modules = [("a", TWO), ("c", Box::leak(broken.to_vec().into_boxed_slice()) as &_)];
        assert!(db.migrate(&modules).await.is_err());
        let gone = db.read(|tx| Ok(!tx.tables()?.contains(&"t".to_owned()))).await.unwrap();
        assert!(gone, "a failed migration leaves nothing");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writers_share_commits() {
    let place = Database::sqlite().unwrap();
    let db = place.open().await.unwrap();
    prepare(&db).await;
    let before = db.write_stats();
    let clients = (0..64).map(|client| {
        let db = db.clone();
        tokio::spawn(async move {
            for n in 0..20 {
                let id = client * 1000 + n;
                insert(&db, id, format!("thing {id}")).await.unwrap();
            }
        })
    });
    join_all(clients).await;
    let after = db.write_stats();
    let (writes, commits) = (after.writes - before.writes, after.commits - before.commits);
    assert_eq!(writes, 64 * 20);
    assert!(commits * 4 < writes, "{writes} writes took {commits} commits");
}

/// Rows to wait for, for all but every sixteenth.
async fn rows_to_hold(db: &Db, ids: impl Iterator<Item = i64> + Send + 'static) {
    db.write(move |tx| {
        let rows = ids.filter(|id| id % 16 != 15).map(|id| params![-id, format!("held {id}")]);
        tx.execute_many("INSERT INTO thing (id, name) VALUES ($1, $2)", rows)
    })
    .await
    .unwrap();
}

/// One write of several that share a transaction: most are good, the others fail in each way.
async fn together(db: Db, id: i64) -> (i64, falaj_base::Result<i64>) {
    let held = Held { table: "thing", key: "id", columns: "name", id: (-id).into() };
    let written = db.write_together(held, move |tx, row| {
        let held: Option<String> = row.map(|row| row.get("name")).transpose()?;
        assert_eq!(held, (id % 16 != 15).then(|| format!("held {id}")));
        let sql = "INSERT INTO thing (id, name) VALUES ($1, $2)";
        match id % 8 {
            1 => return Err(Error::new(&code::INVALID_INPUT, "refused before any change")),
            2 => tx.lock("things")?,
            3 => tx.alone()?,
            _ => {}
        }
        tx.put(sql, &params![id, format!("thing {id}")])?;
        match id % 8 {
            4 => return Err(Error::new(&code::INVALID_INPUT, "refused after a change")),
            // On PostgreSQL nobody hears of this before the end.
            5 => tx.put(sql, &params![id + 1000, "taken"])?,
            6 => panic!("in the middle"),
            _ => {}
        }
        Ok(id)
    });
    (id, written.await)
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_share_a_transaction_fail_alone() {
    each(|db| async move {
        prepare(&db).await;
        insert(&db, 0, "taken".to_owned()).await.unwrap();
        rows_to_hold(&db, 1..=256).await;
        let all = join_all((1..=256).map(|id| tokio::spawn(together(db.clone(), id)))).await;
        for written in all {
            let (id, written) = written.unwrap();
            match (id % 8, written) {
                (0 | 2 | 3 | 7, Ok(own)) => assert_eq!(own, id),
                (1 | 4, Err(error)) => assert_eq!(error.code(), &code::INVALID_INPUT),
                (5, Err(error)) => assert_eq!(error.code(), &code::ALREADY_EXISTS),
                (6, Err(error)) => assert_eq!(error.code(), &code::INTERNAL),
                (_, other) => panic!("{id}: {other:?}"),
            }
        }
        assert_eq!(count(&db).await, 1 + 240 + 128);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_writes_share_commits_on_both_engines() {
    each(|db| async move {
        prepare(&db).await;
        let ids = || (1..=512).map(|n| 8 * n);
        rows_to_hold(&db, ids()).await;
        let before = db.write_stats();
        let all = ids().map(|id| tokio::spawn(together(db.clone(), id)));
        for written in join_all(all).await {
            written.unwrap().1.unwrap();
        }
        let (commits, writes) = {
            let now = db.write_stats();
            (now.commits - before.commits, now.writes - before.writes)
        };
        assert_eq!(writes, 512);
        assert!(commits <= 256, "{commits} commits");
        assert_eq!(count(&db).await, 512 + 512);
    })
    .await;
}

/// Things to wait for, from the first to this one.
async fn make_things(db: &Db, last: i64) {
    db.write(move |tx| {
        let rows = (1..=last).map(|id| params![id, format!("{id} as made")]);
        tx.execute_many("INSERT INTO thing (id, name) VALUES ($1, $2)", rows)
    })
    .await
    .unwrap();
}

/// A write that tells what it was told of its row, and keeps it with its number.
async fn told(db: Db, id: i64, round: i64) -> falaj_base::Result<String> {
    let held = Held { table: "thing", key: "id", columns: "name", id: id.into() };
    db.write_together(held, move |tx, row| {
        let gone = || Error::new(&code::NOT_FOUND, "the row is gone");
        let name: String = row.ok_or_else(gone)?.get("name")?;
        let stamp = tx.stamp()?;
        let insert = "INSERT INTO stamped (id, stamp, name) VALUES ($1, $2, $3)";
        tx.put(insert, &params![1000 * round + id, stamp, &name])?;
        Ok(name)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_remembered_of_rows_is_made_sure_of() {
    each(|db| async move {
        prepare(&db).await;
        make_things(&db, 64).await;
        let mut at_once = 0;
        for round in 1..=6 {
            // The first time what is remembered is wrong, later it is right.
            for time in 0..4 {
                let before = db.write_stats();
                let all = (1..=64).map(|id| tokio::spawn(told(db.clone(), id, 4 * round + time)));
                for (id, written) in (1..).zip(join_all(all).await) {
                    match written.unwrap() {
                        // Changed behind everybody's back before this round, and the last one taken away.
                        Ok(name) if id <= round && round > 1 => {
                            assert_eq!(name, format!("{id} after {}", round - 1));
                        }
                        Ok(name) => assert_eq!(name, format!("{id} as made")),
                        Err(error) => assert_eq!((id, error.code()), (64, &code::NOT_FOUND)),
                    }
                }
                let now = db.write_stats();
                let commits = now.commits - before.commits;
                assert!(commits <= 32, "{commits} commits");
                at_once += now.at_once - before.at_once;
            }
            db.write(move |tx| {
                let sql = "UPDATE thing SET name = id || $1 WHERE id <= $2";
                tx.execute(sql, &params![format!(" after {round}"), round + 1])?;
                tx.execute("DELETE FROM thing WHERE id = 64 AND $1 = 3", &params![round])
            })
            .await
            .unwrap();
        }
        // What was not changed is written without a question.
        assert_eq!(at_once > 0, db.engine_name() == "postgresql", "{at_once}");
        // Every time has later numbers than the one before.
        let times =
            "SELECT id / 1000 AS time, COUNT(*) AS n, MIN(stamp) AS least, MAX(stamp) AS most
                      FROM stamped GROUP BY id / 1000 ORDER BY 1";
        let times = db.read(move |tx| tx.query(times, &[])).await.unwrap();
        let mut last = 0;
        for row in &times {
            let time: i64 = row.get("time").unwrap();
            assert_eq!(row.get::<i64>("n").unwrap(), if time < 16 { 64 } else { 63 });
            assert!(row.get::<i64>("least").unwrap() > last, "{time}");
            last = row.get("most").unwrap();
        }
        assert_eq!(times.len(), 24);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_server_ended_harm_nobody() {
    each(|db| async move {
        if db.engine_name() == "sqlite" {
            return;
        }
        prepare(&db).await;
        make_things(&db, 16).await;
        let end_others = "SELECT COUNT(pg_terminate_backend(pid)) AS n FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()";
        for round in 1..=9 {
            let all = (1..=16).map(|id| tokio::spawn(told(db.clone(), id, round)));
            for written in join_all(all).await {
                assert!(written.unwrap().unwrap().ends_with("as made"));
            }
            if round % 3 == 0 {
                db.read(move |tx| tx.query_one(end_others, &[]).map(drop)).await.unwrap();
            }
        }
        assert!(db.write_stats().at_once > 0);
        let kept = "SELECT COUNT(*) AS n FROM stamped";
        let kept: i64 = db.read(move |tx| tx.query_one(kept, &[])?.get("n")).await.unwrap();
        assert_eq!(kept, 9 * 16);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_held_keeps_nobody_else_waiting() {
    each(|db| async move {
        if db.engine_name() == "sqlite" {
            // There is one writer, and it holds everything.
            return;
        }
        prepare(&db).await;
        make_things(&db, 16).await;
        for round in 1..=3 {
            let (is_held, held) = std::sync::mpsc::channel();
            let (done, wait) = std::sync::mpsc::channel::<()>();
            let holder = tokio::spawn({
                let db = db.clone();
                async move {
                    db.write(move |tx| {
                        let id = Held { table: "thing", key: "id", columns: "name", id: 7.into() };
                        tx.hold(&id)?;
                        is_held.send(()).unwrap();
                        wait.recv().unwrap();
                        Ok(())
                    })
                    .await
                }
            });
            tokio::task::block_in_place(|| held.recv().unwrap());
            let mut waits = tokio::spawn(told(db.clone(), 7, round));
            let others =
                (1..=16).filter(|id| *id != 7).map(|id| tokio::spawn(told(db.clone(), id, round)));
            for other in join_all(others).await {
                assert!(other.unwrap().unwrap().ends_with("as made"));
            }
            let early =
                tokio::time::timeout(std::time::Duration::from_millis(50), &mut waits).await;
            assert!(early.is_err(), "somebody else holds its row");
            done.send(()).unwrap();
            assert_eq!(waits.await.unwrap().unwrap(), "7 as made");
            holder.await.unwrap().unwrap();
        }
    })
    .await;
}

/// One of many writes that wait for one row and update another.
async fn beside_others(db: Db, number: i64) -> falaj_base::Result<()> {
    let held = Held { table: "thing", key: "id", columns: "name", id: 1.into() };
    db.write_together(held, move |tx, _| {
        let insert = "INSERT INTO thing (id, name) VALUES ($1, $2)";
        tx.put(insert, &params![1000 + number, format!("thing {number}")])?;
        let sum = "INSERT INTO thing (id, name) VALUES ($1, '1')
             ON CONFLICT (id) DO UPDATE SET name = CAST(CAST(thing.name AS INTEGER) + 1 AS TEXT)";
        tx.put(sum, &params![2])
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_wait_for_one_row_share_a_transaction() {
    each(|db| async move {
        prepare(&db).await;
        insert(&db, 1, "held".to_owned()).await.unwrap();
        let before = db.write_stats().commits;
        let all = (0..256).map(|number| tokio::spawn(beside_others(db.clone(), number)));
        for written in join_all(all).await {
            written.unwrap().unwrap();
        }
        let commits = db.write_stats().commits - before;
        assert!(commits <= 128, "{commits} commits");
        assert_eq!(count(&db).await, 2 + 256);
        let sum: String = db
            .read(|tx| tx.query_one("SELECT name FROM thing WHERE id = 2", &[])?.get("name"))
            .await
            .unwrap();
        assert_eq!(sum, "256");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_the_same_file_is_refused() {
    let place = Database::sqlite().unwrap();
    let first = place.open().await.unwrap();
    let clock = Clock::manual(Timestamp::from_micros(0));
    let second = Db::open(place.location(), &DatabaseConfig::default(), clock).await;
    assert_eq!(second.unwrap_err().code(), &code::CONFLICT);
    drop(first);
}
