//! The log of pushed rows.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{
    ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use falaj_features::FeaturesConfig;
use falaj_features::definition::ViewVersion;
use falaj_features::history::{Entry, Position, Rows, append, end, read_since, read_view};
use falaj_store::db::Tx;

use super::definitions::DRIVERS;
use super::world::{World, each};

type Columns = Vec<(&'static str, ArrayRef)>;

fn columns(keys: &[i64]) -> Columns {
    let rows = keys.len();
    let times = TimestampMicrosecondArray::from(vec![5; rows]).with_timezone("UTC");
    vec![
        ("driver_id", Arc::new(Int64Array::from(keys.to_vec()))),
        ("conv_rate", Arc::new(Float32Array::from(vec![Some(0.5); rows]))),
        ("trips", Arc::new(keys.iter().map(|key| Some(key * 10)).collect::<Int64Array>())),
        ("event_timestamp", Arc::new(times)),
    ]
}

fn batch(columns: Columns) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

fn rows(view: &ViewVersion, keys: &[i64]) -> Rows {
    Rows::new(view, batch(columns(keys)), &FeaturesConfig::default()).unwrap()
}

async fn push(world: &World, rows: Rows) -> Position {
    world.db.write(move |tx: &mut Tx<'_>| append(tx, &rows)).await.unwrap().0
}

async fn since(world: &World, after: Position) -> Vec<Entry> {
    world.db.read(move |tx: &mut Tx<'_>| read_since(tx, after)).await.unwrap()
}

/// PostgreSQL looks after its tables in transactions of its own, which readers wait for, and one of another
/// database that ends while it is looked at is taken for one of this.
const PAUSE: Duration = Duration::from_millis(50);
const PATIENCE: usize = 200;

/// Looks until there are so many.
async fn so_many_since(world: &World, after: Position, count: usize) -> Vec<Entry> {
    let mut found = since(world, after).await;
    for _ in 0..PATIENCE {
        if found.len() == count {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        found = since(world, after).await;
    }
    found
}

#[tokio::test]
async fn what_is_pushed_is_read_in_the_order_of_commits() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        let view = world.view("driver_stats").await;
        let first = push(&world, rows(&view, &[1, 2])).await;
        let pushes = (3..30).map(|key| push(&world, rows(&view, &[key])));
        let many = futures::future::join_all(pushes).await;
        let found = so_many_since(&world, Position::START, 28).await;
        assert_eq!(found.len(), 28);
        assert!(found.is_sorted_by_key(|entry| entry.position));
        assert_eq!(found[0].position, first);
        assert!(many.iter().all(|place| *place > first));
        assert_eq!(found[0].batch().unwrap(), *rows(&view, &[1, 2]).batch());
        assert_eq!((found[0].view, found[0].rows, found[0].at), (view.id(), 2, world.db.now()));
        assert_eq!(so_many_since(&world, found[26].position, 1).await.len(), 1);
        assert!(since(&world, found[27].position).await.is_empty());
        let mut last = world.db.read(end).await.unwrap();
        for _ in 0..PATIENCE {
            if last == found[27].position {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            last = world.db.read(end).await.unwrap();
        }
        assert_eq!(last, found[27].position);
        let (id, until) = (view.id(), found[3].position);
        let read = move |tx: &mut Tx<'_>| read_view(tx, id, first, until, true);
        assert_eq!(world.db.read(read).await.unwrap().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_push_of_two_views_has_two_places() {
    each(async |world: World| {
        let more = "[[view]]\nname = \"b\"\nentities = [\"driver\"]\nsource = \"live\"\n\
                    schema = [{ name = \"conv_rate\", type = \"float32\" },\
                              { name = \"trips\", type = \"int64\" }]";
        world.apply(&format!("{DRIVERS}\n{more}")).await;
        let (a, b) = (world.view("driver_stats").await, world.view("b").await);
        let (a, b) = (rows(&a, &[1]), rows(&b, &[1]));
        let write = move |tx: &mut Tx<'_>| Ok((append(tx, &a)?.0, append(tx, &b)?.0));
        let (first, second) = world.db.write(write).await.unwrap();
        assert!(first < second);
        assert_eq!(so_many_since(&world, Position::START, 2).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_bad_row_is_refused_by_its_name() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        let view = world.view("driver_stats").await;
        let refused = |change: &dyn Fn(&mut Columns)| {
            let mut columns = columns(&[1, 2]);
            change(&mut columns);
            let batch = RecordBatch::try_from_iter_with_nullable(
                columns.into_iter().map(|(name, column)| (name, column, true)),
            );
            let error = Rows::new(&view, batch.unwrap(), &FeaturesConfig::default()).unwrap_err();
            error.field().unwrap().to_owned()
        };
        assert_eq!(refused(&|it| drop(it.remove(2))), "trips");
        assert_eq!(refused(&|it| it[2].1 = Arc::new(StringArray::from(vec!["a", "b"]))), "trips");
        assert_eq!(
            refused(&|it| it[0].1 = Arc::new(Int64Array::from(vec![Some(1), None]))),
            "driver_id[1]"
        );
        assert_eq!(
            refused(&|it| it.push(("more", Arc::new(Int64Array::from(vec![1, 2]))))),
            "columns"
        );
        let none = Rows::new(&view, batch(columns(&[])), &FeaturesConfig::default());
        assert_eq!(none.unwrap_err().field(), Some("rows"));
        let small = FeaturesConfig { max_push_rows: 1, ..FeaturesConfig::default() };
        let many = Rows::new(&view, batch(columns(&[1, 2])), &small);
        assert_eq!(many.unwrap_err().field(), Some("rows"));
        let small = FeaturesConfig {
            max_push_size: falaj_base::ByteSize::from_bytes(10),
            ..FeaturesConfig::default()
        };
        let large = Rows::new(&view, batch(columns(&[1, 2])), &small);
        assert_eq!(large.unwrap_err().code().id, "too-large");
    })
    .await;
}
