//! Charts of long histories: the sample of the whole, without reading the whole.

use falaj_store::db::{Db, params};
use falaj_testkit::database::each;
use falaj_tracking::RunId;
use falaj_tracking::metric::history::{Steps, in_step_order};
use falaj_tracking::metric::{Point, Sampling, store};

use super::{append, history, log, point, points, run};
use crate::prepare;

async fn sample(db: &Db, run: RunId, steps: Steps, max: usize) -> falaj_base::Result<Vec<Point>> {
    db.read(move |tx| store::sampled_history(tx, (run, 1), steps, max, Sampling::Even)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_is_the_sample_of_the_whole_however_its_points_lie() {
    let in_order = vec![points(0..5000), points(5000..5300), points(5300..9000)];
    let swapped = |at: i64| Point::new(point(at).timestamp(), 10_000 - at, 0.25);
    let far = |step| vec![Point::new(1, step, 1.0), Point::new(2, step, 2.0)];
    let layouts: Vec<(&str, Vec<Vec<Point>>)> = vec![
        ("in order", in_order.clone()),
        ("with points in the log", [in_order.clone(), vec![points(9000..9100)]].concat()),
        ("only in the log", vec![points(0..200)]),
        ("twice", [in_order.clone(), vec![points(4900..5300)]].concat()),
        ("a late point", [in_order.clone(), vec![points(17..18)]].concat()),
        ("later chunks of smaller steps", vec![points(5000..6000), points(0..5000)]),
        ("steps that fall", vec![(0..3000).map(swapped).collect()]),
        ("a step twice", vec![(0..900).map(|n| Point::new(n, n / 2, 1.0)).collect()]),
        (
            "steps as far apart as can be",
            vec![
                (0..300)
                    .map(|n| Point::new(n, if n < 150 { i64::MIN + n } else { i64::MAX - n }, 0.5))
                    .collect(),
            ],
        ),
        (
            "steps that jump back around",
            vec![[far(i64::MAX - 1), far(i64::MIN + 1), points(0..300)].concat()],
        ),
    ];
    each(|db| {
        let layouts = layouts.clone();
        async move {
            prepare(&db).await;
            for (n, (name, batches)) in layouts.into_iter().enumerate() {
                let run = run(n as u128);
                for batch in batches {
                    let _ = append(&db, run, vec![(1, batch), (2, points(0..400))]).await;
                }
                let whole = in_step_order(history(&db, run, 1).await);
                for steps in
                    [Steps::ALL, Steps { first: 100, last: 5100 }, Steps { first: 0, last: 8999 }]
                {
                    let within: Vec<_> = whole
                        .iter()
                        .copied()
                        .filter(|point| steps.contains(point.step()))
                        .collect();
                    for max in [0, 1, 2, 3, 7, 320, 8999, 9000, 100_000] {
                        let expected = Sampling::Even.apply(within.clone(), max);
                        let found = sample(&db, run, steps, max).await.unwrap();
                        assert_eq!(found, expected, "{name}, {steps:?}, {max}");
                    }
                }
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_chunks_with_points_of_the_chart_are_read() {
    each(|db| async move {
        prepare(&db).await;
        for first in (0..3000).step_by(300) {
            let _ = append(&db, run(1), vec![(1, points(first..first + 300))]).await;
        }
        log(&db, run(1), 1, &points(3000..3004)).await;
        let spoil = "UPDATE metric_chunk SET points = $2 WHERE run = $1 AND first_step = 600";
        db.write(move |tx| tx.execute(spoil, &params![run(1), vec![0_u8]])).await.unwrap();
        let found = sample(&db, run(1), Steps::ALL, 3).await.unwrap();
        assert_eq!(found, [point(0), point(1002), point(3003)]);
        assert!(sample(&db, run(1), Steps::ALL, 20).await.is_err(), "one of these is spoilt");
    })
    .await;
}
