//! Streams of a real server as sources: what is asked at each step, and what is passed over.

use std::time::Duration;

use falaj_base::{ByteSize, Name};
use falaj_features::FeaturesConfig;
use falaj_store::lease::Leases;
use falaj_streams::StreamKind;
use serde_json::Value;

use super::servers::{Nats, config, publish};
use super::world::{World, each_with, ok};

const RIDES: &str = r#"
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "rides"
kind = "stream"
stream = "events"
topic = "rides"
on_bad = "quarantine"

[[view]]
name = "stats"
entities = ["driver"]
source = "rides"
schema = [{ name = "trips", type = "int64" }]
"#;

const ROWS: &str = "SELECT CAST(COALESCE(SUM(rows), 0) AS BIGINT) AS n FROM feature_log";

fn ride(driver: i64) -> String {
    let at = "2026-05-01T11:00:00Z";
    format!(r#"{{"driver_id": {driver}, "trips": 1, "event_timestamp": "{at}"}}"#)
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    for _ in 0..300 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what} did not come about");
}

async fn partition(world: &World) -> Value {
    ok(world.get("/streams").await)["items"][0].clone()
}

#[tokio::test]
async fn a_stream_is_asked_about_with_each_step_and_passes_over_what_is_too_large() {
    let nats = Nats::start().await;
    let mut stream = config(StreamKind::Nats, &nats.address());
    stream.tenant = Name::new("default").unwrap();
    stream.zone = Some(Name::new("abroad").unwrap());
    stream.max_record = ByteSize::kib(1);
    stream.batch_size = ByteSize::kib(1);
    let config = FeaturesConfig { streams: vec![stream], ..FeaturesConfig::default() };
    each_with(config, async |world: World| {
        let context = nats.context().await;
        drop(context.delete_stream("rides").await);
        let context = nats.make("rides").await;
        world.make_zone("abroad").await;
        world.transfer("abroad", "local", true).await;
        world.apply(RIDES).await;
        world.features.lead(Leases::new(world.db.clone(), "one"));
        world.features.watch_streams().await.unwrap();
        // What the server does not even send is told by its number, and what follows is read.
        let large = format!(r#"{{"driver_id": 2, "note": "{}"}}"#, "x".repeat(200_000));
        publish(&context, "rides.a", &[ride(1), large, ride(3)]).await;
        until("two rows", async || world.count(ROWS).await == 2).await;
        let found = ok(world.get("/quarantine?source=rides").await);
        let bad = &found["items"][0];
        assert_eq!(bad["offset"], 2, "{found}");
        assert!(bad["reason"].as_str().unwrap().starts_with("too large"), "{found}");
        assert_eq!(partition(&world).await["state"], "running");
        // The rule ends while the stream is being read.
        world.transfer("abroad", "local", false).await;
        publish(&context, "rides.a", &[ride(4)]).await;
        until("a refusal", async || partition(&world).await["state"] == "refused").await;
        assert_eq!(world.count(ROWS).await, 2);
        world.features.stop().await;
    })
    .await;
}
