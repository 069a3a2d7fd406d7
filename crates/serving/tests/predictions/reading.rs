//! What comes out is what went in.

use std::time::Duration;

use falaj_base::{Ctx, HumanDuration, Timestamp, code};
use falaj_inference::Data;
use falaj_serving::predictions::PredictionsConfig;
use falaj_tables::{Limits, Table};
use futures::TryStreamExt;

use crate::world::{ALL, each, texts};

fn slow() -> PredictionsConfig {
    PredictionsConfig { file_age: HumanDuration::from_hours(1), ..PredictionsConfig::default() }
}

#[tokio::test]
async fn rows_are_what_was_offered() {
    each(slow(), async |world| {
        let home = world.endpoint().await;
        let ids = world.offer(&home, 0..250);
        world.predictions.log().flush().await;
        let batches = world.rows(&home).await;
        assert_eq!(batches.iter().map(falaj_tables::Batch::rows).max(), Some(100));
        let found: Vec<_> = batches.iter().flat_map(|batch| texts(batch, "id")).collect();
        assert_eq!(found, ids.iter().map(ToString::to_string).collect::<Vec<_>>());
        let first = &batches[0];
        assert_eq!(texts(first, "variant")[..3], ["blue", "green", "blue"]);
        assert_eq!(texts(first, "model")[0], "churn");
        assert_eq!(texts(first, "output:label")[..3], ["label 0 0", "label 1 0", "label 1 1"]);
        let column = |name: &str| first.column(name).unwrap().1.clone();
        assert_eq!(column("input:x").ends.unwrap()[..3], [2, 6, 12]);
        let Data::I64(shapes) = column("input_shape:x").items else { panic!("shapes") };
        assert_eq!(shapes[..6], [1, 2, 2, 2, 3, 2]);
        let Data::I64(latencies) = column("latency_us").items else { panic!("latencies") };
        assert_eq!(latencies[..3], [1, 2, 3]);
        assert!(!column("key").is_missing(0) && column("key").is_missing(1));
        let Data::I64(times) = column("at").items else { panic!("times") };
        assert_eq!(times[0], world.clock.now().micros());
    })
    .await;
}

#[tokio::test]
async fn files_are_found_by_time_and_page_by_page() {
    each(slow(), async |world| {
        let home = world.endpoint().await;
        let start = world.clock.now();
        for _ in 0..5 {
            world.offer(&home, 0..2);
            world.predictions.log().flush().await;
            world.clock.advance(Duration::from_mins(1));
        }
        let minute = |n: u64| start + Duration::from_mins(n);
        let ctx = Ctx::system("test");
        let within = async |from: Timestamp, to: Timestamp| {
            world.predictions.files(&ctx, &home, (from, to), None, 100).await.unwrap()
        };
        assert_eq!(within(minute(0), minute(5)).await.len(), 5);
        assert_eq!(within(minute(1), minute(3)).await.len(), 2);
        assert_eq!(within(minute(9), minute(10)).await.len(), 0);
        assert!(
            world.predictions.files(&ctx, &home, (minute(2), minute(1)), None, 9).await.is_err()
        );
        let (mut after, mut pages) = (None, Vec::new());
        loop {
            let page = world.predictions.files(&ctx, &home, ALL, after, 2).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some((last.to, last.id));
            pages.push(page.len());
        }
        assert_eq!(pages, [2, 2, 1]);
    })
    .await;
}

#[tokio::test]
async fn a_file_opens_as_it_lies_and_another_tenants_does_not() {
    each(slow(), async |world| {
        let home = world.endpoint().await;
        world.offer(&home, 0..3);
        world.predictions.log().flush().await;
        let file = world.files(&home).await.remove(0);
        let ctx = Ctx::system("test");
        let blob = world.predictions.open(&ctx, &home, &file).await.unwrap();
        let pieces: Vec<_> = blob.read().try_collect().await.unwrap();
        let table = Table::open(bytes::Bytes::from(pieces.concat()), Limits::default()).unwrap();
        assert_eq!((table.rows(), table.note("falaj.predictions")), (3, Some("1")));
        assert_eq!(file.size, blob.size());
        let mut stranger = (*home).clone();
        stranger.tenant = falaj_base::TenantId::new();
        let refused = world.predictions.open(&ctx, &stranger, &file).await.unwrap_err();
        assert_eq!(refused.code(), &code::NOT_FOUND);
    })
    .await;
}

#[tokio::test]
async fn bytes_that_are_not_text_are_kept_as_bytes() {
    each(slow(), async |world| {
        let home = world.endpoint().await;
        let mut odd = crate::world::sample(1);
        let raw = vec![bytes::Bytes::from_static(b"\xff\x00")];
        let tensor = falaj_inference::Tensor::of([1], raw).unwrap();
        odd.outputs = vec![("label".to_owned(), tensor)];
        assert!(world.predictions.log().offer(&home, &odd.prediction(world.clock.now())));
        world.predictions.log().flush().await;
        let batches = world.rows(&home).await;
        let (_, column) = batches[0].column("output:label").unwrap();
        assert_eq!(column.items, Data::Bytes(vec![bytes::Bytes::from_static(b"\xff\x00")]));
    })
    .await;
}
