//! What is known about features, over real stores: every test runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the other tests of this crate use more of it")]
#[path = "../features/world.rs"]
mod world;

mod datasets;
mod erased;
mod known;

use falaj_base::HumanDuration;
use falaj_features::FeaturesConfig;
use serde_json::Value;
use world::{World, ok};

/// Runs a test on each engine, where nobody makes training sets but the test.
async fn each<F: AsyncFn(World)>(suite: F) {
    let config = FeaturesConfig { wait: HumanDuration::from_secs(0), ..FeaturesConfig::default() };
    world::each_with(config, suite).await;
}

/// Asks for a training set, and makes it.
async fn made(world: &World, wanted: Value) -> Value {
    let asked = ok(world.post("/training-sets", wanted).await);
    world.features.make_training_sets().await.unwrap();
    let made = ok(world.get(&format!("/training-sets/{}", asked["id"].as_str().unwrap())).await);
    assert_eq!(made["state"], "ready", "{made}");
    made
}
