//! Models that fail and panic.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::fake::{FAIL, PANIC, answers, ask, batching, eventually, one, plain};
use crate::runtime::{Model, Settings};

/// Asks several at once that are bound to share a run.
async fn together(
    world: &super::fake::World,
    model: &Arc<Model>,
    all: &[f32],
) -> Vec<falaj_base::Result<crate::runtime::Answer>> {
    world.stage.gate.shut();
    let spawn = |value: f32| {
        let model = Arc::clone(model);
        tokio::spawn(async move { model.infer(ask(&[value])).await })
    };
    let busy = spawn(0.5);
    eventually("it is busy", || world.stage.gate.waiting.load(SeqCst) == 1).await;
    let asks: Vec<_> = all.iter().map(|&value| spawn(value)).collect();
    eventually("they wait", || model.statistics().waiting == all.len()).await;
    world.stage.gate.open();
    busy.await.unwrap().unwrap();
    let mut results = Vec::new();
    for ask in asks {
        results.push(ask.await.unwrap());
    }
    results
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_that_fails_does_not_fail_its_mates() {
    let (world, model) = one(Settings { batching: batching(8), ..plain() }).await;
    let all = [1.0, FAIL, 3.0, 4.0];
    for (value, result) in all.iter().zip(together(&world, &model, &all).await) {
        match result {
            Ok(answer) => assert!(answers(&answer, &[*value])),
            Err(error) => assert_eq!((*value, error.code().id), (FAIL, "invalid-input")),
        }
    }
    assert_eq!(model.statistics().success.count, 4);
    assert_eq!(world.stage.loads.load(SeqCst), 1, "a failure is no reason to load again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_that_panics_harms_nobody_and_the_session_is_replaced() {
    let (world, model) = one(Settings { batching: batching(8), ..plain() }).await;
    let all = [1.0, 2.0, PANIC, 4.0];
    for (value, result) in all.iter().zip(together(&world, &model, &all).await) {
        match result {
            Ok(answer) => assert!(answers(&answer, &[*value])),
            Err(error) => assert_eq!((*value, error.code().id), (PANIC, "internal")),
        }
    }
    let statistics = model.statistics();
    assert_eq!(statistics.success.count, 4);
    assert_eq!(statistics.panicked, 2, "once together, once alone");
    eventually("it is loaded again", || world.stage.loads.load(SeqCst) == 3).await;
    for value in [5.0, PANIC, 6.0, PANIC, 7.0] {
        let result = model.infer(ask(&[value])).await;
        assert_eq!(result.is_ok(), value != PANIC);
    }
    eventually("one session is left", || world.stage.sessions.load(SeqCst) == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_panic_where_it_is_asked_is_contained_too() {
    let (world, model) = one(Settings { warm_up: true, ..plain() }).await;
    for _ in 0..10 {
        assert!(model.infer(ask(&[1.0])).await.is_ok());
        assert_eq!(model.infer(ask(&[PANIC])).await.unwrap_err().code().id, "internal");
    }
    assert!(answers(&model.infer(ask(&[1.0])).await.unwrap(), &[1.0]));
    eventually("one session is left", || world.stage.sessions.load(SeqCst) == 1).await;
    assert_eq!(model.statistics().panicked, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn outputs_that_are_not_by_row_end_the_sharing() {
    let (world, model) = one(Settings { batching: batching(8), ..plain() }).await;
    assert!(model.batches());
    world.stage.one_row.store(true, SeqCst);
    for result in together(&world, &model, &[1.0, 2.0, 3.0]).await {
        assert_eq!(result.unwrap().times.batch_rows, 1);
    }
    assert!(!model.batches());
    assert_eq!(world.stage.rows(), [1, 3, 1, 1, 1]);
    for result in together(&world, &model, &[1.0, 2.0]).await {
        result.unwrap();
    }
    assert_eq!(world.stage.rows()[5..], [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_does_not_fit_is_refused_before_it_waits() {
    let (world, model) = one(plain()).await;
    let x = falaj_inference::Tensor::of([1, 3], vec![0.0_f32; 3]).unwrap();
    let wrong = crate::runtime::Ask::new(vec![("x".to_owned(), x)]);
    let error = model.infer(wrong).await.unwrap_err();
    assert_eq!(error.field(), Some("inputs.x"));
    let outputs = vec!["z".to_owned()];
    let wrong = crate::runtime::Ask { outputs, ..ask(&[1.0]) };
    assert_eq!(model.infer(wrong).await.unwrap_err().field(), Some("outputs.name"));
    assert!(world.stage.rows().is_empty());
    assert_eq!(model.statistics().fail.count, 2);
}
