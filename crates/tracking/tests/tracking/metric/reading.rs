//! Histories of several runs, latest values of many, wide requests, deleting.

use falaj_testkit::database::each;
use falaj_tracking::metric::store::{self, Appended};
use falaj_tracking::metric::{Latest, Point};

use super::{append, count, history, latest, log, point, points, run};
use crate::prepare;

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_one_row_and_a_long_series_a_chunk() {
    each(|db| async move {
        prepare(&db).await;
        let wide: Vec<_> = (0..1000).map(|key| (key, points(0..1))).collect();
        let appended = append(&db, run(1), wide).await;
        assert_eq!(appended, Appended { rows: 1, points: 1000, keys: 1000, chunks: 0 });
        let mixed = vec![(1, points(0..10_000)), (2, points(0..255)), (3, points(0..256))];
        let appended = append(&db, run(2), mixed).await;
        assert_eq!(appended, Appended { rows: 1, points: 255, keys: 1, chunks: 2 });
        assert_eq!(count(&db, "metric_chunk", run(2)).await, 3 + 1);
        assert_eq!(append(&db, run(3), vec![]).await, Appended::default());
        for (run, key, expected) in [
            (run(1), 0, points(0..1)),
            (run(1), 999, points(0..1)),
            (run(1), 1000, vec![]),
            (run(2), 1, points(0..10_000)),
            (run(2), 2, points(0..255)),
            (run(3), 1, vec![]),
        ] {
            assert_eq!(history(&db, run, key).await, expected, "{run} {key}");
        }
        let found = latest(&db, vec![run(1)]).await;
        assert_eq!(found.len(), 1000);
        assert!(found.iter().all(|(_, _, latest)| *latest == Latest::of(point(0))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_is_by_step_whenever_it_arrives() {
    each(|db| async move {
        prepare(&db).await;
        let sequence = [
            (Point::new(5, 3, 1.0), Point::new(5, 3, 1.0), Some(1.0), Some(1.0)),
            (Point::new(9, 2, -8.0), Point::new(5, 3, 1.0), Some(-8.0), Some(1.0)),
            (Point::new(5, 3, 0.5), Point::new(5, 3, 1.0), Some(-8.0), Some(1.0)),
            (Point::new(6, 3, f64::NAN), Point::new(6, 3, f64::NAN), Some(-8.0), Some(1.0)),
            (Point::new(6, 3, 0.0), Point::new(6, 3, f64::NAN), Some(-8.0), Some(1.0)),
            (
                Point::new(6, 3, f64::INFINITY),
                Point::new(6, 3, f64::MAX),
                Some(-8.0),
                Some(f64::MAX),
            ),
        ];
        for (logged, last, min, max) in sequence {
            log(&db, run(1), 7, &[logged]).await;
            assert_eq!(latest(&db, vec![run(1)]).await, [(run(1), 7, Latest { last, min, max })]);
        }
        log(&db, run(2), 7, &[Point::new(0, 0, f64::NAN)]).await;
        let only_nan = Latest { last: Point::new(0, 0, f64::NAN), min: None, max: None };
        assert_eq!(latest(&db, vec![run(2)]).await, [(run(2), 7, only_nan)]);
        log(&db, run(2), 7, &[Point::new(0, -1, 4.0)]).await;
        let later = Latest { min: Some(4.0), max: Some(4.0), ..only_nan };
        assert_eq!(latest(&db, vec![run(2)]).await, [(run(2), 7, later)]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_of_many_runs() {
    each(|db| async move {
        prepare(&db).await;
        for n in 0..350 {
            let _ = append(&db, run(n), vec![(1, points(0..3)), (2, points(1..2))]).await;
        }
        let runs: Vec<_> = (0..400).map(run).collect();
        let found = latest(&db, runs).await;
        assert_eq!(found.len(), 700);
        for (at, (found, key, latest)) in found.into_iter().enumerate() {
            let last = if key == 1 { point(2) } else { point(1) };
            assert_eq!((found, latest.last), (run(at as u128 / 2), last));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_histories_share_one_limit() {
    each(|db| async move {
        prepare(&db).await;
        for n in [3, 1, 2] {
            let _ = append(&db, run(n), vec![(7, points(0..400)), (8, points(0..1))]).await;
        }
        // In any order, one of them twice, one unknown: by run, each once.
        let series = [(run(2), 7), (run(1), 7), (run(2), 7), (run(9), 7), (run(3), 8)];
        for (max, expected) in [
            (25_000, vec![(1, 400), (2, 400), (3, 1), (9, 0)]),
            (401, vec![(1, 400), (2, 1)]),
            (10, vec![(1, 10)]),
            (0, vec![]),
        ] {
            let found = db.read(move |tx| store::history_many(tx, &series, max)).await.unwrap();
            let shape: Vec<_> = found.iter().map(|(run, points)| (*run, points.len())).collect();
            let expected: Vec<_> = expected.into_iter().map(|(n, len)| (run(n), len)).collect();
            assert_eq!(shape, expected, "{max}");
            for (_, found) in found {
                assert_eq!(found, points(0..i64::try_from(found.len()).unwrap()));
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_run_leaves_the_others() {
    each(|db| async move {
        prepare(&db).await;
        for (n, keys) in [(1, 2), (2, 1100), (3, 2)] {
            let many: Vec<_> = (0..keys).map(|key| (key, points(0..256))).collect();
            let _ = append(&db, run(n), many).await;
            log(&db, run(n), 1, &points(256..259)).await;
        }
        let mut turns = 1;
        while !db.write(move |tx| store::delete(tx, run(2))).await.unwrap() {
            turns += 1;
        }
        assert_eq!(turns, 2, "more than a thousand rows take a second transaction");
        for table in ["metric_log", "metric_chunk", "latest_metric"] {
            assert_eq!(count(&db, table, run(2)).await, 0, "{table}");
        }
        for n in [1, 3] {
            assert_eq!(history(&db, run(n), 1).await, points(0..259));
            assert_eq!(latest(&db, vec![run(n)]).await.len(), 2);
        }
        assert!(db.write(move |tx| store::delete(tx, run(2))).await.unwrap());
    })
    .await;
}
