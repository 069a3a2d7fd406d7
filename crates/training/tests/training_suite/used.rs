//! What starts use: seen, kept, judged.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use falaj_executors::gpu::{Gpu, Gpus};
use falaj_executors::{End, Notice, RankEnd, Usage};
use falaj_training::config::{PoolKind, TrainingConfig};
use falaj_training::telemetry::config::IdleAction;
use serde_json::{Value, json};

use super::world::{self, World, each, ok, refused};

/// GPUs that are as busy as a test says.
#[derive(Debug, Default)]
struct Toys(Mutex<Vec<Gpu>>);

impl Toys {
    fn new() -> Arc<Self> {
        let gpu = |index| Gpu {
            index,
            uuid: format!("GPU-{index}"),
            name: "NVIDIA Toy".to_owned(),
            memory_bytes: 80 << 30,
            memory_used_bytes: 20 << 30,
            utilization: Some(90.0),
            power_watts: Some(300.0),
            ..Gpu::default()
        };
        Arc::new(Self(Mutex::new((0..2).map(gpu).collect())))
    }

    fn busy(&self, percent: f64) {
        for gpu in self.0.lock().unwrap().iter_mut() {
            gpu.utilization = Some(percent);
        }
    }
}

impl Gpus for Toys {
    fn read(&self) -> Vec<Gpu> {
        self.0.lock().unwrap().clone()
    }

    fn source(&self) -> String {
        "toys".to_owned()
    }
}

/// On the server's own machine, looked at every second.
fn config(change: impl FnOnce(&mut TrainingConfig)) -> TrainingConfig {
    let mut config = world::config();
    config.pool[0].kind = PoolKind::Local;
    config.telemetry.every = "1s".parse().unwrap();
    config.telemetry.write_every = "1s".parse().unwrap();
    config.telemetry.idle.after = "60s".parse().unwrap();
    change(&mut config);
    config
}

fn begin(world: &mut World, change: impl FnOnce(&mut TrainingConfig)) -> Arc<Toys> {
    world.die_and_be(config(change));
    let toys = Toys::new();
    world.training.reads_gpus_from(toys.clone());
    toys
}

