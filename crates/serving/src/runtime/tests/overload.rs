//! More requests than can be answered: those that can be are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::fake::{ask, batching, one, plain};
use crate::runtime::{Ask, Model, Settings};

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
