//! What came of predictions finds them again.

use std::collections::HashMap;
use std::time::Duration;

use falaj_base::{Ctx, HumanDuration, Result};
use falaj_serving::predictions::{Came, Outcome, PredictionsConfig, Wanted};
use falaj_store::db::Tx;
use uuid::Uuid;

use crate::world::each;

fn slow() -> PredictionsConfig {
    PredictionsConfig { file_age: HumanDuration::from_hours(1), ..PredictionsConfig::default() }
}

/// No comparison runs.
#[allow(clippy::unnecessary_wraps, reason = "what counts may fail")]
fn uncounted(_: &mut Tx<'_>, _: &[Outcome], _: &[bool]) -> Result<()> {
    Ok(())
}

fn outcome(prediction: Uuid, row: u32, came: Came) -> Outcome {
    Outcome { prediction, row, came }
}

#[tokio::test]
async fn outcomes_join_their_predictions_and_the_last_word_counts() {
    each(slow(), async |world| {
        let (home, other) = (world.endpoint().await, world.endpoint().await);
        let ids = world.offer(&home, 0..3);
        let ctx = Ctx::system("test");
        let report = async |outcomes: Vec<Outcome>| {
            world.predictions.report(&ctx, &home, outcomes, uncounted).await.unwrap()
        };
        let first = report(vec![
            outcome(ids[0], 0, Came::Value(1.0)),
            outcome(ids[1], 0, Came::Label("yes".to_owned())),
            outcome(ids[1], 1, Came::Value(0.5)),
            // Twice in one report: the last counts, and one of them is the first.
            outcome(ids[0], 0, Came::Value(2.0)),
        ])
        .await;
        assert_eq!(first, [true, true, true, false]);
        assert_eq!(report(vec![outcome(ids[0], 0, Came::Value(3.0))]).await, [false]);
        let known = world.predictions.outcomes(&ctx, &home, ids.clone()).await.unwrap();
        let wanted = HashMap::from([
            ((ids[0], 0), Came::Value(3.0)),
            ((ids[1], 0), Came::Label("yes".to_owned())),
            ((ids[1], 1), Came::Value(0.5)),
        ]);
        assert_eq!(known, wanted);
        // Those of one endpoint are none of another's.
        assert!(world.predictions.outcomes(&ctx, &other, ids).await.unwrap().is_empty());
        let told = "SELECT COUNT(*) AS n FROM event WHERE kind = 'falaj.predictions.reported'";
        assert_eq!(world.count(told).await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_thousand_at_a_time_and_no_more() {
    each(slow(), async |world| {
        let home = world.endpoint().await;
        let ctx = Ctx::system("test");
        let many = |count: usize| -> Vec<_> {
            (0..count).map(|_| outcome(Uuid::now_v7(), 0, Came::Value(0.0))).collect()
        };
        let first = world.predictions.report(&ctx, &home, many(1000), uncounted).await.unwrap();
        assert!(first.iter().all(|first| *first));
        assert!(world.predictions.report(&ctx, &home, many(1001), uncounted).await.is_err());
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM prediction_outcome").await, 1000);
    })
    .await;
}

#[tokio::test]
async fn they_are_read_in_pages() {
    each(slow(), async |world| {
        let (home, other) = (world.endpoint().await, world.endpoint().await);
        let ctx = Ctx::system("test");
        let ids: Vec<_> = (0..700).map(|_| Uuid::now_v7()).collect();
        for row in 0..2 {
            let some = ids.iter().map(|id| outcome(*id, row, Came::Value(f64::from(row))));
            world.predictions.report(&ctx, &home, some.collect(), uncounted).await.unwrap();
        }
        let page = async |wanted| {
            let found = world.predictions.page_of_outcomes(&ctx, &home, wanted).await.unwrap();
            found.into_iter().map(|(it, _)| (it.prediction, it.row)).collect::<Vec<_>>()
        };
        let mut all = page(Wanted::default()).await;
        assert_eq!(all.len(), 1000);
        all.extend(page(Wanted { after: all.last().copied(), prediction: None }).await);
        let expected: Vec<_> = ids.iter().flat_map(|id| [(*id, 0), (*id, 1)]).collect();
        assert_eq!(all, expected);
        let one = Wanted { prediction: Some(ids[5]), after: None };
        assert_eq!(page(one).await, [(ids[5], 0), (ids[5], 1)]);
        let rest = Wanted { after: Some((ids[5], 0)), ..one };
        assert_eq!(page(rest).await, [(ids[5], 1)]);
        let none = Wanted { after: Some((ids[9], 0)), ..one };
        assert!(page(none).await.is_empty());
        let others = world.predictions.page_of_outcomes(&ctx, &other, Wanted::default()).await;
        assert!(others.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn of_two_who_report_the_same_at_once_one_is_first() {
    each(slow(), async |world| {
        let home = world.endpoint().await;
        let id = Uuid::now_v7();
        let report = || async {
            let ctx = Ctx::system("test");
            let outcomes = vec![outcome(id, 0, Came::Value(1.0))];
            world.predictions.report(&ctx, &home, outcomes, uncounted).await.unwrap()[0]
        };
        let found = futures::future::join_all((0..8).map(|_| report())).await;
        assert_eq!(found.iter().filter(|first| **first).count(), 1, "{found:?}");
    })
    .await;
}

#[tokio::test]
async fn old_outcomes_go_with_the_files() {
    each(slow(), async |world| {
        let home = world.endpoint().await;
        let ctx = Ctx::system("test");
        let ids = world.offer(&home, 0..1);
        world.predictions.log().flush().await;
        let report = async |id| {
            let outcomes = vec![outcome(id, 0, Came::Value(1.0))];
            world.predictions.report(&ctx, &home, outcomes, uncounted).await.unwrap();
        };
        report(ids[0]).await;
        world.clock.advance(Duration::from_hours(40 * 24));
        report(Uuid::now_v7()).await;
        world.predictions.expire().await.unwrap();
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM prediction_outcome").await, 1);
    })
    .await;
}
