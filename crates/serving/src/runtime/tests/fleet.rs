//! Loading, remembering, unloading.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use falaj_inference::Tensor;
use falaj_inference::golden::Golden;

use super::fake::{answers, ask, doubling, eventually, fetched, plain, world};
use crate::runtime::{Fetched, Fleet, FleetConfig, LoadState, ModelKey, Settings, Source};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_flight_for_all_who_wait() {
    let world = world(FleetConfig::default());
    *world.shelf.delay.lock().unwrap() = 300 * MS;
    let key = world.put("one", fetched(plain()));
    let waits: Vec<_> = (0..50)
        .map(|_| {
            let (fleet, key) = (world.fleet.clone(), key.clone());
            tokio::spawn(async move { fleet.model(&key).await.unwrap() })
        })
        .collect();
    eventually(
        "it is loading",
        || matches!(world.fleet.loaded()[..], [ref one] if matches!(one.state, LoadState::Loading)),
    )
    .await;
    let mut models = Vec::new();
    for wait in waits {
        models.push(wait.await.unwrap());
    }
    assert!(models.iter().all(|model| Arc::ptr_eq(model, &models[0])));
    assert_eq!(world.shelf.fetches.load(SeqCst), 1);
    assert_eq!(world.stage.loads.load(SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_gives_up_does_not_end_the_flight() {
    let world = world(FleetConfig::default());
    *world.shelf.delay.lock().unwrap() = 30 * MS;
    let key = world.put("one", fetched(plain()));
    let (fleet, same) = (world.fleet.clone(), key.clone());
    let impatient = tokio::spawn(async move { fleet.model(&same).await.map(|_| ()) });
    eventually("it is fetched", || world.shelf.fetches.load(SeqCst) == 1).await;
    impatient.abort();
    world.fleet.model(&key).await.unwrap();
    assert_eq!(world.shelf.fetches.load(SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failure_is_shared_and_remembered_for_a_short_time() {
    let config = FleetConfig { failed_for: 1000 * MS, ..FleetConfig::default() };
    let world = world(config);
    let key = ModelKey::new("absent");
    for _ in 0..5 {
        let error = world.fleet.model(&key).await.unwrap_err();
        assert_eq!(error.code().id, "not-found");
        assert!(error.message().contains("absent"), "{error}");
    }
    assert_eq!(world.shelf.fetches.load(SeqCst), 1);
    assert!(
        matches!(&world.fleet.loaded()[0].state, LoadState::Failed(why) if why.contains("absent"))
    );
    world.put("absent", fetched(plain()));
    assert!(world.fleet.model(&key).await.is_err(), "still remembered");
    tokio::time::sleep(1010 * MS).await;
    world.fleet.model(&key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_model_that_does_not_give_its_golden_outputs_does_not_serve() {
    let x = Tensor::of([1, 2], vec![1.0_f32, 2.0]).unwrap();
    let golden = |values: [f32; 2]| {
        let y = Tensor::of([1, 2], values.to_vec()).unwrap();
        Some(Golden { inputs: vec![("x".into(), x.clone())], outputs: vec![("y".into(), y)] })
    };
    let world = world(FleetConfig::default());
    let wrong = world.put("wrong", Fetched { golden: golden([2.0, 5.0]), ..fetched(plain()) });
    let error = world.fleet.model(&wrong).await.unwrap_err();
    assert!(error.message().contains("not the recorded one"), "{error}");
    assert!(world.fleet.ready(&wrong).is_none());
    assert_eq!(world.stage.sessions.load(SeqCst), 0);
    assert_eq!(world.fleet.memory().0, 0, "and takes no memory");
    let right = world.put("right", Fetched { golden: golden([2.0, 4.0]), ..fetched(plain()) });
    world.fleet.model(&right).await.unwrap();
    let settings = Settings { max_queue: 0, ..plain() };
    let refused = world.put("refused", fetched(settings));
    assert_eq!(world.fleet.model(&refused).await.unwrap_err().field(), Some("max_queue"));
    let garbage =
        Fetched { model: bytes::Bytes::from_static(b"no model").into(), ..fetched(plain()) };
    let garbage = world.put("garbage", garbage);
    assert_eq!(world.fleet.model(&garbage).await.unwrap_err().field(), Some("model"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_oldest_goes_when_memory_is_needed_but_none_in_use() {
    let each = 1 << 20;
    let config = FleetConfig {
        memory: 3 * each + (1 << 19),
        room_within: 100 * MS,
        ..FleetConfig::default()
    };
    let world = world(config);
    world.stage.bytes.store(usize::try_from(each).unwrap() - (64 << 10), SeqCst);
    let keys: Vec<_> = (0..6).map(|n| world.put(&format!("model {n}"), fetched(plain()))).collect();
    let held = world.fleet.model(&keys[0]).await.unwrap();
    for key in &keys[1..3] {
        world.fleet.infer(key, ask(&[1.0])).await.unwrap();
        tokio::time::sleep(2 * MS).await;
    }
    assert_eq!(world.fleet.memory(), (3 * each, 3 * each + (1 << 19)));
    // Used again, so 2 is older now.
    world.fleet.infer(&keys[1], ask(&[1.0])).await.unwrap();
    world.fleet.model(&keys[3]).await.unwrap();
    let there = |n: usize| world.fleet.loaded().iter().any(|one| one.key == keys[n]);
    assert_eq!([0, 1, 2, 3].map(there), [true, true, false, true]);
    eventually("its session is gone", || world.stage.sessions.load(SeqCst) == 3).await;
    let more =
        [world.fleet.model(&keys[1]).await.unwrap(), world.fleet.model(&keys[3]).await.unwrap()];
    let error = world.fleet.model(&keys[4]).await.unwrap_err();
    assert_eq!(error.code().id, "overloaded", "all are in use");
    assert!(error.wait().is_some());
    drop(more);
    tokio::time::sleep(510 * MS).await;
    world.fleet.model(&keys[5]).await.unwrap();
    assert!(there(0), "held all the time");
    assert!(answers(&held.infer(ask(&[3.0])).await.unwrap(), &[3.0]));
    assert!(world.fleet.memory().0 <= world.fleet.memory().1);
    let huge = world.put("huge", fetched(plain()));
    let tiny = super::fake::world(FleetConfig { memory: 1000, ..FleetConfig::default() });
    tiny.put("huge", fetched(plain()));
    assert_eq!(tiny.fleet.model(&huge).await.unwrap_err().code().id, "too-large");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_nobody_asks_for_is_unloaded_and_comes_back() {
    let world = world(FleetConfig { idle: Some(50 * MS), ..FleetConfig::default() });
    let key = world.put("one", fetched(plain()));
    let held = world.fleet.model(&key).await.unwrap();
    tokio::time::sleep(120 * MS).await;
    assert!(world.fleet.ready(&key).is_some(), "somebody holds it");
    drop(held);
    eventually("it is unloaded", || world.fleet.loaded().is_empty()).await;
    eventually("its memory is free", || world.fleet.memory().0 == 0).await;
    assert_eq!(world.stage.sessions.load(SeqCst), 0);
    world.fleet.infer(&key, ask(&[1.0])).await.unwrap();
    assert_eq!(world.stage.loads.load(SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unloading_waits_for_those_who_are_answered() {
    let world = world(FleetConfig { drain: 5000 * MS, ..FleetConfig::default() });
    let key = world.put("one", fetched(plain()));
    assert!(!world.fleet.unload(&key).await, "it is not loaded");
    world.fleet.model(&key).await.unwrap();
    world.stage.gate.shut();
    let (fleet, same) = (world.fleet.clone(), key.clone());
    let asked = tokio::spawn(async move { fleet.infer(&same, ask(&[1.0])).await });
    eventually("it runs", || world.stage.gate.waiting.load(SeqCst) == 1).await;
    let (fleet, same) = (world.fleet.clone(), key.clone());
    let unloading = tokio::spawn(async move { fleet.unload(&same).await });
    eventually("nobody finds it", || world.fleet.loaded().is_empty()).await;
    tokio::time::sleep(20 * MS).await;
    assert!(!unloading.is_finished());
    world.stage.gate.open();
    assert!(answers(&asked.await.unwrap().unwrap(), &[1.0]));
    assert!(unloading.await.unwrap());
    assert_eq!(world.stage.sessions.load(SeqCst), 0);
    assert_eq!(world.fleet.memory().0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_holds_an_unloaded_model_for_too_long_is_refused() {
    let world = world(FleetConfig { drain: 30 * MS, ..FleetConfig::default() });
    let key = world.put("one", fetched(plain()));
    let held = world.fleet.model(&key).await.unwrap();
    let started = Instant::now();
    assert!(world.fleet.unload(&key).await);
    assert!(started.elapsed() < 2000 * MS);
    let error = held.infer(ask(&[1.0])).await.unwrap_err();
    assert_eq!(error.code().id, "unavailable");
    assert!(world.fleet.infer(&key, ask(&[1.0])).await.is_ok(), "asking again loads it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_are_kept_if_wanted() {
    let world = world(FleetConfig::default());
    let key = world.put("kept", fetched(Settings { cache: true, ..plain() }));
    let model = world.fleet.model(&key).await.unwrap();
    let first = model.infer(ask(&[1.0])).await.unwrap();
    let again = model.infer(ask(&[1.0])).await.unwrap();
    let other = model.infer(ask(&[2.0])).await.unwrap();
    assert_eq!([&first, &again, &other].map(|one| one.times.cached), [false, true, false]);
    assert_eq!(first.outputs, again.outputs);
    assert!(answers(&other, &[2.0]));
    assert_eq!(world.stage.rows().len(), 2);
    let statistics = model.statistics();
    assert_eq!((statistics.cache_hit.count, statistics.cache_miss.count), (1, 2));
    assert_eq!(statistics.success.count, 3);
    let error = model.infer(ask(&[super::fake::FAIL])).await.unwrap_err();
    assert_eq!(error.code().id, "invalid-input");
    assert!(model.infer(ask(&[super::fake::FAIL])).await.is_err(), "failures are not kept");
    assert_eq!(world.stage.rows().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn our_own_engine_answers() {
    let shelf = Arc::<super::fake::Shelf>::default();
    let fleet = Fleet::new(FleetConfig::default(), Arc::clone(&shelf) as Arc<dyn Source>, None);
    let key = ModelKey::new("doubling");
    let model = Fetched { model: doubling(2).into(), ..fetched(Settings::default()) };
    shelf.models.lock().unwrap().insert(key.clone(), model);
    let model = fleet.model(&key).await.unwrap();
    assert_eq!((model.engine(), model.batches()), ("kernels", true));
    assert_eq!(model.metadata().inputs[0].name, "x");
    let values = [1.0, -7.5, 1e6];
    assert!(answers(&model.infer(ask(&values)).await.unwrap(), &values));
    assert!(model.bytes() > 0);
}
