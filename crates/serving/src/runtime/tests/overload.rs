//! More requests than can be answered: those that can be are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::fake::{ask, batching, one, plain};
use crate::runtime::{Ask, Model, Priority, Settings};

/// Offers a request every so often for a while. How many were answered in time, and how long the
/// refused had to wait for their refusal at most.
async fn offer(model: &Arc<Model>, every: Duration, deadline: Duration) -> (usize, Duration) {
    let (good, slowest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (started, mut asks) = (Instant::now(), Vec::new());
    let lasting = Duration::from_millis(1500);
    let mut number = 0;
    while started.elapsed() < lasting {
        // As many as are due: timers are coarser than the load.
        while every * number < started.elapsed() {
            number += 1;
            let (model, good) = (Arc::clone(model), Arc::clone(&good));
            let slowest = Arc::clone(&slowest);
            asks.push(tokio::spawn(async move {
                let begun = Instant::now();
                let ask = Ask { deadline: Some(begun + deadline), ..ask(&[1.0]) };
                match model.infer(ask).await {
                    Ok(_) => {
                        good.fetch_add(1, SeqCst);
                    }
                    Err(error) if error.code().id == "overloaded" => {
                        let took = usize::try_from(begun.elapsed().as_micros()).unwrap();
                        slowest.fetch_max(took, SeqCst);
                    }
                    Err(_) => {}
                }
            }));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for ask in asks {
        ask.await.unwrap();
    }
    let slowest = Duration::from_micros(slowest.load(SeqCst) as u64);
    (good.load(SeqCst), slowest)
}

async fn goodput(settings: Settings, capacity: u32) {
    let deadline = Duration::from_millis(150);
    let mut good = Vec::new();
    for load in [1, 5] {
        let (world, model) = one(settings.clone()).await;
        world.stage.run_ns.store(5_000_000, SeqCst);
        // It has been asked before, and knows what it takes.
        for _ in 0..5 {
            model.infer(ask(&[1.0])).await.unwrap();
        }
        let every = Duration::from_secs(1) / (capacity * load);
        let (answered, slowest) = offer(&model, every, deadline).await;
        assert!(slowest < Duration::from_secs(1), "a refusal took {slowest:?}");
        let statistics = model.statistics();
        println!("{load} x: {answered} answered, {statistics:?}");
        good.push(answered);
    }
    assert!(good[1] * 10 >= good[0] * 8, "goodput collapses: {good:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_times_the_load_keeps_the_goodput() {
    goodput(Settings { batching: batching(1), ..plain() }, 180).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_times_the_load_keeps_the_goodput_of_batches() {
    goodput(Settings { batching: batching(4), ..plain() }, 720).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_cannot_be_done_in_time_is_refused_at_once() {
    let (world, model) = one(Settings { batching: batching(1), ..plain() }).await;
    world.stage.run_ns.store(20_000_000, SeqCst);
    for _ in 0..3 {
        model.infer(ask(&[1.0])).await.unwrap();
    }
    let patient =
        |ms| Ask { deadline: Some(Instant::now() + Duration::from_millis(ms)), ..ask(&[1.0]) };
    let queue: Vec<_> = (0..10)
        .map(|_| {
            let (model, ask) = (Arc::clone(&model), patient(5000));
            tokio::spawn(async move { model.infer(ask).await })
        })
        .collect();
    super::fake::eventually("they wait", || model.statistics().waiting >= 8).await;
    // Had it waited, it would have been too late instead.
    let error = model.infer(patient(60)).await.unwrap_err();
    assert_eq!(error.code().id, "overloaded");
    assert!(error.wait().unwrap() > Duration::from_millis(100), "{:?}", error.wait());
    for done in queue {
        done.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_finds_the_line_full_is_refused_unread_and_counted() {
    let settings = Settings { batching: batching(1), max_queue: 2, ..plain() };
    let (world, model) = one(settings).await;
    assert!(model.refusal(Priority::Normal, || true).is_none(), "nobody waits");
    world.stage.run_ns.store(300_000_000, SeqCst);
    // What takes long is not computed where it arrives.
    model.infer(ask(&[1.0])).await.unwrap();
    world.stage.run_ns.store(0, SeqCst);
    world.stage.gate.shut();
    let asked = || {
        let model = Arc::clone(&model);
        tokio::spawn(async move { model.infer(ask(&[1.0])).await })
    };
    // The first is being computed before others come: it would leave a place in the line behind it.
    let mut waiting = vec![asked()];
    super::fake::eventually("one is computed", || world.stage.gate.waiting.load(SeqCst) == 1).await;
    waiting.extend((0..2).map(|_| asked()));
    super::fake::eventually("the line is full", || model.statistics().waiting == 2).await;
    let before = model.statistics();
    assert!(model.refusal(Priority::Normal, || false).is_none(), "it may be of another priority");
    assert!(model.refusal(Priority::High, || true).is_none(), "others would make room for it");
    assert_eq!(model.statistics().refused, before.refused);
    let refusal = model.refusal(Priority::Normal, || true).unwrap();
    assert_eq!(refusal.code().id, "overloaded");
    assert!(refusal.wait().is_some());
    assert!(model.refusal(Priority::Low, || true).is_some());
    let after = model.statistics();
    assert_eq!(after.refused, before.refused + 2);
    assert_eq!(after.fail.count, before.fail.count + 2);
    world.stage.gate.open();
    for done in waiting {
        let _ = done.await.unwrap();
    }
}
