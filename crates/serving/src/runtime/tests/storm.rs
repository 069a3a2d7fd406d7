//! Everything at once: many ask, some go away, some are too late, some make the model fail or panic.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::fake::{FAIL, PANIC, answers, ask, batching, eventually, one, plain};
use crate::runtime::{Ask, Batching, Priority, Settings};

const ASKS: u16 = 3000;

/// The same numbers each time, without much order.
fn dice(seed: u16, sides: u32) -> u32 {
    let mixed = u32::from(seed).wrapping_mul(2_654_435_761).rotate_left(13);
    mixed.wrapping_mul(0x9e37_79b9) % sides
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_the_storm_everything_is_in_its_place() {
    let delay = Duration::from_micros(300);
    let batching = Batching { delay, preferred: vec![4], ..batching(12) };
    let settings = Settings { instances: 3, batching, max_queue: 300, ..plain() };
    let (world, model) = one(settings).await;
    world.stage.run_ns.store(200_000, SeqCst);
    let mut asks = Vec::new();
    for number in 0..ASKS {
        let model = Arc::clone(&model);
        let value = match dice(number, 40) {
            0 => PANIC,
            1 => FAIL,
            _ => f32::from(number),
        };
        let rows = dice(number, 5) as usize + 1;
        let values = vec![value; rows];
        let wanted = Ask {
            priority: Priority::ALL[dice(number, 3) as usize],
            deadline: (dice(number, 7) == 0).then(|| Instant::now() + Duration::from_millis(3)),
            ..ask(&values)
        };
        let asked = tokio::spawn(async move {
            match model.infer(wanted).await {
                Ok(answer) => assert!(value >= 0.0 && answers(&answer, &values)),
                Err(error) => {
                    let expected = match value {
                        PANIC => "internal",
                        FAIL => "invalid-input",
                        _ => "deadline-exceeded",
                    };
                    let code = error.code().id;
                    assert!(
                        [expected, "overloaded", "deadline-exceeded"].contains(&code),
                        "{value}: {error:?}"
                    );
                }
            }
        });
        asks.push((asked, dice(number, 6) == 0));
        if dice(number, 16) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for (asked, goes) in asks {
        if goes {
            asked.abort();
        }
        if let Err(error) = asked.await {
            assert!(error.is_cancelled(), "{error:?}");
        }
    }
    eventually("nobody is left", || model.statistics().in_flight == 0).await;
    let after = model.statistics();
    assert_eq!((after.waiting, after.waiting_bytes), (0, 0));
    // One that is aborted before it began was never counted.
    let ended = after.success.count + after.fail.count + after.cancelled;
    assert!(ended <= u64::from(ASKS) && after.success.count > 100, "{after:?}");
    assert!(after.panicked > 0, "{after:?}");
    eventually("every session is back", || world.stage.sessions.load(SeqCst) == 3).await;
    assert!(world.stage.rows().iter().all(|&rows| rows <= 12));
    assert!(answers(&model.infer(ask(&[7.0])).await.unwrap(), &[7.0]));
}
