//! Moving the log into chunks: nothing lost, whoever works beside it, and few rows left.

use falaj_base::code;
use falaj_store::db::{Tx, Value, params};
use falaj_testkit::database::each;
use falaj_tracking::metric::compact::Compacted;
use falaj_tracking::metric::{CompactionConfig, Compactor};
use futures::future::join_all;

use super::{append, compact_once, count, history, latest, log, point, points, run, try_history};
use crate::prepare;

fn config() -> CompactionConfig {
    CompactionConfig { rows: Some(64), ..CompactionConfig::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_becomes_chunks_once() {
    each(|db| async move {
        prepare(&db).await;
        log(&db, run(1), 1, &points(0..600)).await;
        assert_eq!(count(&db, "metric_log", run(1)).await, 600);
        let mut settled = 0;
        for (rows, more) in [(512, true), (88, false), (0, false)] {
            let done = compact_once(&db, run(1)).await.unwrap();
            // The last of all points that were moved so far marks the run.
            assert_eq!(done, Compacted { rows, more, settled: done.settled });
            assert!(done.settled.is_some_and(|last| last > settled || rows == 0), "{done:?}");
            settled = done.settled.unwrap_or_default();
            assert_eq!(history(&db, run(1), 1).await, points(0..600));
        }
        assert_eq!(count(&db, "metric_log", run(1)).await, 0);
        assert_eq!(compact_once(&db, run(9)).await.unwrap().rows, 0, "an unknown run");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_stay_few_and_bounded() {
    each(|db| async move {
        prepare(&db).await;
        // Sixty-four at a time: what a compaction usually finds.
        for round in 0..100 {
            let logged = points(64 * round..64 * (round + 1));
            let _ = append(&db, run(1), vec![(1, logged), (2, points(round..round + 1))]).await;
            compact_once(&db, run(1)).await.unwrap();
        }
        assert_eq!(history(&db, run(1), 1).await, points(0..6400));
        assert_eq!(history(&db, run(1), 2).await, points(0..100));
        let sizes = db
            .read(|tx| {
                let sql = "SELECT count FROM metric_chunk WHERE key = 1 ORDER BY id";
                let rows = tx.query(sql, &[])?;
                rows.iter().map(|row| row.get::<usize>("count")).collect()
            })
            .await;
        let sizes: Vec<usize> = sizes.unwrap();
        assert!(sizes.len() <= 8 && sizes.iter().all(|size| *size <= 4096), "{sizes:?}");
        assert!(count(&db, "metric_chunk", run(1)).await <= sizes.len() + 8);

        // Long series are chunks from the start; compaction gathers those too.
        for round in 0..40 {
            let _ = append(&db, run(2), vec![(1, points(1000 * round..1000 * (round + 1)))]).await;
        }
        assert_eq!(count(&db, "metric_chunk", run(2)).await, 40);
        compact_once(&db, run(2)).await.unwrap();
        assert_eq!(count(&db, "metric_chunk", run(2)).await, 10);
        assert_eq!(history(&db, run(2), 1).await, points(0..40_000));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_beside_writers_readers_and_other_compactions() {
    const SHARED: i64 = 99;
    each(|db| async move {
        prepare(&db).await;
        let writers = (0..4).map(|writer| {
            let db = db.clone();
            tokio::spawn(async move {
                for n in 0..60 {
                    let from = 240 * writer + 4 * n;
                    let logged = points(from..from + 4);
                    let series = vec![(SHARED, logged.clone()), (writer, logged)];
                    let _ = append(&db, run(1), series).await;
                    let seen = history(&db, run(1), writer).await;
                    assert_eq!(seen, points(240 * writer..from + 4), "what was logged is there");
                }
            })
        });
        let compactions = (0..3).map(|_| {
            let db = db.clone();
            tokio::spawn(async move {
                for _ in 0..40 {
                    compact_once(&db, run(1)).await.expect("compacting");
                }
            })
        });
        for done in join_all(writers.chain(compactions)).await {
            done.expect("no writer or compaction failed");
        }
        compact_once(&db, run(1)).await.unwrap();
        for writer in 0..4 {
            assert_eq!(
                history(&db, run(1), writer).await,
                points(240 * writer..240 * (writer + 1))
            );
        }
        assert_eq!(history(&db, run(1), SHARED).await, points(0..960));
        assert_eq!(latest(&db, vec![run(1)]).await[4].2.last, point(959));
        assert_eq!(count(&db, "metric_log", run(1)).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_compactor_acts_on_what_it_is_told() {
    each(|db| async move {
        prepare(&db).await;
        let compactor = Compactor::new(config(), db.clone());
        compactor.run().await.expect("the first sweep, of nothing");
        for n in 0..70 {
            for which in [1, 2] {
                // One run logs seldom.
                if which == 1 || n < 10 {
                    let appended = append(&db, run(which), vec![(1, points(n..n + 1))]).await;
                    compactor.note(run(which), appended);
                }
            }
        }
        compactor.worker().run().await.unwrap();
        assert_eq!(count(&db, "metric_log", run(1)).await, 0);
        assert_eq!(count(&db, "metric_log", run(2)).await, 10);
        assert_eq!(history(&db, run(1), 1).await, points(0..70));

        // Many points in few rows are enough too, unless they are of many metrics.
        for n in 0..10 {
            let appended = append(&db, run(3), vec![(1, points(250 * n..250 * (n + 1)))]).await;
            compactor.note(run(3), appended);
            let wide = (0..250).map(|key| (key, points(n..n + 1))).collect();
            compactor.note(run(4), append(&db, run(4), wide).await);
        }
        compactor.run().await.unwrap();
        assert!(count(&db, "metric_log", run(3)).await < 2);
        assert_eq!(count(&db, "metric_log", run(4)).await, 10);
    })
    .await;
}

/// Of the changes of a run the last stays, also where it is known what was forgotten before.
#[tokio::test(flavor = "multi_thread")]
async fn changes_but_the_last_are_forgotten() {
    each(|db| async move {
        prepare(&db).await;
        let compactor = Compactor::new(config(), db.clone());
        let versions = async |table: &str| -> Vec<i64> {
            let sql = format!("SELECT version FROM {table} WHERE run = $1 ORDER BY version");
            let read = db.read(move |tx| {
                let rows = tx.query(&sql, &params![run(1)])?;
                rows.iter().map(|row| row.get::<i64>("version")).collect()
            });
            read.await.unwrap()
        };
        for _round in 1..=3 {
            for n in 0..64 {
                let noted = move |tx: &mut Tx<'_>| {
                    let version = tx.version()?;
                    let sql = "INSERT INTO run_touch (run, version, experiment) VALUES ($1, $2, 1)";
                    tx.execute(sql, &params![run(1), version])
                };
                db.write(noted).await.unwrap();
                compactor.note(run(1), append(&db, run(1), vec![(1, points(n..n + 1))]).await);
            }
            let logged = versions("metric_log").await;
            assert_eq!(logged.len(), 64);
            assert!(logged.is_sorted_by(|one, other| one < other), "{logged:?}");
            compactor.run().await.unwrap();
            // The log's last change is told of here, now that the log does not tell of it any more.
            assert_eq!(versions("metric_log").await, Vec::<i64>::new());
            assert_eq!(versions("run_touch").await, logged[63..]);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_finds_what_nobody_counted() {
    each(|db| async move {
        prepare(&db).await;
        log(&db, run(1), 1, &points(0..63)).await;
        log(&db, run(2), 1, &points(0..64)).await;
        log(&db, run(3), 1, &points(0..600)).await;
        let compactor = Compactor::new(config(), db.clone());
        compactor.run().await.unwrap();
        for (n, left) in [(1, 63), (2, 0), (3, 0)] {
            assert_eq!(count(&db, "metric_log", run(n)).await, left, "run {n}");
        }
        assert_eq!(history(&db, run(3), 1).await, points(0..600));

        // With room for two runs only, a third makes it forget all, and look for itself.
        let config = CompactionConfig { runs: 2, ..config() };
        let forgetful = Compactor::new(config, db.clone());
        forgetful.run().await.unwrap();
        log(&db, run(5), 1, &points(0..64)).await;
        for n in 4..=6 {
            forgetful.note(run(n), append(&db, run(n), vec![(1, points(0..1))]).await);
        }
        forgetful.run().await.unwrap();
        assert_eq!(count(&db, "metric_log", run(5)).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_reported_and_stays_where_it_is() {
    each(|db| async move {
        prepare(&db).await;
        log(&db, run(1), 1, &points(0..100)).await;
        log(&db, run(2), 1, &points(0..100)).await;
        let broken = [Value::from(run(1)), vec![0xff; 16].into(), vec![1, 2, 3].into()];
        let sql = "INSERT INTO metric_log (run, id, version, experiment, points) VALUES ($1, $2, 0, 0, $3)";
        db.write(move |tx| tx.execute(sql, &broken)).await.unwrap();
        assert_eq!(try_history(&db, run(1), 1).await.unwrap_err().code(), &code::INTEGRITY);
        assert_eq!(compact_once(&db, run(1)).await.unwrap_err().code(), &code::INTEGRITY);

        let compactor = Compactor::new(config(), db.clone());
        compactor.run().await.expect("one damaged run does not stop the others");
        assert_eq!(count(&db, "metric_log", run(1)).await, 101);
        assert_eq!(count(&db, "metric_log", run(2)).await, 0);

        let repair = "DELETE FROM metric_log WHERE run = $1 AND id = $2";
        db.write(move |tx| tx.execute(repair, &params![run(1), vec![0xff_u8; 16]])).await.unwrap();
        assert_eq!(history(&db, run(1), 1).await, points(0..100));
    })
    .await;
}
