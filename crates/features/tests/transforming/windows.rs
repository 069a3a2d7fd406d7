//! Windows: the same online and in training sets, in whatever order and batches rides come.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::place::{BASE, Lake, NOW, Ride, feast, online, push, trained};
use crate::world::{World, ok};

const WINDOWS: &str = r#"
[[view]]
name = "rides"
entities = ["driver"]
source = "live"
known_time = "created"
columns = [{ name = "fare", type = "float64" }, { name = "city", type = "string" }]

[[view.aggregate]]
name = "n"
function = "count"
window = "60s"
hop = "10s"

[[view.aggregate]]
name = "paid"
column = "fare"
function = "sum"
window = "60s"
hop = "10s"

[[view.aggregate]]
name = "mean"
column = "fare"
function = "mean"
window = "30s"
hop = "10s"

[[view.aggregate]]
name = "most"
column = "fare"
function = "max"
window = "40s"
hop = "20s"

[[view.aggregate]]
name = "last"
column = "city"
function = "last"
window = "60s"
hop = "10s"

[[view.aggregate]]
name = "cities"
column = "city"
function = "distinct"
window = "60s"
hop = "10s"

[[view.aggregate]]
name = "half"
column = "fare"
function = "quantile"
quantile = 0.5
window = "60s"
hop = "10s"
"#;

const FEATURES: [&str; 7] = [
    "rides:n",
    "rides:paid",
    "rides:mean",
    "rides:most",
    "rides:last",
    "rides:cities",
    "rides:half",
];

/// What each feature is, told without tiles, trees or batches.
fn slowly(rides: &[Ride], driver: i64, at: i64) -> Vec<Value> {
    let within = |window: i64, hop: i64| -> Vec<&Ride> {
        let start = (at.div_euclid(hop) + 1) * hop - window;
        let counts =
            |ride: &&Ride| ride.0 == driver && start <= ride.1 && ride.1 <= at && ride.2 <= at;
        rides.iter().filter(counts).collect()
    };
    let minute = within(60, 10);
    let fares = |of: &[&Ride]| of.iter().filter_map(|ride| ride.3).collect::<Vec<f64>>();
    let sum = |of: &[f64]| (!of.is_empty()).then(|| of.iter().sum::<f64>());
    let half = fares(&within(30, 10));
    let mut sorted = fares(&minute);
    sorted.sort_by(f64::total_cmp);
    let mut cities: Vec<_> = minute.iter().filter_map(|ride| ride.4).collect();
    let last = minute.iter().filter_map(|ride| Some((ride.1, ride.4?))).max();
    cities.sort_unstable();
    cities.dedup();
    #[allow(clippy::cast_precision_loss)]
    let mean = sum(&half).map(|sum| sum / half.len() as f64);
    vec![
        minute.len().into(),
        sum(&fares(&minute)).into(),
        mean.into(),
        fares(&within(40, 20)).into_iter().reduce(f64::max).into(),
        last.map(|(_, city)| city).into(),
        cities.len().into(),
        sorted.get(sorted.len().div_ceil(2).saturating_sub(1)).copied().into(),
    ]
}

fn rides(events: std::ops::Range<i64>) -> impl Strategy<Value = Vec<Ride>> {
    let fare = prop::option::weighted(0.8, (0_i32..400).prop_map(|it| f64::from(it) / 8.0));
    let city = prop::option::weighted(0.8, prop::sample::select(vec!["dubai", "doha", "cairo"]));
    let late = prop_oneof![3 => Just(0_i64), 1 => 0_i64..30];
    let one = (0_i64..3, events, late, fare, city)
        .prop_map(|(driver, event, late, fare, city)| (driver, event, event + late, fare, city));
    prop::collection::vec(one, 0..25)
}

async fn materialize(world: &World) -> Value {
    world.is_settled().await;
    let body = json!({ "feature_views": ["rides"], "disable_event_timestamp": true });
    ok(feast(world, "/materialize", body).await)["rows"].clone()
}

