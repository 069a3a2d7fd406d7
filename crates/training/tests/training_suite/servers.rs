//! Several servers, each with a machine of its own.

use std::sync::Arc;
use std::time::Duration;

use falaj_executors::End;
use falaj_training::config::{PoolKind, TrainingConfig};
use serde_json::json;

use super::engine::{Engine, shared};
use super::world::{World, config, each, ok, refused};

fn own_machines() -> TrainingConfig {
    let mut config = config();
    config.pool[0].kind = PoolKind::Local;
    config
}

async fn passes(world: &World) {
    for _ in 0..12 {
        world.clock.advance(Duration::from_millis(300));
        // Whoever does not schedule any more notices, and begins anew.
        let _ = world.training.pass().await;
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

#[tokio::test]
async fn what_another_servers_machine_runs_is_neither_lost_nor_started_again() {
    each(async |mut world: World| {
        world.die_and_be(own_machines());
        let id = world.submit(json!({})).await;
        passes(&world).await;
        assert_eq!(world.state(&id).await, "RUNNING");
        let first = world.training.clone();
        let theirs: Arc<Engine> = shared();
        let folder = tempfile::tempdir().unwrap();
        world.stand_by(own_machines(), &theirs, folder.path());
        passes(&world).await;
        world.clock.advance(Duration::from_mins(10));
        passes(&world).await;
        assert_eq!(world.state(&id).await, "RUNNING");
        assert_eq!((theirs.launches(), world.starts(&id).await.len()), (0, 1));
        let why = ok(world.get(&format!("/jobs/{id}/why")).await);
        assert_eq!(why["rule"], "away", "{why}");
        // It takes nothing from the machine of the other.
        let both = json!({ "resources": { "cpu": 4.0, "nodes": 2 } });
        let other = world.submit(both).await;
        passes(&world).await;
        assert_eq!((world.state(&other).await, theirs.launches()), ("RUNNING".into(), 1));
        // The first one is back: it knows what became of its own, and nothing of the other's.
        let second = world.become_one(first);
        world.engine.end(&format!("{id}-0-1"), End::Succeeded);
        passes(&world).await;
        assert_eq!(world.state(&id).await, "SUCCEEDED");
        assert_eq!(world.state(&other).await, "RUNNING");
        world.become_one(second);
        theirs.end(&format!("{other}-0-1"), End::Succeeded);
        passes(&world).await;
        assert_eq!(world.state(&other).await, "SUCCEEDED");
    })
    .await;
}

#[tokio::test]
async fn what_is_gone_with_its_server_starts_again_when_somebody_says_so() {
    each(async |mut world: World| {
        world.die_and_be(own_machines());
        let id = world.submit(json!({})).await;
        passes(&world).await;
        let lost = async |world: &World| world.post(&format!("/jobs/{id}/lost"), json!({})).await;
        assert_eq!(refused(lost(&world).await).0, 409, "its server is there");
        let theirs: Arc<Engine> = shared();
        let folder = tempfile::tempdir().unwrap();
        world.stand_by(own_machines(), &theirs, folder.path());
        passes(&world).await;
        ok(lost(&world).await);
        passes(&world).await;
        assert_eq!((world.state(&id).await, theirs.launches()), ("RUNNING".into(), 1));
        let starts = world.starts(&id).await;
        assert_eq!(starts[0]["end"], "it is gone with the server that ran it");
        assert_eq!((starts.len(), refused(lost(&world).await).0), (2, 409));
    })
    .await;
}