/// Time passes, and is looked at all the while.
async fn pass(world: &World, seconds: u64) {
    for _ in 0..seconds.div_ceil(10) {
        world.clock.advance(Duration::from_secs(10));
        for _ in 0..3 {
            world.clock.advance(Duration::from_millis(1));
            world.training.pass().await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn on_gpu(world: &World, change: Value) -> String {
    let mut asked = json!({
        "resources": { "cpu": 2.0, "memory": "1GiB", "gpus": 1, "gpu_type": "toy" },
    });
    for (key, value) in change.as_object().unwrap() {
        asked[key] = value.clone();
    }
    let id = world.submit(asked).await;
    world.settle().await;
    assert_eq!(world.state(&id).await, "RUNNING");
    id
}

#[tokio::test]
async fn what_a_job_uses_is_seen_kept_and_logged() {
    each(async |mut world: World| {
        begin(&mut world, |_| {});
        let id = on_gpu(&world, json!({})).await;
        let used = |seconds, memory| Usage {
            cpu_seconds: seconds,
            memory_bytes: memory,
            peak_memory_bytes: 300 << 20,
            read_bytes: 1000,
            written_bytes: 0,
        };
        world.engine.uses(used(0.0, 100 << 20));
        pass(&world, 10).await;
        world.engine.uses(used(15.0, 200 << 20));
        pass(&world, 20).await;
        let told = ok(world.get(&format!("/jobs/{id}/telemetry")).await);
        let start = &told["starts"][0];
        assert_eq!(start["running"], true, "{told}");
        assert_eq!(start["now"]["memory_bytes"], 200 << 20);
        assert_eq!(start["now"]["gpus"][0]["utilization"], 90.0);
        assert_eq!(start["summary"]["gpu_memory_mib"]["peak"], 20480.0);
        assert!(start["summary"]["cpu_cores"]["peak"].as_f64().unwrap() > 1.0, "{told}");
        assert!(refused(world.get(&format!("/jobs/{id}/telemetry?task=1")).await).0 == 400);
        let pools = ok(world.get("/pools").await);
        assert_eq!(pools["items"][0]["nodes"][0]["gpu_memory_mib"], 80 << 10);
        // The same for whoever comes after, and a job that is over keeps its summary.
        world.die_and_be(config(|_| {}));
        world.training.reads_gpus_from(Toys::new());
        pass(&world, 20).await;
        let later = ok(world.get(&format!("/jobs/{id}/telemetry")).await);
        let seconds = |told: &Value| told["starts"][0]["summary"]["seconds"].as_f64().unwrap();
        assert!(seconds(&later) > seconds(&told), "{later}");
        world.engine.end(&format!("{id}-0-1"), End::Succeeded);
        world.settle().await;
        let over = ok(world.get(&format!("/jobs/{id}/telemetry")).await);
        assert_eq!(over["starts"][0]["running"], false);
        assert_eq!(over["starts"][0]["now"], Value::Null);
        assert_eq!(
            world.count("SELECT COUNT(*) AS n FROM training_telemetry WHERE open = 1").await,
            0
        );
        let run = world.job(&id).await["run_id"].as_str().unwrap().to_owned();
        for _ in 0..100 {
            if world.metric(&run, "system/gpu_0_utilization_percentage").await == Some(90.0) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(world.metric(&run, "system/gpu_0_utilization_percentage").await, Some(90.0));
        assert!(world.metric(&run, "system/system_memory_usage_megabytes").await.is_some());
    })
    .await;
}

#[tokio::test]
async fn an_idle_job_is_marked_until_it_is_busy() {
    each(async |mut world: World| {
        let toys = begin(&mut world, |_| {});
        let id = on_gpu(&world, json!({})).await;
        pass(&world, 120).await;
        assert_eq!(world.job(&id).await["idle_since"], Value::Null);
        toys.busy(1.0);
        pass(&world, 50).await;
        assert_eq!(world.job(&id).await["idle_since"], Value::Null, "not long enough");
        pass(&world, 30).await;
        let since = world.job(&id).await["idle_since"].clone();
        assert!(since.is_string(), "it is idle");
        let listed = ok(world.get("/jobs?idle=true").await);
        assert_eq!(listed["items"][0]["id"], id.as_str());
        assert_eq!(listed["items"][0]["idle_since"], since);
        assert_eq!(world.state(&id).await, "RUNNING", "it is told of, and left alone");
        let events = "SELECT COUNT(*) AS n FROM event WHERE kind = 'falaj.job.idle'";
        assert_eq!(world.count(events).await, 1);
        toys.busy(50.0);
        pass(&world, 20).await;
        assert_eq!(world.job(&id).await["idle_since"], Value::Null);
        assert_eq!(ok(world.get("/jobs?idle=true").await)["items"], json!([]));
        assert_eq!(world.count(events).await, 1);
    })
    .await;
}

#[tokio::test]
async fn an_idle_job_saves_its_work_and_gives_up_its_nodes_for_a_while() {
    each(async |mut world: World| {
        let toys = begin(&mut world, |config| {
            config.telemetry.idle.action = IdleAction::Reclaim;
            config.telemetry.idle.pause = "5m".parse().unwrap();
        });
        let kept = json!({ "reclaim": false, "resources": { "gpus": 1 } });
        let (status, field, _) = refused(world.post("/jobs", world::definition(kept)).await);
        assert_eq!((status, field.as_str()), (400, "reclaim"));
        toys.busy(0.0);
        let id = on_gpu(&world, json!({ "checkpoint": {} })).await;
        pass(&world, 90).await;
        let start = format!("{id}-0-1");
        assert_eq!(world.engine.told(), [(start.clone(), Notice::Checkpoint)]);
        assert_eq!(world.state(&id).await, "CHECKPOINTING");
        pass(&world, 180).await;
        assert_eq!(world.state(&id).await, "PREEMPTED");
        assert_eq!(world.engine.told().last(), Some(&(start, Notice::Stop)));
        let why = ok(world.get(&format!("/jobs/{id}/why")).await);
        assert!(why["why"].as_str().unwrap().contains("in line again"), "{why}");
        let decided = ok(world.get(&format!("/jobs/{id}/decisions")).await);
        let reasons: Vec<&str> = decided["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["detail"]["why"].as_str())
            .collect();
        assert!(reasons.iter().any(|text| text.contains("less than 5 %")), "{decided}");
        assert_eq!(world.starts(&id).await.len(), 1, "nobody else is there, and it waits");
        toys.busy(80.0);
        pass(&world, 300).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        assert_eq!(world.starts(&id).await.len(), 2);
        pass(&world, 120).await;
        assert_eq!(world.state(&id).await, "RUNNING", "it is busy now");
    })
    .await;
}

#[tokio::test]
async fn a_job_that_is_idle_again_and_again_is_ended_and_its_pause_outlives_the_server() {
    each(async |mut world: World| {
        let policy = |config: &mut TrainingConfig| {
            config.telemetry.idle.action = IdleAction::Reclaim;
            config.telemetry.idle.pause = "5m".parse().unwrap();
            config.telemetry.idle.tries = 2;
        };
        let toys = begin(&mut world, policy);
        toys.busy(0.0);
        let id = on_gpu(&world, json!({})).await;
        pass(&world, 90).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "PREEMPTED");
        // Nobody forgets that it is to wait for a while.
        let toys = begin(&mut world, policy);
        toys.busy(0.0);
        pass(&world, 120).await;
        world.settle().await;
        assert_eq!(
            (world.state(&id).await.as_str(), world.starts(&id).await.len()),
            ("PREEMPTED", 1)
        );
        pass(&world, 200).await;
        world.settle().await;
        assert_eq!(world.starts(&id).await.len(), 2);
        pass(&world, 90).await;
        world.settle().await;
        let job = world.job(&id).await;
        assert_eq!(job["state"], "FAILED", "{job}");
        let reason = job["reason"].as_str().unwrap();
        assert_eq!(reason, "it used nothing of what it had in 2 starts, one after the other");
        pass(&world, 400).await;
        assert_eq!(world.starts(&id).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn one_that_worked_before_it_was_idle_is_not_counted_against() {
    each(async |mut world: World| {
        let toys = begin(&mut world, |config| {
            config.telemetry.idle.action = IdleAction::Reclaim;
            config.telemetry.idle.pause = "1m".parse().unwrap();
            config.telemetry.idle.tries = 2;
        });
        let id = on_gpu(&world, json!({})).await;
        for starts in 1..=3 {
            toys.busy(90.0);
            pass(&world, 80).await;
            assert_eq!(world.state(&id).await, "RUNNING");
            toys.busy(0.0);
            pass(&world, 90).await;
            world.settle().await;
            assert_eq!(
                (world.state(&id).await.as_str(), world.starts(&id).await.len()),
                ("PREEMPTED", starts)
            );
            toys.busy(90.0);
            pass(&world, 70).await;
            world.settle().await;
        }
        assert_eq!(world.state(&id).await, "RUNNING");
    })
    .await;
}

#[tokio::test]
async fn a_start_that_worked_and_failed_lies_between_those_that_were_idle() {
    each(async |mut world: World| {
        let toys = begin(&mut world, |config| {
            config.telemetry.idle.action = IdleAction::Reclaim;
            config.telemetry.idle.pause = "1m".parse().unwrap();
            config.telemetry.idle.tries = 2;
        });
        toys.busy(0.0);
        let id = on_gpu(&world, json!({ "retries": 1 })).await;
        pass(&world, 90).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "PREEMPTED");
        toys.busy(90.0);
        pass(&world, 150).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        let failed = End::Failed { rank: 0, how: RankEnd::Exit(1) };
        world.engine.end(&format!("{id}-0-2"), failed);
        toys.busy(0.0);
        world.settle().await;
        assert_eq!(world.starts(&id).await.len(), 3);
        pass(&world, 90).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "PREEMPTED", "it is the first that was idle since");
    })
    .await;
}

#[tokio::test]
async fn jobs_are_told_what_would_do() {
    each(async |mut world: World| {
        begin(&mut world, |config| config.prices.core = 1.0);
        let peak = Usage { cpu_seconds: 5.0, peak_memory_bytes: 100 << 20, ..Usage::default() };
        world.engine.uses(peak);
        let mut last = String::new();
        for _ in 0..3 {
            last = world
                .submit(json!({ "name": "fat", "resources": { "cpu": 4.0, "memory": "8GiB" } }))
                .await;
            world.settle().await;
            pass(&world, 50).await;
            world.engine.end(&format!("{last}-0-1"), End::Succeeded);
            world.settle().await;
        }
        let told = ok(world.get(&format!("/jobs/{last}/hints")).await);
        let fields: Vec<_> =
            told["hints"].as_array().unwrap().iter().map(|it| it["field"].clone()).collect();
        assert_eq!(fields, ["resources.memory", "resources.cpu", "time_limit"], "{told}");
        assert_eq!(told["hints"][0]["suggested"], "128MiB");
        let all = ok(world.get("/hints").await);
        assert_eq!(all["items"][0]["name"], "fat");
        assert_eq!(all["items"][0]["starts"], 3);
        assert_eq!(ok(world.get("/hints?queue=none").await)["items"], json!([]));
    })
    .await;
}