#[tokio::test]
async fn a_window_says_the_same_everywhere() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..6 {
        let brought = rides(NOW - 100..NOW - 10).new_tree(&mut runner).unwrap().current();
        // In turns; each push is known when it comes, and its events are older by some seconds.
        let pushes = prop::collection::vec(rides(-25..1), 1..6);
        let pushes = pushes.new_tree(&mut runner).unwrap().current();
        let brought: Vec<Ride> = brought.into_iter().filter(|ride| ride.2 <= NOW).collect();
        let lake = Lake::new(&brought);
        let toml = format!("{BASE}{WINDOWS}");
        lake.each(&toml, async |world: World| {
            let mut all = brought.clone();
            let mut now = NOW;
            for (turn, rides) in pushes.iter().enumerate() {
                world.clock.advance(Duration::from_secs(7));
                now += 7;
                let known: Vec<Ride> =
                    rides.iter().map(|ride| (ride.0, now + ride.1, now, ride.3, ride.4)).collect();
                for some in known.chunks(1 + turn) {
                    ok(push(&world, "rides", some).await);
                }
                all.extend(known);
                if turn == 1 {
                    materialize(&world).await;
                }
            }
            // Brought again, nothing counts twice; nor when the log is read again.
            materialize(&world).await;
            materialize(&world).await;
            world.run_worker("features-online").await;
            let drivers = [0, 1, 2, 7];
            let expected: Vec<_> =
                drivers.iter().map(|driver| slowly(&all, *driver, now)).collect();
            let ids = json!({ "driver_id": drivers });
            let (found, _) = online(&world, &FEATURES, ids.clone()).await;
            assert_eq!(found, json!(expected));
            let asked: Vec<_> = drivers.iter().map(|driver| (*driver, now)).collect();
            let offline = trained(&world, &FEATURES, &asked, json!({})).await;
            assert_eq!(json!(offline), found);
            // At every moment before, too: only what was known then.
            let asked: Vec<(i64, i64)> =
                (0..80).map(|step| (step % 3, now + 3 - step * 2)).collect();
            let offline = trained(&world, &FEATURES, &asked, json!({})).await;
            for ((driver, at), found) in asked.iter().zip(&offline) {
                assert_eq!(*found, slowly(&all, *driver, *at), "{driver} at {}", at - now);
            }
            // Time goes by, and nothing happens.
            for step in [4, 13, 30, 60] {
                world.clock.advance(Duration::from_secs(step));
                now += i64::try_from(step).unwrap();
                let expected: Vec<_> =
                    drivers.iter().map(|driver| slowly(&all, *driver, now)).collect();
                let (found, status) = online(&world, &FEATURES, ids.clone()).await;
                assert_eq!(found, json!(expected), "{step} later");
                // A count of nothing is there, and a sum of nothing is not.
                assert_eq!(status[3], "pnnnnpn");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_store_that_was_lost_says_the_same_again() {
    let lake = Lake::new(&[(1, NOW - 20, NOW - 20, Some(1.0), None)]);
    let toml = format!("{BASE}{WINDOWS}");
    lake.each(&toml, async |world: World| {
        for turn in 0..5 {
            let ride = (1, NOW - 3 * turn, NOW, Some(0.5), Some("doha"));
            ok(push(&world, "rides", &[ride, ride]).await);
        }
        let ids = json!({ "driver_id": [1] });
        let before = online(&world, &FEATURES, ids.clone()).await;
        assert_eq!(before.0[0][0], 10);
        let mut config = world.features.config().clone();
        if !config.online.redis.url.is_empty() {
            config.online.redis.prefix.push_str("another:");
        }
        let folder = tempfile::tempdir().unwrap();
        let other = world.server(config, folder.path());
        assert_eq!(online(&other, &FEATURES, ids.clone()).await, before);
    })
    .await;
}

#[tokio::test]
async fn what_a_file_says_now_takes_the_place_of_what_it_said() {
    let lake = Lake::new(&[(1, NOW - 20, NOW - 20, Some(1.0), None)]);
    let toml = format!("{BASE}{WINDOWS}");
    lake.each(&toml, async |world: World| {
        let ids = json!({ "driver_id": [1] });
        let counted = async || online(&world, &["rides:n", "rides:paid"], ids.clone()).await.0;
        lake.write(&[(1, NOW - 20, NOW - 20, Some(1.0), None)]);
        assert_eq!(materialize(&world).await, json!({ "rides": 1 }));
        ok(push(&world, "rides", &[(1, NOW, NOW, Some(4.0), None)]).await);
        assert_eq!(counted().await, json!([[2, 5.0]]));
        let ride = |fare: f64| (1, NOW - 15, NOW - 15, Some(fare), None);
        lake.write(&[ride(2.0), ride(3.0), (1, NOW + 5, NOW + 5, Some(9.0), None)]);
        assert_eq!(materialize(&world).await, json!({ "rides": 2 }));
        assert_eq!(counted().await, json!([[3, 9.0]]));
    })
    .await;
}

#[tokio::test]
async fn feasts_clients_read_windows_too() {
    let lake = Lake::new(&[]);
    let toml = format!("{BASE}{WINDOWS}");
    lake.each(&toml, async |world: World| {
        ok(push(&world, "rides", &[(1, NOW - 1, NOW, Some(2.5), Some("doha"))]).await);
        let body = json!({ "features": FEATURES, "entities": { "driver_id": [1, 2] } });
        let found = ok(feast(&world, "/get-online-features", body).await);
        assert_eq!(found["metadata"]["feature_names"][1], "n");
        assert_eq!(found["results"][1]["values"], json!([1, 0]));
        assert_eq!(found["results"][1]["statuses"], json!(["PRESENT", "PRESENT"]));
        assert_eq!(found["results"][2]["values"], json!([2.5, null]));
        assert_eq!(found["results"][2]["statuses"], json!(["PRESENT", "NULL_VALUE"]));
    })
    .await;
}
