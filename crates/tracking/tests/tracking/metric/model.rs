//! Random batches against a plain set: whatever is logged, repeated, late or compacted, the
//! tables hold exactly the set.

use std::collections::BTreeMap;

use falaj_store::db::Db;
use falaj_testkit::database::each;
use falaj_testkit::random::Random;
use falaj_tracking::RunId;
use falaj_tracking::metric::history::{Steps, in_step_order, in_time_order};
use falaj_tracking::metric::{HistoryCursor, Latest, Point, Sampling, store};

use super::{append, compact_once, history, latest, run};
use crate::prepare;

const KEYS: [i64; 4] = [1, 2, 3, 1_000_000_007];

type Model = BTreeMap<(RunId, i64), Vec<Point>>;
/// What one request logged.
type Request = (RunId, Vec<(i64, Vec<Point>)>);

fn below(random: &mut Random, bound: u64) -> i64 {
    i64::try_from(random.below(bound)).expect("a small number")
}

/// A batch of a few points, or of many; times and steps close enough to collide.
fn batch(random: &mut Random) -> Vec<Point> {
    let len = *random.pick(&[0, 1, 1, 2, 5, 20, 300]);
    (0..len)
        .map(|_| {
            let value = *random.pick(&[0.0, -0.0, 0.1, -1.5, f64::NAN, f64::INFINITY, 1e-300]);
            Point::new(below(random, 200), below(random, 200) - 100, value)
        })
        .collect()
}

async fn pages(db: &Db, run: RunId, key: i64, limit: usize) -> Vec<Point> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    loop {
        let cursor = after.map(|token| token.parse::<HistoryCursor>().expect("our own token"));
        let page = db
            .read(move |tx| store::history_page(tx, run, key, cursor, limit))
            .await
            .expect("a page");
        assert!(page.points.len() <= limit);
        assert!(page.next.is_none() || page.points.len() == limit, "only the last page is short");
        all.extend(page.points);
        match page.next {
            Some(next) => after = Some(next.to_string()),
            None => return all,
        }
    }
}

async fn check(db: &Db, model: &Model, random: &mut Random) {
    for (&(run, key), points) in model {
        let expected = in_time_order(points.clone());
        assert_eq!(history(db, run, key).await, expected, "history of {key}");
        let limit = 1 + usize::try_from(random.below(400)).expect("a small number");
        assert_eq!(pages(db, run, key, limit).await, expected, "pages of {limit} of {key}");

        let (a, b) = (below(random, 200) - 100, below(random, 200) - 100);
        let steps = Steps { first: a.min(b), last: a.max(b) };
        let within: Vec<_> =
            expected.iter().copied().filter(|point| steps.contains(point.step())).collect();
        let found = db.read(move |tx| store::history(tx, run, key, steps)).await.expect("a range");
        assert_eq!(found, within, "{steps:?}");

        for sampling in [Sampling::Even, Sampling::Spikes] {
            let sampled = db
                .read(move |tx| store::sampled_history(tx, (run, key), steps, 50, sampling))
                .await
                .expect("a sample");
            assert_eq!(sampled, sampling.apply(in_step_order(within.clone()), 50));
        }
    }
    let runs: Vec<_> = model.keys().map(|(run, _)| *run).collect();
    let expected: Vec<_> = model
        .iter()
        .filter_map(|((run, key), points)| Some((*run, *key, Latest::fold(points)?)))
        .collect();
    let mut found = latest(db, runs).await;
    found.sort_by_key(|(run, key, _)| (*run, *key));
    found.dedup_by_key(|(run, key, _)| (*run, *key));
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_hold_what_was_logged() {
    let seed = Random::fresh_seed();
    eprintln!("seed {seed}");
    each(|db| async move {
        prepare(&db).await;
        let mut random = Random::new(seed);
        let mut model = Model::new();
        let mut sent: Vec<Request> = Vec::new();
        for round in 0..120 {
            match random.below(10) {
                0 => {
                    let run = run(random.below(3).into());
                    compact_once(&db, run).await.expect("compacting");
                }
                // A client that lost the reply sends it all again.
                1 if !sent.is_empty() => {
                    let (run, series) = random.pick(&sent).clone();
                    let _ = append(&db, run, series).await;
                }
                _ => {
                    let run = run(random.below(3).into());
                    let mut series = Vec::new();
                    for _ in 0..random.below(4) {
                        series.push((*random.pick(&KEYS), batch(&mut random)));
                    }
                    for (key, points) in &series {
                        model.entry((run, *key)).or_default().extend(points);
                    }
                    sent.push((run, series.clone()));
                    let _ = append(&db, run, series).await;
                }
            }
            if round % 40 == 39 {
                check(&db, &model, &mut random).await;
            }
        }
    })
    .await;
}
