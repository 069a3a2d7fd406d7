//! Waiting for a model: order, deadlines, going away, limits.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::fake::{answers, ask, batching, eventually, fetched, one, plain, world};
use crate::runtime::{Ask, Batching, FleetConfig, Model, Priority, Settings};

const MS: Duration = Duration::from_millis(1);

/// Asks in the background.
fn spawn(
    model: &Arc<Model>,
    ask: Ask,
) -> tokio::task::JoinHandle<falaj_base::Result<crate::runtime::Answer>> {
    let model = Arc::clone(model);
    tokio::spawn(async move { model.infer(ask).await })
}

/// Keeps the only instance busy until the gate opens.
async fn occupy(
    world: &super::fake::World,
    model: &Arc<Model>,
) -> tokio::task::JoinHandle<falaj_base::Result<crate::runtime::Answer>> {
    world.stage.gate.shut();
    let busy = spawn(model, ask(&[0.5]));
    eventually("the instance is busy", || world.stage.gate.waiting.load(SeqCst) == 1).await;
    busy
}

async fn waiting(model: &Arc<Model>, count: usize) {
    eventually("they wait", || model.statistics().waiting == count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_gets_the_rows_that_are_theirs() {
    let (world, model) = one(Settings { batching: batching(16), ..plain() }).await;
    world.stage.run_ns.store(1_000_000, SeqCst);
    let asks = (0..400_u16).map(|number| {
        let model = Arc::clone(&model);
        tokio::spawn(async move {
            let rows = number % 5 + 1;
            let values: Vec<f32> =
                (0..rows).map(|row| f32::from(number) + f32::from(row) / 8.0).collect();
            let answer = model.infer(ask(&values)).await.unwrap();
            assert!(answers(&answer, &values), "{values:?} {answer:?}");
            assert!(answer.times.batch_rows >= values.len());
        })
    });
    for done in asks.collect::<Vec<_>>() {
        done.await.unwrap();
    }
    let rows = world.stage.rows();
    assert!(rows.iter().all(|&rows| rows <= 16), "{rows:?}");
    assert!(rows.len() < 300, "batches were made: {} runs", rows.len());
    let statistics = model.statistics();
    assert_eq!(statistics.inference_count, 400 * 3);
    assert_eq!(statistics.execution_count, rows.len() as u64);
    assert_eq!((statistics.success.count, statistics.fail.count), (400, 0));
    assert_eq!((statistics.in_flight, statistics.waiting, statistics.waiting_bytes), (0, 0, 0));
    assert_eq!(statistics.queue.count, 400);
    let runs: u64 = statistics.batches.iter().map(|batch| batch.compute_infer.count).sum();
    assert_eq!(runs, statistics.execution_count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_share_nothing_if_answers_depend_on_mates() {
    let world = world(FleetConfig::default());
    let mut variant = fetched(Settings { batching: batching(16), ..plain() });
    variant.batch_invariant = false;
    let key = world.put("variant", variant);
    let model = world.fleet.model(&key).await.unwrap();
    assert!(!model.batches());
    world.stage.run_ns.store(200_000, SeqCst);
    let asks: Vec<_> = (0..50).map(|_| spawn(&model, ask(&[1.0]))).collect();
    for done in asks {
        assert_eq!(done.await.unwrap().unwrap().times.batch_rows, 1);
    }
    assert_eq!(world.stage.rows(), vec![1; 50]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_higher_priority_goes_first() {
    let (world, model) = one(Settings { batching: batching(1), ..plain() }).await;
    let busy = occupy(&world, &model).await;
    let mut asks = Vec::new();
    let order = [Priority::Low, Priority::Normal, Priority::High, Priority::Low, Priority::High];
    for (value, &priority) in [1.0, 2.0, 3.0, 4.0, 5.0].iter().zip(&order) {
        asks.push(spawn(&model, Ask { priority, ..ask(&[*value]) }));
        waiting(&model, asks.len()).await;
    }
    world.stage.gate.open();
    for done in asks.into_iter().chain([busy]) {
        done.await.unwrap().unwrap();
    }
    let runs: Vec<f32> = world.stage.runs.lock().unwrap().iter().map(|run| run.1).collect();
    assert_eq!(runs, [0.5, 3.0, 5.0, 2.0, 1.0, 4.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deadline_that_passes_ends_it_at_once_whether_it_waits_or_runs() {
    let (world, model) = one(plain()).await;
    world.stage.gate.shut();
    let deadline = |ms: u32| Some(Instant::now() + MS * ms);
    let started = Instant::now();
    let runs = spawn(&model, Ask { deadline: deadline(1000), ..ask(&[1.0]) });
    eventually("it runs", || world.stage.gate.waiting.load(SeqCst) == 1).await;
    let waits = spawn(&model, Ask { deadline: deadline(50), ..ask(&[2.0]) });
    let error = waits.await.unwrap().unwrap_err();
    assert_eq!(error.code().id, "deadline-exceeded");
    assert!(started.elapsed() < 900 * MS, "{:?}", started.elapsed());
    assert_eq!(model.statistics().waiting, 0);
    let error = runs.await.unwrap().unwrap_err();
    assert_eq!(error.code().id, "deadline-exceeded");
    eventually("the run is cancelled", || world.stage.cancelled.load(SeqCst) == 1).await;
    let late = Ask { deadline: Instant::now().checked_sub(MS), ..ask(&[3.0]) };
    assert_eq!(model.infer(late).await.unwrap_err().code().id, "deadline-exceeded");
    world.stage.gate.open();
    assert!(answers(&model.infer(ask(&[4.0])).await.unwrap(), &[4.0]), "it serves on");
    assert_eq!(model.statistics().timed_out, 3);
    assert_eq!(world.stage.rows().len(), 2, "what was too late was not computed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_models_own_timeout_holds_too() {
    let (world, model) = one(Settings { timeout: 30 * MS, ..plain() }).await;
    world.stage.gate.shut();
    let started = Instant::now();
    let far = Ask { deadline: Some(Instant::now() + 10_000 * MS), ..ask(&[1.0]) };
    assert_eq!(model.infer(far).await.unwrap_err().code().id, "deadline-exceeded");
    assert!(started.elapsed() < 1000 * MS);
    world.stage.gate.open();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_goes_away_leaves_nothing_behind() {
    let (world, model) = one(Settings { max_queue: 2, ..plain() }).await;
    let busy = occupy(&world, &model).await;
    let (first, second) = (spawn(&model, ask(&[1.0])), spawn(&model, ask(&[2.0])));
    waiting(&model, 2).await;
    let bytes = model.statistics().waiting_bytes;
    let error = model.infer(ask(&[3.0])).await.unwrap_err();
    assert_eq!(error.code().id, "overloaded");
    assert!(error.wait().is_some(), "and says when to come again");
    first.abort();
    waiting(&model, 1).await;
    assert_eq!(model.statistics().waiting_bytes, bytes / 2);
    let third = spawn(&model, ask(&[3.0]));
    waiting(&model, 2).await;
    busy.abort();
    eventually("nobody wants the run", || world.stage.cancelled.load(SeqCst) == 1).await;
    world.stage.gate.open();
    assert!(answers(&second.await.unwrap().unwrap(), &[2.0]));
    assert!(answers(&third.await.unwrap().unwrap(), &[3.0]));
    let statistics = model.statistics();
    assert_eq!((statistics.cancelled, statistics.refused), (2, 1));
    assert_eq!((statistics.in_flight, statistics.waiting_bytes), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_goes_on_while_one_of_its_requests_is_wanted() {
    let (world, model) = one(plain()).await;
    let busy = occupy(&world, &model).await;
    let (leaves, stays) = (spawn(&model, ask(&[1.0])), spawn(&model, ask(&[2.0])));
    waiting(&model, 2).await;
    busy.abort();
    eventually("both run together", || world.stage.rows() == [1, 2]).await;
    leaves.abort();
    tokio::time::sleep(20 * MS).await;
    world.stage.gate.open();
    assert!(answers(&stays.await.unwrap().unwrap(), &[2.0]));
    assert_eq!(world.stage.cancelled.load(SeqCst), 1, "only the first run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bytes_are_bounded_for_a_model_and_for_all() {
    let world = world(FleetConfig { queue_bytes: 400, ..FleetConfig::default() });
    let settings = Settings { max_queue_bytes: 300, ..plain() };
    let key = world.put("small", fetched(settings.clone()));
    let other = world.put("other", fetched(settings));
    let model = world.fleet.model(&key).await.unwrap();
    let other = world.fleet.model(&other).await.unwrap();
    world.stage.gate.shut();
    let busy = [spawn(&model, ask(&[0.0])), spawn(&other, ask(&[0.0]))];
    eventually("both are busy", || world.stage.gate.waiting.load(SeqCst) == 2).await;
    let values = vec![1.0; 30];
    let held = spawn(&model, ask(&values));
    waiting(&model, 1).await;
    assert_eq!(model.statistics().waiting_bytes, 240);
    let error = model.infer(ask(&values)).await.unwrap_err();
    assert_eq!(error.code().id, "overloaded", "the model's own limit");
    let small = spawn(&other, ask(&[1.0]));
    waiting(&other, 1).await;
    let error = other.infer(ask(&values)).await.unwrap_err();
    assert_eq!(error.code().id, "overloaded", "the limit of all");
    world.stage.gate.open();
    for done in busy.into_iter().chain([held, small]) {
        done.await.unwrap().unwrap();
    }
    let large = ask(&[1.0; 100]);
    assert!(model.infer(large).await.is_ok(), "alone, a large one is let in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_lowest_make_room_for_the_highest() {
    let (world, model) = one(Settings { max_queue: 2, ..plain() }).await;
    let busy = occupy(&world, &model).await;
    let low = Ask { priority: Priority::Low, ..ask(&[1.0]) };
    let low = spawn(&model, low);
    waiting(&model, 1).await;
    let normal = spawn(&model, ask(&[2.0]));
    waiting(&model, 2).await;
    let high = spawn(&model, Ask { priority: Priority::High, ..ask(&[3.0]) });
    assert_eq!(low.await.unwrap().unwrap_err().code().id, "overloaded");
    waiting(&model, 2).await;
    world.stage.gate.open();
    for done in [busy, normal, high] {
        done.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_delay_gathers_and_none_does_not_wait() {
    let delay = 700 * MS;
    let (world, model) =
        one(Settings { batching: Batching { delay, ..batching(4) }, ..plain() }).await;
    let started = Instant::now();
    let four: Vec<_> = (0..4_u8).map(|n| spawn(&model, ask(&[f32::from(n)]))).collect();
    for done in four {
        assert_eq!(done.await.unwrap().unwrap().times.batch_rows, 4);
    }
    assert!(started.elapsed() < delay, "a full batch does not wait");
    let answer = model.infer(ask(&[1.0])).await.unwrap();
    assert!(answer.times.queued + MS >= delay, "{:?}", answer.times);
    assert_eq!(world.stage.rows(), [4, 1]);
    let (_, model) = one(plain()).await;
    let answer = model.infer(ask(&[1.0])).await.unwrap();
    assert!(answer.times.queued < delay, "{:?}", answer.times);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn light_models_answer_where_they_are_asked_and_heavy_ones_elsewhere() {
    let settings = Settings { instances: 2, warm_up: true, ..Settings::default() };
    let (world, model) = one(settings.clone()).await;
    world.stage.threads.lock().unwrap().clear();
    for _ in 0..20 {
        model.infer(ask(&[1.0])).await.unwrap();
    }
    let threads = std::mem::take(&mut *world.stage.threads.lock().unwrap());
    let elsewhere = threads.iter().filter(|name| name.starts_with("infer-")).count();
    assert!(elsewhere <= 5, "a light one may be interrupted and taken for heavy: {threads:?}");
    world.stage.run_ns.store(2_000_000, SeqCst);
    for _ in 0..60 {
        model.infer(ask(&[1.0])).await.unwrap();
    }
    let threads = world.stage.threads.lock().unwrap().clone();
    assert!(threads[50..].iter().all(|name| name.starts_with("infer-")), "{threads:?}");
}

/// A model whose rows cost much less beside others.
async fn sociable() -> (super::fake::World, Arc<Model>) {
    let settings = Settings { instances: 2, warm_up: true, ..Settings::default() };
    let (world, model) = one(settings).await;
    // However many rows; the system makes some tens of microseconds of it.
    world.stage.run_ns.store(1_000, SeqCst);
    for _ in 0..40 {
        model.infer(ask(&[1.0])).await.unwrap();
    }
    (world, model)
}

/// Where they are computed depends on what the clock says they cost: `company.rs` fixes that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn light_requests_that_arrive_together_are_all_answered() {
    let (world, model) = sociable().await;
    for _ in 0..30 {
        // One is under way, so the others look for company.
        world.stage.gate.shut();
        let first = spawn(&model, ask(&[0.5]));
        eventually("it runs", || world.stage.gate.waiting.load(SeqCst) == 1).await;
        let before = world.stage.rows().len();
        let all: Vec<_> = (0..8_u8).map(|n| spawn(&model, ask(&[f32::from(n)]))).collect();
        eventually("others run", || world.stage.gate.waiting.load(SeqCst) == 2).await;
        world.stage.gate.open();
        first.await.unwrap().unwrap();
        for (n, asked) in (0..8_u8).zip(all) {
            assert!(answers(&asked.await.unwrap().unwrap(), &[f32::from(n)]));
        }
        assert_eq!(world.stage.rows().split_off(before).iter().sum::<usize>(), 8);
    }
}

#[tokio::test]
async fn whoever_does_not_come_back_leaves_nobody_waiting() {
    let (_world, model) = sociable().await;
    for _ in 0..50 {
        let all: Vec<_> = (0..6_u8).map(|n| spawn(&model, ask(&[f32::from(n)]))).collect();
        tokio::task::yield_now().await;
        for gone in [0, 2, 3] {
            all[gone].abort();
        }
        for (n, asked) in (0..6_u8).zip(all) {
            match asked.await {
                Ok(answer) => assert!(answers(&answer.unwrap(), &[f32::from(n)])),
                Err(gone) => assert!(gone.is_cancelled()),
            }
        }
    }
    assert_eq!(model.statistics().in_flight, 0);
    assert_eq!(model.statistics().waiting, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn light_requests_find_a_thread_while_all_sessions_are_busy() {
    let (world, model) = sociable().await;
    world.stage.gate.shut();
    let mut busy = Vec::new();
    for count in 1..=2 {
        busy.push(spawn(&model, ask(&[1.0])));
        eventually("it runs", || world.stage.gate.waiting.load(SeqCst) == count).await;
    }
    let waits = spawn(&model, ask(&[2.0]));
    waiting(&model, 1).await;
    world.stage.gate.open();
    assert!(answers(&waits.await.unwrap().unwrap(), &[2.0]));
    for one in busy {
        one.await.unwrap().unwrap();
    }
}
