//! What is offered comes into files, and out of them when its time is over.

use std::time::Duration;

use falaj_base::{ByteSize, HumanDuration};
use falaj_inference::Tensor;
use falaj_serving::predictions::PredictionsConfig;
use falaj_store::db::{Tx, params};

use crate::world::{World, each, sample};

fn slow() -> PredictionsConfig {
    PredictionsConfig { file_age: HumanDuration::from_hours(1), ..PredictionsConfig::default() }
}

#[tokio::test]
async fn rows_bytes_and_age_make_files() {
    let by_rows = PredictionsConfig { file_rows: 10, ..slow() };
    each(by_rows, async |world| {
        let home = world.endpoint().await;
        world.offer(&home, 0..25);
        world.until(|world| world.predictions.log().counts().files == 2).await;
        assert_eq!(world.predictions.log().counts().written, 20);
        world.predictions.log().flush().await;
        let rows: Vec<_> = world.files(&home).await.iter().map(|file| file.rows).collect();
        assert_eq!(rows.iter().sum::<u64>(), 25);
        assert_eq!(world.predictions.log().counts().waiting_bytes, 0);
    })
    .await;
    let by_bytes = PredictionsConfig { file_bytes: ByteSize::from_bytes(2_000), ..slow() };
    each(by_bytes, async |world| {
        let home = world.endpoint().await;
        world.offer(&home, 0..25);
        world.until(|world| world.predictions.log().counts().files >= 3).await;
    })
    .await;
    let by_age = PredictionsConfig {
        file_age: HumanDuration::from_millis(50),
        ..PredictionsConfig::default()
    };
    each(by_age, async |world| {
        let home = world.endpoint().await;
        world.offer(&home, 0..3);
        world.until(|world| world.predictions.log().counts().written == 3).await;
    })
    .await;
}

#[tokio::test]
async fn endpoints_have_their_own_files_and_a_flush_writes_them_all() {
    each(slow(), async |world| {
        let (one, two) = (world.endpoint().await, world.endpoint().await);
        world.offer(&one, 0..3);
        world.offer(&two, 0..4);
        // Other tensors, another file.
        let mut other = sample(9);
        other.inputs = vec![("y".to_owned(), Tensor::of([1], vec![1_i64]).unwrap())];
        assert!(world.predictions.log().offer(&one, &other.prediction(world.clock.now())));
        assert!(world.files(&one).await.is_empty());
        world.predictions.log().flush().await;
        let rows = |files: Vec<falaj_serving::predictions::File>| {
            let mut rows: Vec<_> = files.iter().map(|file| file.rows).collect();
            rows.sort_unstable();
            rows
        };
        assert_eq!(rows(world.files(&one).await), [1, 3]);
        assert_eq!(rows(world.files(&two).await), [4]);
        assert_eq!(
            world.count("SELECT COUNT(*) AS n FROM blob_ref WHERE owner_kind = 'prediction'").await,
            3
        );
        let events = "SELECT COUNT(*) AS n FROM event WHERE kind = 'falaj.predictions.kept'";
        assert_eq!(world.count(events).await, 3);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_placed_is_lost_and_counted_and_holds_nothing_up() {
    each(slow(), async |world| {
        let (nowhere, home) = (world.endpoint_in("mars").await, world.endpoint().await);
        world.offer(&nowhere, 0..3);
        world.offer(&home, 0..2);
        world.predictions.log().flush().await;
        let counts = world.predictions.log().counts();
        assert_eq!((counts.lost, counts.written, counts.waiting_bytes), (3, 2, 0));
        assert!(world.files(&nowhere).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn offers_beyond_the_memory_are_refused_and_what_was_taken_is_kept() {
    let tight = PredictionsConfig { max_memory: ByteSize::from_bytes(5_000), ..slow() };
    each(tight, async |world| {
        let home = world.endpoint().await;
        // Offered faster than anything can be written: nothing else runs between them.
        let taken = (0..1_000)
            .filter(|number| {
                let sample = sample(*number);
                world.predictions.log().offer(&home, &sample.prediction(world.clock.now()))
            })
            .count() as u64;
        let counts = world.predictions.log().counts();
        assert!(taken < 1_000 && counts.dropped == 1_000 - taken, "{counts:?}");
        assert!(counts.waiting_bytes <= 5_000);
        world.predictions.log().flush().await;
        let kept: u64 = world.files(&home).await.iter().map(|file| file.rows).sum();
        assert_eq!(kept, taken);
        // There is room again.
        world.offer(&home, 0..1);
    })
    .await;
}

#[tokio::test]
async fn what_was_kept_long_enough_goes_and_its_blobs_with_it() {
    let config = PredictionsConfig { keep: HumanDuration::from_days(30), ..slow() };
    each(config, async |world| {
        let (usual, short) = (world.endpoint().await, world.endpoint().await);
        let age = |days: u64| world.clock.advance(Duration::from_hours(days * 24));
        let write = async |world: &World| {
            world.offer(&usual, 0..2);
            world.offer(&short, 0..2);
            world.predictions.log().flush().await;
        };
        write(&world).await;
        age(10);
        write(&world).await;
        let of = short.endpoint;
        let say = move |tx: &mut Tx<'_>| {
            let sql = "UPDATE endpoint SET spec = $2 WHERE id = $1";
            tx.execute(sql, &params![of, r#"{"variants":[],"keep_predictions":"7d"}"#])
        };
        world.db.write(say).await.unwrap();
        let expired = world.predictions.expire().await.unwrap();
        assert_eq!((expired.files, expired.rows), (1, 2));
        assert_eq!((world.files(&usual).await.len(), world.files(&short).await.len()), (2, 1));
        age(21);
        assert_eq!(world.predictions.expire().await.unwrap().files, 2);
        assert_eq!((world.files(&usual).await.len(), world.files(&short).await.len()), (1, 0));
        // An endpoint that is gone leaves nothing behind.
        let gone = usual.endpoint;
        let delete =
            move |tx: &mut Tx<'_>| tx.execute("DELETE FROM endpoint WHERE id = $1", &params![gone]);
        world.db.write(delete).await.unwrap();
        assert_eq!(world.predictions.expire().await.unwrap().files, 1);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM prediction_file").await, 0);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob_ref").await, 0);
        age(30);
        let collected = world.objects.collect().await.unwrap();
        assert!(collected.removed >= 1, "{collected:?}");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob").await, 0);
    })
    .await;
}
